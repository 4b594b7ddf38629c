package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// The tests of hub/explain cover the texts of every state; this test covers the reading of objects.
func TestExplainPipeline(t *testing.T) {
	g := NewWithT(t)
	plane, err := controlplane.Start(controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = plane.Stop() })
	explain := func(name string, user []byte) (int, string, string) {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		g.Expect(os.WriteFile(kubeconfig, user, 0o600)).To(Succeed())
		var out, errOut bytes.Buffer
		code := Main(t.Context(), []string{"explain", "pipeline", name, "--kubeconfig=" + kubeconfig}, &out, &errOut)
		return code, out.String(), errOut.String()
	}
	admin, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())

	code, _, errOut := explain("default/shop", admin)
	g.Expect(code).To(Equal(1))
	g.Expect(errOut).To(ContainSubstring("does not serve Pipelines: check that it is the management cluster and that config/crd is applied"))

	_, err = envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{Paths: controlplane.CRDs("capstan")})
	g.Expect(err).NotTo(HaveOccurred())
	c, err := client.New(plane.Config(), client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	ref := pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "dev"}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
			Environments: []pipelinesv1.Environment{
				{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "shop", ClusterRef: &ref}}},
				{Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "shop"}}},
			},
		},
	}
	g.Expect(c.Create(t.Context(), p)).To(Succeed())
	app := pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef}
	p.Status = pipelinesv1.PipelineStatus{ObservedGeneration: 1, Environments: map[string]*pipelinesv1.EnvironmentStatus{
		"dev":  {Targets: []pipelinesv1.TargetStatus{{ClusterAppRef: app, Revision: "1.1.0", Stale: true}}, Agreed: &pipelinesv1.AgreedRevision{Revision: "1.1.0", Sequence: 2}},
		"prod": {Targets: []pipelinesv1.TargetStatus{{ClusterAppRef: app, Revision: "1.0.0", Ready: true}}},
	}}
	g.Expect(c.Status().Update(t.Context(), p)).To(Succeed())
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop-prod-1", Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "shop", UID: p.UID}, App: p.Spec.AppRef, Environment: "prod", Number: 1, Revision: "1.1.0",
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 2}, Strategy: p.Spec.Promotion.Strategy,
		},
	}
	g.Expect(c.Create(t.Context(), promotion)).To(Succeed())
	promotion.Status.Phase = capstanv1.PhaseAwaitingRollout
	g.Expect(c.Status().Update(t.Context(), promotion)).To(Succeed())
	connection := &capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dev"}}
	connection.Spec.ClusterRef = ref
	connection.Spec.ClusterRef.Namespace = "default"
	g.Expect(c.Create(t.Context(), connection)).To(Succeed())
	connection.Status.State, connection.Status.Reason = capstanv1.ConnectionUnreachable, "ProbeFailed"
	g.Expect(c.Status().Update(t.Context(), connection)).To(Succeed())

	code, out, errOut := explain("default/shop", admin)
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(errOut).To(BeEmpty())
	g.Expect(out).To(And(
		HavePrefix("Pipeline default/shop (HelmRelease web)\n\nENVIRONMENT  RUNS           READY  IN FLIGHT\ndev          1.1.0 (stale)  0/1    -\n"),
		ContainSubstring("prod         1.0.0          1/1    1.1.0 AwaitingRollout\n"),
		ContainSubstring("has been Unreachable"), ContainSubstring("still runs 1.0.0")))

	code, out, errOut = explain("default/other", admin)
	g.Expect(code).To(Equal(1))
	g.Expect(out).To(BeEmpty())
	g.Expect(errOut).To(ContainSubstring("Pipeline default/other does not exist at https://"))

	nobody, err := plane.UserKubeconfig("", "nobody")
	g.Expect(err).NotTo(HaveOccurred())
	code, _, errOut = explain("default/shop", nobody)
	g.Expect(code).To(Equal(1))
	g.Expect(errOut).To(And(ContainSubstring("reading Pipeline default/shop"), ContainSubstring("forbidden")))
}
