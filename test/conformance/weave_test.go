package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// line is a Pipeline of dev and staging in the management cluster and prod in the workload
// cluster, with promotions by notification. All run a revision.
func line(t *testing.T, name, revision string, edit func(*pipelinesv1.Pipeline)) *pipelinesv1.Pipeline {
	t.Helper()
	release(t, c, name, revision, "", true)
	releaseIn(t, c, "elsewhere", name, revision)
	release(t, remote, name, revision, "", true)
	capiCluster(t, name, kubeconfig(t))
	staging := target("", "")
	staging.Namespace = "elsewhere"
	p := newPipeline(name, name, target("", ""), staging, target("Cluster", name))
	p.Spec.Promotion = &pipelinesv1.Promotion{Strategy: notification}
	if edit != nil {
		edit(p)
	}
	create(t, c, p)
	return p
}

// releaseIn is release in another namespace than shop.
func releaseIn(t *testing.T, to client.Client, in, name, version string) {
	t.Helper()
	g := NewWithT(t)
	r := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}
	if err := to.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
		r.Spec.ChartRef = &helmv2.CrossNamespaceSourceReference{Kind: "OCIRepository", Name: name}
		r.Spec.Interval = metav1.Duration{Duration: time.Minute}
		create(t, to, r)
	}
	r.Status.ObservedGeneration = r.Generation
	r.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "UpgradeSucceeded", Message: "Helm upgrade", LastTransitionTime: metav1.Now(), ObservedGeneration: r.Generation}}
	r.Status.History = helmv2.Snapshots{{
		Name: name, Namespace: in, Version: 1, Status: "deployed", ChartName: name, ChartVersion: version,
		Digest: "sha256:1", ConfigDigest: "sha256:2", FirstDeployed: metav1.Now(), LastDeployed: metav1.Now(),
	}}
	g.Expect(to.Status().Update(t.Context(), r)).To(Succeed())
}

// eventsAbout returns the Events about an object, as "Type Reason Message".
func eventsAbout(t *testing.T, kind, name string) []string {
	t.Helper()
	var list corev1.EventList
	NewWithT(t).Expect(c.List(t.Context(), &list, client.InNamespace(namespace))).To(Succeed())
	var all []string
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
			all = append(all, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Message))
		}
	}
	return all
}

// C7, C8, C27: each revision of the first environment reaches the others in their order, with
// weave's Event.
func TestPromotesThroughAllEnvironments(t *testing.T) {
	g := NewWithT(t)
	p := line(t, "c7", "1.0.0", nil)
	expectReady(t, p)
	for _, revision := range []string{"1.0.1", "1.0.2"} {
		release(t, c, "c7", revision, "", true)
		into := func(env string) {
			g.Eventually(func() []string { return eventsAbout(t, "Pipeline", "c7") }).WithTimeout(patience).
				Should(ContainElement("Normal Promote Promote pipeline team/c7 to " + env + " with version " + revision))
		}
		into("env-1")
		g.Expect(eventsAbout(t, "Pipeline", "c7")).NotTo(ContainElement(ContainSubstring("to env-2 with version "+revision)), "staging first")
		releaseIn(t, c, "elsewhere", "c7", revision)
		into("env-2")
		release(t, remote, "c7", revision, "", true)
		g.Eventually(func(g Gomega) {
			g.Expect(promotionsOf(t, p)).NotTo(ContainElement(HaveField("Status.Phase", Not(Equal(capstanv1.PhaseSucceeded)))))
		}).WithTimeout(patience).Should(Succeed())
	}
	g.Expect(promotionsOf(t, p)).To(HaveLen(4))
}

// C9: the first environment has targets of different revisions, then one that is not ready:
// PromotionPending names it, until all are equal and ready. Nothing is promoted meanwhile.
func TestPromotionPending(t *testing.T) {
	g := NewWithT(t)
	p := line(t, "c9", "1.0.0", func(p *pipelinesv1.Pipeline) {
		p.Spec.Environments[0].Targets = append(p.Spec.Environments[0].Targets, p.Spec.Environments[1].Targets...)
		p.Spec.Environments = []pipelinesv1.Environment{p.Spec.Environments[0], p.Spec.Environments[2]}
	})
	expectReady(t, p)
	release(t, c, "c9", "1.0.1", "", true)
	expectCondition(t, p, "PromotionPending", metav1.ConditionTrue, "EnvironmentNotReady", "run different revisions: shop/c9 in the management cluster has 1.0.1; elsewhere/c9 in the management cluster has 1.0.0")
	release(t, c, "c9", "1.0.1", "", false)
	releaseIn(t, c, "elsewhere", "c9", "1.0.1")
	expectCondition(t, p, "PromotionPending", metav1.ConditionTrue, "EnvironmentNotReady", `Environment "env-0" is not ready: shop/c9 in the management cluster: UpgradeSucceeded: Helm upgrade`)
	g.Expect(promotionsOf(t, p)).To(BeEmpty())
	release(t, c, "c9", "1.0.1", "", true)
	g.Eventually(func() []capstanv1.Promotion { return promotionsOf(t, p) }).WithTimeout(patience).Should(ConsistOf(HaveField("Spec.Revision", "1.0.1")))
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
	g.Expect(p.Status.Conditions).NotTo(ContainElement(HaveField("Type", "PromotionPending")))
}

