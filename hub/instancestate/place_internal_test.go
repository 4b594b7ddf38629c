package instancestate

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// stored is a reader of a few objects by kind. It fails with unreadable for that kind.
type stored struct {
	client.Reader
	objects    map[string]map[string]any
	unreadable string
}

func (s stored) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	u := into.(*unstructured.Unstructured)
	kind := u.GetKind()
	if kind == s.unreadable {
		return errors.New("not synced")
	}
	spec, ok := s.objects[kind]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.Object["spec"] = spec
	return nil
}

// TestPlaceOf: which objects decide the region and the account of an instance.
func TestPlaceOf(t *testing.T) {
	objects := map[string]map[string]any{
		"Cluster": {"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSCluster", "name": "prod"}},
		"AWSCluster": {"region": "us-east-1", "identityRef": map[string]any{
			"kind": "AWSClusterRoleIdentity", "name": "role",
		}},
		"AWSClusterRoleIdentity": {"roleARN": "arn:aws:iam::222222222222:role/capa", "allowedNamespaces": map[string]any{}},
	}
	for name, c := range map[string]struct {
		cluster    string
		unreadable string
		want       owner.Place
		err        string
	}{
		"in the management cluster":                                         {want: owner.Place{Region: "us-east-1", Account: "222222222222"}},
		"in a workload cluster, whose admins write the identity":            {cluster: "Cluster/team/prod", want: owner.Place{Region: "us-east-1"}},
		"the Cluster cannot be read, so that the annotation does not count": {unreadable: "Cluster", err: "not synced"},
		"the AWSCluster cannot be read":                                     {unreadable: "AWSCluster", err: "not synced"},
		"the identity cannot be read":                                       {unreadable: "AWSClusterRoleIdentity", err: "not synced"},
	} {
		t.Run(name, func(t *testing.T) {
			o := owner.Object{Key: owner.Key{Cluster: c.cluster, Namespace: "team", Name: "m"}, ClusterName: "prod", Region: "eu-west-1"}
			g := NewWithT(t)
			place, err := placeOf(t.Context(), stored{objects: objects, unreadable: c.unreadable}, o)
			g.Expect(place).To(Equal(c.want))
			if c.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(c.err))
			}
		})
	}
}
