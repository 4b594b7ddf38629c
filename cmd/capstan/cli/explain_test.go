package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// readFrom is a control plane, from which a command reads.
type readFrom struct {
	*controlplane.ControlPlane
	admin []byte
	c     client.Client
}

// command runs a command as a user.
func command(t *testing.T, user []byte, args ...string) (code int, out, errOut string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	NewWithT(t).Expect(os.WriteFile(kubeconfig, user, 0o600)).To(Succeed())
	var stdout, stderr bytes.Buffer
	code = Main(t.Context(), append(args, "--kubeconfig="+kubeconfig), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// The tests of hub/explain cover the texts of every state; this test covers the reading of
// objects, first without the CRDs.
func TestStatusAndExplain(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	bare := controlplane.Share()
	plane := bare.Get(t)
	t.Cleanup(func() { _ = plane.Stop() })
	admin, err := plane.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())

	for _, args := range [][]string{{"status"}, {"explain", "pipeline", "default/shop"}} {
		code, _, errOut := command(t, admin, args...)
		g.Expect(code).To(Equal(1))
		g.Expect(errOut).To(ContainSubstring("Capstan is not installed in the cluster at https://"))
	}
	code, _, errOut := command(t, admin, "explain", "machinedeployment", "default/web")
	g.Expect(code).To(Equal(1))
	g.Expect(errOut).To(ContainSubstring("does not serve kind MachineDeployment.cluster.x-k8s.io: check that it is the management cluster"))

	bare.Install(t, "cluster-api", "cluster-api-provider-aws")
	c, err := client.New(plane.Config(), client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	from := &readFrom{plane, admin, c}
	t.Run("member", from.explainMember)
	bare.Install(t, "capstan")

	code, out, errOut := command(t, admin, "status")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(out).To(Equal("No clusters · no promotion needs you\n\nClusters: none is used by a Pipeline\n\nPipelines: 0 (0 waiting)\n"))

	t.Run("pipeline", from.explainPipeline)
	t.Run("status", from.status)
	t.Run("machinedeployment", from.explainNodeGroup)
	t.Run("awsmachine", from.explainInstance)
}

func (from *readFrom) explainPipeline(t *testing.T) {
	g := NewWithT(t)
	c := from.c
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "explained"}})).To(Succeed())
	explain := func(name string, user []byte) (int, string, string) {
		return command(t, user, "explain", "pipeline", name)
	}
	ref := pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "dev"}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "explained", Name: "shop"},
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
		ObjectMeta: metav1.ObjectMeta{Namespace: "explained", Name: "shop-prod-1", Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID), capstanv1.PipelineLabel: p.Name}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "shop", UID: p.UID}, App: p.Spec.AppRef, Environment: "prod", Number: 1, Revision: "1.1.0",
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 2}, Strategy: p.Spec.Promotion.Strategy,
		},
	}
	g.Expect(c.Create(t.Context(), promotion)).To(Succeed())
	promotion.Status.Phase = capstanv1.PhaseAwaitingRollout
	g.Expect(c.Status().Update(t.Context(), promotion)).To(Succeed())
	connection := &capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "explained", Name: "dev"}}
	connection.Spec.ClusterRef = ref
	connection.Spec.ClusterRef.Namespace = "explained"
	g.Expect(c.Create(t.Context(), connection)).To(Succeed())
	connection.Status.State, connection.Status.Reason = capstanv1.ConnectionUnreachable, "ProbeFailed"
	g.Expect(c.Status().Update(t.Context(), connection)).To(Succeed())

	code, out, errOut := explain("explained/shop", from.admin)
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(errOut).To(BeEmpty())
	g.Expect(out).To(And(
		HavePrefix("Pipeline explained/shop (HelmRelease web)\n\nENVIRONMENT  RUNS                 READY  IN FLIGHT\ndev          1.1.0 (Unreachable)  0/1    -\n"),
		ContainSubstring("prod         1.0.0                1/1    1.1.0 AwaitingRollout\n"),
		ContainSubstring("has been Unreachable"), ContainSubstring("still runs 1.0.0")))

	code, byName, errOut := command(t, from.admin, "explain", "pipeline", "shop", "-n", "explained")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(byName).To(HavePrefix("Pipeline explained/shop (HelmRelease web)\n"))

	code, out, errOut = explain("explained/other", from.admin)
	g.Expect(code).To(Equal(1))
	g.Expect(out).To(BeEmpty())
	g.Expect(errOut).To(ContainSubstring("Pipeline explained/other does not exist at https://"))

	unauthorized, err := from.UserKubeconfig("", "unauthorized")
	g.Expect(err).NotTo(HaveOccurred())
	code, _, errOut = explain("explained/shop", unauthorized)
	g.Expect(code).To(Equal(1))
	g.Expect(errOut).To(And(ContainSubstring("reading Pipeline explained/shop"), ContainSubstring("forbidden")))
}