// C4 and the differences of the migration guide: an application that does not exist makes the
// Pipeline not ready, with weave's Event; one that is Ready without a revision has an error and
// does not.
func TestAbsentApplicationAndOneWithoutRevision(t *testing.T) {
	g := NewWithT(t)
	p := newPipeline("absent", "absent", target("", ""))
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetNotReadable", "HelmRelease shop/absent not found")
	g.Eventually(func() []string { return eventsAbout(t, "Pipeline", "absent") }).WithTimeout(patience).
		Should(ConsistOf(HavePrefix("Warning GetAppError HelmRelease shop/absent not found")))
	r := release(t, c, "absent", "1.0.0", "", true)
	expectReady(t, p)
	r.Status.History = nil
	g.Expect(c.Status().Update(t.Context(), r)).To(Succeed())
	expectTarget(t, p, "env-0", func(g Gomega, s pipelinesv1.TargetStatus) {
		g.Expect(s.Error).To(ContainSubstring("status.history is empty"))
		g.Expect(s.Reason).To(Equal("NoRevision"))
		g.Expect(s.Ready).To(BeFalse())
	})
	expectReady(t, p)
	g.Eventually(func() []string { return eventsAbout(t, "Pipeline", "absent") }).WithTimeout(patience).
		Should(ContainElement("Normal Updated All clusters checked"))
}

// The credentials of a cluster do not work: the target names the cause, and the Event has
// weave's reason for clusters.
func TestCredentialsThatDoNotWork(t *testing.T) {
	g := NewWithT(t)
	capiCluster(t, "refused", []byte("nonsense"))
	p := newPipeline("refused", "refused", target("Cluster", "refused"))
	create(t, c, p)
	expectCondition(t, p, "Ready", metav1.ConditionFalse, "TargetNotReadable", "kubeconfig")
	g.Expect(p.Status.Environments["env-0"].Targets[0].Reason).To(Equal("AuthFailed"))
	g.Eventually(func() []string { return eventsAbout(t, "Pipeline", "refused") }).WithTimeout(patience).
		Should(ConsistOf(HavePrefix("Warning GetClusterError ")))
}

// Two Pipelines promote into one application: both name the other, and neither does when one
// of them is deleted.
func TestTwoPipelinesOnOneApplication(t *testing.T) {
	g := NewWithT(t)
	first := line(t, "shared", "1.0.0", nil)
	second := newPipeline("shared-too", "shared", target("", ""), target("Cluster", "shared"))
	second.Spec.Promotion = &pipelinesv1.Promotion{Strategy: notification}
	create(t, c, second)
	expectCondition(t, first, "AppShared", metav1.ConditionTrue, "PromotedByOtherPipeline", "Pipeline team/shared-too also promotes into HelmRelease shop/shared in Cluster/team/shared")
	expectCondition(t, second, "AppShared", metav1.ConditionTrue, "PromotedByOtherPipeline", "Pipeline team/shared also promotes into")
	g.Expect(c.Delete(t.Context(), second)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(first), first)).To(Succeed())
		g.Expect(first.Status.Conditions).NotTo(ContainElement(HaveField("Type", "AppShared")))
	}).WithTimeout(patience).Should(Succeed())
}

// A message that is longer than the API server accepts in an Event reaches the Event, cut.
func TestLongMessagesReachEvents(t *testing.T) {
	p := newPipeline("long", "long", target("", ""), target("", ""), target("", ""), target("", ""))
	for i := range p.Spec.Environments {
		p.Spec.Environments[i].Name = strings.Repeat("Länge ", 80) + fmt.Sprint(i)
		p.Spec.Environments[i].Targets = []pipelinesv1.Target{}
	}
	create(t, c, p)
	expectCondition(t, p, "Stalled", metav1.ConditionTrue, "InvalidSpec", "and 1 more")
	NewWithT(t).Eventually(func() []string { return eventsAbout(t, "Pipeline", "long") }).WithTimeout(patience).
		Should(ContainElement(And(HavePrefix("Warning InvalidSpec environment"), HaveSuffix("…"))))
}

// kubectl shows weave's columns, and between READY and STATUS what is stalled, suspended and
// in flight.
func TestColumns(t *testing.T) {
	g := NewWithT(t)
	p := line(t, "columns", "1.0.0", func(p *pipelinesv1.Pipeline) { p.Spec.Promotion.Manual = true })
	expectReady(t, p)
	release(t, c, "columns", "1.1.0", "", true)
	g.Eventually(func() string { return waitingApproval(t, p, "env-1") }).WithTimeout(patience).Should(Equal("1.1.0"))
	raw, err := management.Kubeconfig("")
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(os.WriteFile(path, raw, 0o600)).To(Succeed())
	get := func() []string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(controlplane.Root(), "bin", "envtest", "kubectl"), "--kubeconfig", path, "-n", namespace, "get", "pipelines", "columns").CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		return strings.Split(string(out), "\n")
	}
	g.Expect(strings.Fields(get()[0])).To(Equal(strings.Fields("NAME APP KIND APP NAME AGE READY STALLED SUSPENDED IN FLIGHT STATUS")))
	g.Expect(get()[1]).To(MatchRegexp(`^columns +HelmRelease +columns +\S+ +True +env-1 1\.1\.0 AwaitingApproval +All clusters checked$`))
	g.Expect(c.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":true}}`)))).To(Succeed())
	g.Eventually(func() string { return get()[1] }).WithTimeout(patience).Should(MatchRegexp(`True +true +env-1 1\.1\.0 AwaitingApproval +All clusters checked; suspended: nothing is promoted until spec\.suspend is false$`))
}
