package conformance

import (
	"encoding/base64"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
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

// clusterProfile makes a ClusterProfile of the workload cluster, with the Secret of its token.
func clusterProfile(t *testing.T, name string) {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.Load(kubeconfig(t))
	g.Expect(err).NotTo(HaveOccurred())
	at := config.Contexts[config.CurrentContext]
	profile := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"app": name}},
		"spec":     map[string]any{"clusterManager": map[string]any{"name": "test"}},
	}}
	create(t, c, profile)
	g.Expect(unstructured.SetNestedSlice(profile.Object, []any{map[string]any{"name": "secretreader", "cluster": map[string]any{
		"server": config.Clusters[at.Cluster].Server, "certificate-authority-data": base64.StdEncoding.EncodeToString(config.Clusters[at.Cluster].CertificateAuthorityData),
	}}}, "status", "accessProviders")).To(Succeed())
	g.Expect(c.Status().Update(t.Context(), profile)).To(Succeed())
	create(t, c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{pipelinesv1.ClusterProfileSecretLabel: "true"}},
		Data:       map[string][]byte{"token": []byte(config.AuthInfos[at.AuthInfo].Token)},
	})
}

// Applications of Argo CD in a Secret's cluster, in that of a ClusterProfile, and in one that is selected by labels, are promoted
// from the first to the last environment.
func TestAPipelineOverOtherClusters(t *testing.T) {
	g := NewWithT(t)
	clusterSecret(t, "others-secret")
	clusterProfile(t, "others-profile")
	places := []string{"others-0", "others-1", "others-2"} // One API server stands for three clusters: a namespace is one place.
	targets := []pipelinesv1.Target{target("Secret", "others-secret"), target("ClusterProfile", "others-profile"), {
		Clusters: &pipelinesv1.ClusterSelector{Kind: "ClusterProfile", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "others-profile"}}},
	}}
	deploy := func(i int, version string) {
		t.Helper()
		argoApplicationIn(t, remote, places[i], "others", version, version, "Healthy", "Synced", "Succeeded")
	}
	for i, place := range places {
		create(t, remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place}})
		targets[i].Namespace = place
		deploy(i, "1.0.0")
	}
	p := argoPipeline("others", targets...)
	create(t, c, p)
	runsEverywhere(t, p)
	expectReady(t, p)
	g.Expect(promotionsOf(t, p)).To(BeEmpty())

	deploy(0, "1.1.0")
	into := func(env string, phase capstanv1.PromotionPhase) {
		t.Helper()
		g.Eventually(func() []capstanv1.Promotion { return promotionsOf(t, p) }).WithTimeout(patience).Should(ContainElement(And(
			HaveField("Spec.Environment", env), HaveField("Spec.Revision", "1.1.0"), HaveField("Status.Phase", phase))))
	}
	for i, env := range []string{"env-1", "env-2"} {
		into(env, capstanv1.PhaseAwaitingRollout)
		g.Expect(promotionsOf(t, p)).To(HaveLen(i + 1))
		deploy(i+1, "1.1.0")
		into(env, capstanv1.PhaseSucceeded)
	}
	expectReady(t, p)
	for name, kind := range map[string]string{"secret.others-secret": "Secret", "clusterprofile.others-profile": "ClusterProfile"} {
		g.Eventually(func(g Gomega) { // It is written after the statuses of Pipelines.
			var connection capstanv1.ClusterConnection
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &connection)).To(Succeed())
			g.Expect(connection.Status.State).To(Equal(capstanv1.ConnectionReady), connection.Status.Message)
			g.Expect(connection.Spec.ClusterRef.Kind).To(Equal(kind))
		}).WithTimeout(patience).Should(Succeed())
	}
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
	g.Eventually(func() (capstanv1.ConnectionState, error) { // It is written after the statuses of Pipelines.
		var connection capstanv1.ClusterConnection
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "secret.bysecret"}, &connection)
		return connection.Status.State, err
	}).WithTimeout(patience).Should(Equal(capstanv1.ConnectionReady))

	elsewhere := target("Secret", "bysecret")
	elsewhere.ClusterRef.Namespace = "elsewhere"
	other := argoPipeline("bysecret-elsewhere", elsewhere, target("Cluster", "bysecret"))
	create(t, c, other)
	expectCondition(t, other, "Ready", metav1.ConditionFalse, "TargetClusterNotFound", "the administrator has not added namespace elsewhere to --cluster-secret-namespaces")
}
