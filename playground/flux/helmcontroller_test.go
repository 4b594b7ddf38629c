package flux_test

import (
	"context"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/playground/flux"
)

// ociRepository in the namespace and of the name of a release.
func ociRepository(key client.ObjectKey, tag string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"interval": "1h", "url": "oci://charts.playground.invalid/" + key.Name, "ref": map[string]any{"tag": tag},
	}}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"})
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	return obj
}

// patience with what really starts and installs, on a machine of two busy cores.
const patience = time.Minute

// during runs a part until the test is over.
func during(t *testing.T, start func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	t.Cleanup(func() {
		stop()
		NewWithT(t).Expect(<-ended).To(Succeed())
	})
}

// The real helm-controller installs what the source agent serves: what is read of its
// status is read of the real thing.
func TestHelmControllerInstallsWhatTheSourceAgentServes(t *testing.T) {
	g := NewWithT(t)
	c := newClient(t)
	key := client.ObjectKey{Namespace: "real-helm", Name: "podinfo"}
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})).To(Succeed())
	before := goleak.IgnoreCurrent() // The test's own connection is there.
	t.Cleanup(func() {
		g.Eventually(func() error { return goleak.Find(before) }).WithTimeout(patience).Should(Succeed())
	})
	charts, err := flux.NewCharts()
	g.Expect(err).NotTo(HaveOccurred())
	during(t, charts.Start)
	sources, err := flux.NewSourceAgent(flux.SourceAgentOptions{Config: plane.Config(), Charts: charts, Logger: logr.Discard()})
	g.Expect(err).NotTo(HaveOccurred())
	during(t, sources.Start)
	kubeconfig, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	helm, err := flux.StartHelmController(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(helm.Log())
		}
		g.Expect(helm.Stop()).To(Succeed())
	})

	source := ociRepository(key, "6.0.0")
	g.Expect(c.Create(t.Context(), source)).To(Succeed())
	release := &helmv2.HelmRelease{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: helmv2.HelmReleaseSpec{
			ChartRef: &helmv2.CrossNamespaceSourceReference{Kind: "OCIRepository", Name: key.Name},
			Install:  &helmv2.Install{DisableWait: true},
			Upgrade:  &helmv2.Upgrade{DisableWait: true},
		},
	}
	g.Expect(c.Create(t.Context(), release)).To(Succeed())
	deployed := func(version string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			release = &helmv2.HelmRelease{} // Decoding into an old one keeps what is gone.
			g.Expect(c.Get(t.Context(), key, release)).To(Succeed())
			g.Expect(apimeta.IsStatusConditionTrue(release.Status.Conditions, "Ready")).To(BeTrue())
			g.Expect(release.Status.History).NotTo(BeEmpty())
			latest := release.Status.History.Latest()
			g.Expect(latest.Status).To(Equal("deployed"))
			g.Expect(latest.ChartVersion).To(MatchRegexp(`^` + version + `\+[0-9a-f]{12}$`))
			installed := &corev1.ConfigMap{}
			g.Expect(c.Get(t.Context(), key, installed)).To(Succeed())
			g.Expect(installed.Data).To(HaveKeyWithValue("version", version))
		}).WithTimeout(patience).Should(Succeed())
	}
	deployed("6.0.0")

	// A tag that no chart can have leaves what runs.
	askFor := func(tag string) {
		t.Helper()
		change := client.MergeFrom(source.DeepCopy())
		g.Expect(unstructured.SetNestedField(source.Object, tag, "spec", "ref", "tag")).To(Succeed())
		g.Expect(c.Patch(t.Context(), source, change)).To(Succeed())
	}
	g.Expect(c.Get(t.Context(), key, source)).To(Succeed())
	artifact, _, _ := unstructured.NestedMap(source.Object, "status", "artifact")
	g.Expect(artifact).To(HaveKeyWithValue("revision", MatchRegexp(`^6\.0\.0@sha256:[0-9a-f]{64}$`)))
	askFor("latest, please")
	g.Eventually(func(g Gomega) {
		g.Expect(c.Get(t.Context(), key, source)).To(Succeed())
		status := source.Object["status"]
		g.Expect(status).To(HaveKeyWithValue("artifact", Equal(artifact)))
		g.Expect(status).To(HaveKeyWithValue("conditions", ConsistOf(HaveKeyWithValue("message", ContainSubstring("must be an exact one")))))
	}).WithTimeout(patience).Should(Succeed())
	g.Expect(c.Get(t.Context(), key, release)).To(Succeed())
	g.Expect(release.Status.History.Latest().ChartVersion).To(HavePrefix("6.0.0+"))

	g.Expect(c.Get(t.Context(), key, source)).To(Succeed())
	askFor("6.0.1")
	deployed("6.0.1")
}
