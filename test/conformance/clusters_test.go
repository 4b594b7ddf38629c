package conformance

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// clusterSecret makes a Secret that names a cluster.
func clusterSecret(t *testing.T, name string) {
	t.Helper()
	create(t, c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{pipelinesv1.ClusterSecretLabel: "true", "app": name}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig(t)},
	})
}

// argoPipeline promotes an Application of Argo CD by notification.
func argoPipeline(name string, targets ...pipelinesv1.Target) *pipelinesv1.Pipeline {
	p := newPipeline(name, name, targets...)
	p.Spec.AppRef.APIVersion, p.Spec.AppRef.Kind = "argoproj.io/v1alpha1", "Application"
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: notification}
	return p
}

// A Secret names a cluster for a clusterRef and for a selector. One without the label is refused with the fix, and the Pipeline
// continues when it is labelled.
func TestAPipelineOverASecret(t *testing.T) {
	g := NewWithT(t)
	argoApplication(t, remote, "bysecret", "1.0.0", "1.0.0", "Healthy", "Synced", "Succeeded")
	selected := pipelinesv1.Target{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{Kind: "Secret", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "bysecret"}}}}
	p := argoPipeline("bysecret", target("Secret", "bysecret"), selected)
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetClusterNotFound", `Secret team/bysecret does not exist, or does not have the label capstan.dev/cluster: "true": create it, label it`)
	clusterSecret(t, "bysecret")
	runsEverywhere(t, p)
	expectReady(t, p)
	var connection capstanv1.ClusterConnection
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "secret.bysecret"}, &connection)).To(Succeed())
	g.Expect(connection.Status.State).To(Equal(capstanv1.ConnectionReady))

	elsewhere := target("Secret", "bysecret")
	elsewhere.ClusterRef.Namespace = "elsewhere"
	other := argoPipeline("bysecret-elsewhere", elsewhere, target("Cluster", "bysecret"))
	create(t, c, other)
	expectCondition(t, other, "Ready", metav1.ConditionFalse, "TargetClusterNotFound", "the administrator has not added namespace elsewhere to --cluster-secret-namespaces")
}
