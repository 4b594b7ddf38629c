package clusters_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// A ClusterConnection that an earlier version wrote gets the present names, and keeps
// the time at which it became Ready.
func TestFormerNamesOfAClusterConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	object := &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "cluster.prod", Labels: map[string]string{"app.kubernetes.io/managed-by": "capstan"}},
		Spec: capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{
			Kind: "Cluster", Namespace: w.namespace, Name: "prod",
		}},
	}
	w.g.Expect(w.hub.Create(t.Context(), object)).To(Succeed())
	w.g.Expect(w.hub.Status().Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(
		`{"status":{"state":"Ready","reason":"Connected","since":"2026-01-01T00:00:00Z","credentialExpiry":"2026-01-02T00:00:00Z"}}`)))).To(Succeed())
	// All before the start: without its Cluster, the ClusterConnection is deleted.
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	w.manager.Demand(w.clusterName("prod"), "test")
	w.start()
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)

	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(capstanv1.GroupVersion.WithKind(capstanv1.ClusterConnectionKind))
	w.g.Eventually(func(g Gomega) {
		g.Expect(w.hub.Get(t.Context(), client.ObjectKeyFromObject(object), raw)).To(Succeed())
		g.Expect(raw.Object["status"]).To(And(HaveKeyWithValue("observedGeneration", BeEquivalentTo(1)), HaveKey("kubernetesVersion"),
			Not(HaveKey("since")), Not(HaveKey("credentialExpiry"))))
	}).Should(Succeed())
	shown := w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Expect(shown.Status.LastTransitionTime.UTC()).To(Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	w.g.Expect(shown.Status.CredentialExpiryTime.Time).To(BeTemporally(">", time.Now()), "the present credentials are newer")
}
