package instancestate

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// clusterOf reads a Cluster from memory; nil when it is absent.
func clusterOf(ctx context.Context, from client.Reader, namespace, name string) (*unstructured.Unstructured, error) {
	return capa.Present(capa.Get(ctx, from, capa.Cluster.WithVersion(capa.CoreVersion), client.ObjectKey{Namespace: namespace, Name: name}))
}

// placeOf returns where the instances of an object are: the region of its Cluster, or of
// the annotation, and the account of the role that Cluster API Provider AWS assumes for the
// Cluster (capa.PlaceOf, capa.RoleOf). The account is empty when no role applies. In a workload
// cluster none does: its administrators write the identities there, and the namespaces that
// may use them. Errors: those of the reader, except capa.Absent; then the place is not known.
func placeOf(ctx context.Context, from client.Reader, o owner.Object) (owner.Place, error) {
	cluster, err := clusterOf(ctx, from, o.Namespace, o.ClusterName)
	if err != nil {
		return owner.Place{}, err
	}
	where, err := capa.PlaceOf(ctx, from, cluster, o.Region)
	if err != nil {
		return owner.Place{}, err
	}
	if o.Cluster != "" {
		return owner.Place{Region: where.Region}, nil
	}
	role, _, err := capa.RoleOf(ctx, from, where.IdentityOf)
	if err != nil {
		return owner.Place{}, err
	}
	return owner.Place{Region: where.Region, Account: accountInARN(role.ARN)}, nil
}

// accountInARN returns the account of an ARN; empty when it is none.
func accountInARN(of string) string {
	parsed, err := arn.Parse(of)
	if err != nil {
		return ""
	}
	return parsed.AccountID
}

// paused reports whether an object or its Cluster is paused.
func paused(ctx context.Context, from client.Reader, cluster string, o metav1.Object) bool {
	if capa.Paused(o) {
		return true
	}
	u, err := clusterOf(ctx, from, o.GetNamespace(), cluster)
	return err == nil && capa.ClusterPaused(u)
}
