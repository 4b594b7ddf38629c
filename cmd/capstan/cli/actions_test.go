package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// acting is a control plane with the roles and policies of config, and a Pipeline.
type acting struct {
	*WithT
	t     *testing.T
	plane *controlplane.ControlPlane
	c     client.Client
	p     *pipelinesv1.Pipeline
}

// variable are the parts of an output that differ between runs.
var variable = regexp.MustCompile(`request-[0-9a-f]{16}|"?(?:uid|resourceVersion|creationTimestamp)"?: [^\n]*\n|https://[0-9.:]+`)

// golden compares an output to a file of testdata, or writes it with -update.
func golden(g *WithT, name, text string) {
	text = variable.ReplaceAllStringFunc(text, func(found string) string {
		switch {
		case strings.HasPrefix(found, "request-"):
			return "request-DIGEST"
		case strings.HasPrefix(found, "https://"):
			return "https://SERVER"
		}
		key, _, _ := strings.Cut(found, ":")
		return key + ": X\n"
	})
	file := filepath.Join("testdata", name+".txt")
	if *update {
		g.Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(string(want)), "%s: run the test with -update, and read the difference", name)
}

// user returns the kubeconfig of a user who has ClusterRoles of config in the namespace, and nothing else.
func (a *acting) user(name string, may authorizationv1.ResourceAttributes, roles ...string) []byte {
	a.t.Helper()
	for _, role := range roles {
		a.Expect(a.c.Create(a.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: name + "-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})).To(Succeed())
	}
	may.Namespace = "default"
	a.Eventually(func(g Gomega) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &may}}
		g.Expect(a.c.Create(a.t.Context(), review)).To(Succeed())
		g.Expect(review.Status.Allowed).To(BeTrue())
	}).WithTimeout(30 * time.Second).Should(Succeed())
	kubeconfig, err := a.plane.UserKubeconfig("", name)
	a.Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}

// promotion creates a promotion into an environment.
func (a *acting) promotion(environment, revision string, n int64, status capstanv1.PromotionStatus) *capstanv1.Promotion {
	a.t.Helper()
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop-" + environment + "-" + string(rune('0'+n)), Labels: map[string]string{capstanv1.PipelineUIDLabel: string(a.p.UID), capstanv1.PipelineLabel: a.p.Name}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "shop", UID: a.p.UID}, App: a.p.Spec.AppRef, Environment: environment, Number: n, Revision: revision, Manual: true,
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: n}, Strategy: a.p.Spec.Promotion.Strategy,
		},
	}
	a.Expect(a.c.Create(a.t.Context(), p)).To(Succeed())
	p.Status = status
	a.Expect(a.c.Status().Update(a.t.Context(), p)).To(Succeed())
	return p
}

// run runs a command as a user and compares the exit code, and the output with that of a file.
func (a *acting) run(user []byte, code int, name string, args ...string) {
	a.t.Helper()
	got, out, errOut := command(a.t, user, args...)
	a.Expect(got).To(Equal(code), "%v: %s%s", args, out, errOut)
	golden(a.WithT, name, "$ capstan "+strings.Join(args, " ")+"\n"+out+errOut)
}

// Each action is done by a user with only the ClusterRole that docs/cli.md names, and is refused to users without it.
func TestActions(t *testing.T) {
	t.Parallel()
	a := &acting{WithT: NewWithT(t), t: t}
	var err error
	shared := controlplane.Share("capstan")
	a.plane = shared.Get(t)
	t.Cleanup(func() { _ = a.plane.Stop() })
	admin, err := a.plane.Kubeconfig("")
	a.Expect(err).NotTo(HaveOccurred())
	a.c, err = client.New(a.plane.Config(), client.Options{Scheme: hub.Scheme()})
	a.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(t.TempDir(), "admin")
	a.Expect(os.WriteFile(file, admin, 0o600)).To(Succeed())
	args := []string{"--kubeconfig=" + file, "apply"}
	for _, name := range []string{"rbac/approver_role", "rbac/operator_role", "rbac/promoter_role", "rbac/tenant_role", "rbac/viewer_role",
		"admission/approval_policy", "admission/rejection_policy", "admission/promotion_policy", "admission/request_policy"} {
		args = append(args, "-f", filepath.Join(controlplane.Root(), "config", name+".yaml"))
	}
	said, err := exec.CommandContext(t.Context(), filepath.Join(controlplane.Root(), "bin", "envtest", "kubectl"), args...).CombinedOutput()
	a.Expect(err).NotTo(HaveOccurred(), string(said))
	a.pipeline()

	const group, pipelines = "capstan.dev", "pipelines.weave.works"
	approver := a.user("ada", authorizationv1.ResourceAttributes{Group: group, Resource: "promotions", Verb: "approve"}, "capstan-approver")
	operator := a.user("oscar", authorizationv1.ResourceAttributes{Group: group, Resource: "promotions", Verb: "patch"}, "capstan-operator")
	tenant := a.user("tom", authorizationv1.ResourceAttributes{Group: pipelines, Resource: "pipelines", Verb: "patch"}, "capstan-tenant")
	promoter := a.user("rita", authorizationv1.ResourceAttributes{Group: group, Resource: "promotionrequests", Verb: "create"}, "capstan-promoter", "capstan-viewer")
	viewer := a.user("vera", authorizationv1.ResourceAttributes{Group: pipelines, Resource: "pipelines", Verb: "list"}, "capstan-viewer")
	stranger, err := a.plane.UserKubeconfig("", "eve")
	a.Expect(err).NotTo(HaveOccurred())

	a.approvals(approver, operator, viewer, stranger)
	a.status(viewer)
	a.retries(operator, viewer)
	a.suspension(tenant, viewer)
	a.requests(promoter, viewer)
	a.completion(approver, promoter, stranger)
	a.secondRun(approver)
}

// The approval of a retry has nothing of the approval before: not its comment, and not that it came by HTTP.
func (a *acting) secondRun(approver []byte) {
	a.t.Helper()
	p := a.promotion("staging", "1.3.0", 9, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	p.Spec.Approval = &capstanv1.Approval{By: "secret:default/key", Method: capstanv1.ApprovalByHTTP, Comment: "from CI"}
	a.Expect(a.c.Update(a.t.Context(), p)).To(Succeed())
	p.Spec.Retry = 1
	p.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed}
	a.Expect(a.c.Status().Update(a.t.Context(), p)).To(Succeed())
	p.Spec.Retry = 1
	a.Expect(a.c.Update(a.t.Context(), p)).To(Succeed())
	p.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: 1}
	a.Expect(a.c.Status().Update(a.t.Context(), p)).To(Succeed())
	code, out, errOut := command(a.t, approver, "approve", "shop", "staging")
	a.Expect(code).To(BeZero(), out+errOut)
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
	a.Expect(p.Spec.Approval).To(Equal(&capstanv1.Approval{By: "ada", Retry: 1}))
}

// pipeline creates shop, whose environments run 1.1.0 in dev and 1.0.0 elsewhere.
func (a *acting) pipeline() {
	a.t.Helper()
	a.p = &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Promotion: &pipelinesv1.Promotion{Manual: true, Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		},
	}
	status := pipelinesv1.PipelineStatus{ObservedGeneration: 1, Environments: map[string]*pipelinesv1.EnvironmentStatus{}}
	for _, name := range []string{"dev", "staging", "prod"} {
		a.p.Spec.Environments = append(a.p.Spec.Environments, pipelinesv1.Environment{Name: name, Targets: []pipelinesv1.Target{{Namespace: "shop-" + name}}})
		revision := "1.0.0"
		if name == "dev" {
			revision = "1.1.0"
		}
		app := pipelinesv1.ClusterAppReference{LocalAppReference: a.p.Spec.AppRef}
		status.Environments[name] = &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{{ClusterAppRef: app, Revision: revision, Ready: true}}, Agreed: &pipelinesv1.AgreedRevision{Revision: revision, Sequence: 1}}
	}
	a.Expect(a.c.Create(a.t.Context(), a.p)).To(Succeed())
	a.p.Status = status
	a.Expect(a.c.Status().Update(a.t.Context(), a.p)).To(Succeed())
}

func (a *acting) approvals(approver, operator, viewer, stranger []byte) {
	a.t.Helper()
	a.run(approver, 1, "approve-nothing", "approve", "shop")
	staging := a.promotion("staging", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	a.run(approver, 1, "approve-wrong-environment", "approve", "shop", "qa")
	a.run(approver, 1, "approve-another-revision", "approve", "default/shop", "staging", "--revision=1.2.0")
	a.run(viewer, 1, "approve-without-the-right-to-patch", "approve", "shop", "staging")
	a.run(operator, 1, "approve-without-the-verb", "approve", "shop", "staging")
	a.run(stranger, 1, "approve-without-rights", "approve", "shop", "staging")
	a.run(approver, 0, "approve-dry-run", "approve", "shop", "--dry-run=server")
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(staging), staging)).To(Succeed())
	a.Expect(staging.Spec.Approval).To(BeNil())
	a.run(approver, 0, "approve", "approve", "shop", "--comment=release board")
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(staging), staging)).To(Succeed())
	a.Expect(staging.Spec.Approval).To(Equal(&capstanv1.Approval{By: "ada", Comment: "release board"}))
	a.run(approver, 1, "approve-again", "approve", "shop", "staging")

	prod := a.promotion("prod", "1.1.0", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates})
	a.run(approver, 0, "reject", "reject", "shop", "prod", "-n", "default", "--comment=breaks the invoices", "-o", "name")
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(prod), prod)).To(Succeed())
	a.Expect(prod.Spec.Rejection).To(Equal(&capstanv1.Rejection{By: "ada", Comment: "breaks the invoices"}))
	a.run(approver, 1, "reject-again", "reject", "shop", "prod", "--comment=x")
}

// The tables and the JSON of the status, and the exit codes of its conditions.
func (a *acting) status(viewer []byte) {
	a.t.Helper()
	prod := &capstanv1.Promotion{}
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "shop-prod-1"}, prod)).To(Succeed())
	prod.Status.Phase, prod.Status.Reason, prod.Status.Message = capstanv1.PhaseFailed, "BadCredentials", "the Git server refused the token"
	a.Expect(a.c.Status().Update(a.t.Context(), prod)).To(Succeed())
	a.run(viewer, 0, "status-wide", "status", "-n", "default", "-o", "wide")
	a.run(viewer, 0, "status-yaml", "status", "default/shop", "-o", "yaml")
	a.run(viewer, 0, "status-json", "status", "default/shop", "-o", "json")
	a.run(viewer, 2, "status-fail-on", "status", "shop", "-n", "default", "-o", "wide", "--fail-on=failed,stalled,approval")
	a.run(viewer, 0, "status-not-met", "status", "shop", "-o", "wide", "--fail-on=stalled,unreachable")
	a.run(viewer, 1, "status-not-judged", "status", "-n", "default", "-o", "wide", "--fail-on=backend")
	a.run(viewer, 1, "status-no-pipeline", "status", "default/billing")
	a.run(viewer, 1, "status-of-all-without-rights", "status")
	staging := &capstanv1.Promotion{}
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "shop-staging-1"}, staging)).To(Succeed())
	a.watch(viewer, staging)
}

// watch runs status --watch until a row changes, and until one changes while the API server does not answer.
func (a *acting) watch(viewer []byte, p *capstanv1.Promotion) {
	a.t.Helper()
	proxy, err := controlplane.NewProxy(a.plane.Config().Host)
	a.Expect(err).NotTo(HaveOccurred())
	a.t.Cleanup(func() { _ = proxy.Close() })
	a.Expect(string(viewer)).To(ContainSubstring(a.plane.Config().Host))
	kubeconfig := filepath.Join(a.t.TempDir(), "kubeconfig")
	a.Expect(os.WriteFile(kubeconfig, bytes.ReplaceAll(viewer, []byte(a.plane.Config().Host), []byte(proxy.URL())), 0o600)).To(Succeed())
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	reader, writer, err := os.Pipe()
	a.Expect(err).NotTo(HaveOccurred())
	defer reader.Close()
	ended := make(chan int, 1)
	go func() {
		defer writer.Close()
		ended <- Main(ctx, []string{"status", "shop", "-n", "default", "--watch", "--kubeconfig=" + kubeconfig}, writer, writer)
	}()
	var text strings.Builder
	until := func(want string) {
		buffer := make([]byte, 4096)
		for !strings.Contains(text.String(), want) {
			n, err := reader.Read(buffer)
			a.Expect(err).NotTo(HaveOccurred(), text.String())
			text.Write(buffer[:n])
		}
	}
	until("shop      prod")
	a.Expect(text.String()).To(And(HavePrefix("NAMESPACE  PIPELINE  ENVIRONMENT"), ContainSubstring("dev"), ContainSubstring("staging")))
	text.Reset()
	p.Status.Phase = capstanv1.PhaseAwaitingMerge
	a.Expect(a.c.Status().Update(a.t.Context(), p)).To(Succeed())
	until("AwaitingMerge")
	a.Expect(text.String()).NotTo(ContainSubstring("prod"), "only the row that changed")
	text.Reset()
	proxy.Set(controlplane.Refuse)
	until("; trying again")
	p.Status.Phase = capstanv1.PhaseAwaitingRollout
	a.Expect(a.c.Status().Update(a.t.Context(), p)).To(Succeed())
	proxy.Set(controlplane.Pass)
	until("AwaitingRollout")
	a.Expect(strings.Count(text.String(), "unreachable")).To(Equal(1), "once for each outage")
	p.Status.Phase = capstanv1.PhaseAwaitingMerge
	a.Expect(a.c.Status().Update(a.t.Context(), p)).To(Succeed())
	until("AwaitingMerge")
	cancel()
	a.Eventually(ended).WithTimeout(30 * time.Second).Should(Receive(BeZero()))
}

func (a *acting) retries(operator, viewer []byte) {
	a.t.Helper()
	a.run(operator, 1, "retry-in-progress", "retry", "shop", "staging")
	a.run(viewer, 1, "retry-without-rights", "retry", "shop", "prod")
	a.run(operator, 0, "retry", "retry", "shop")
	p := &capstanv1.Promotion{}
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKey{Namespace: "default", Name: "shop-prod-1"}, p)).To(Succeed())
	a.Expect(p.Spec.Retry).To(Equal(int64(1)))
	a.promotion("prod", "1.1.0", 2, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: ptr.To(metav1.Now())})
	a.run(operator, 1, "retry-succeeded", "retry", "shop", "prod")
}

func (a *acting) suspension(tenant, viewer []byte) {
	a.t.Helper()
	a.run(viewer, 1, "suspend-without-rights", "suspend", "shop")
	a.run(tenant, 1, "suspend-nothing", "suspend", "default/billing")
	a.run(tenant, 0, "suspend", "suspend", "default/shop")
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(a.p), a.p)).To(Succeed())
	a.Expect(a.p.Spec.Suspend).To(BeTrue())
	a.run(tenant, 0, "suspend-again", "suspend", "shop")
	a.run(tenant, 0, "suspend-again-name", "suspend", "shop", "-o", "name")
	a.run(viewer, 1, "promote-suspended", "promote", "shop", "prod", "--revision=1.0.0", "--reason=hotfix")
	a.run(tenant, 0, "resume", "resume", "shop", "-o", "yaml")
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(a.p), a.p)).To(Succeed())
	a.Expect(a.p.Spec.Suspend).To(BeFalse())
}

func (a *acting) requests(promoter, viewer []byte) {
	a.t.Helper()
	a.run(viewer, 1, "promote-without-rights", "promote", "shop", "prod", "--revision=1.0.0", "--reason=hotfix")
	a.run(promoter, 1, "promote-unknown-revision", "promote", "shop", "prod", "--revision=7.0.0", "--reason=hotfix")
	a.run(promoter, 1, "promote-into-the-first", "promote", "shop", "dev", "--revision=1.0.0", "--reason=hotfix")
	a.run(promoter, 1, "promote-into-nowhere", "promote", "shop", "qa", "--revision=1.0.0", "--reason=hotfix")
	a.run(promoter, 1, "rollback-nothing", "rollback", "shop", "staging", "--reason=errors")
	a.run(promoter, 0, "promote", "promote", "shop", "prod", "--revision=1.1.0", "--reason=hotfix for 4711")
	var all capstanv1.PromotionRequestList
	a.Expect(a.c.List(a.t.Context(), &all)).To(Succeed())
	a.Expect(all.Items).To(ConsistOf(HaveField("Spec", capstanv1.PromotionRequestSpec{Pipeline: "shop", Environment: "prod", Revision: "1.1.0", By: "rita", Reason: "hotfix for 4711"})))
	a.run(promoter, 1, "promote-again", "promote", "shop", "prod", "--revision=1.0.0", "--reason=another")

	request := &all.Items[0]
	request.Status.Phase = capstanv1.RequestRefused
	a.Expect(a.c.Status().Update(a.t.Context(), request)).To(Succeed())
	a.Expect(a.c.Get(a.t.Context(), client.ObjectKeyFromObject(a.p), a.p)).To(Succeed())
	a.p.Status.Environments["prod"].Targets[0].Revision, a.p.Status.Environments["prod"].Agreed.Revision = "1.2.0", "1.2.0"
	a.Expect(a.c.Status().Update(a.t.Context(), a.p)).To(Succeed())
	a.run(promoter, 0, "rollback", "rollback", "shop", "prod", "--reason=errors since 1.2.0")
	a.Expect(a.c.List(a.t.Context(), &all)).To(Succeed())
	a.Expect(all.Items).To(ContainElement(HaveField("Spec.Rollback", Not(BeNil()))))
}

// Names are completed as far as the user may read them, also for a kubectl plugin.
func (a *acting) completion(approver, promoter, stranger []byte) {
	a.t.Helper()
	complete := func(user []byte, args ...string) string {
		kubeconfig := filepath.Join(a.t.TempDir(), "kubeconfig")
		a.Expect(os.WriteFile(kubeconfig, user, 0o600)).To(Succeed())
		var out, errOut strings.Builder
		argv := append([]string{"/usr/local/bin/" + completionName, args[0], "--kubeconfig=" + kubeconfig}, args[1:]...)
		a.Expect(Program(a.t.Context(), argv, &out, &errOut)).To(BeZero(), errOut.String())
		lines := strings.Split(out.String(), "\n:")
		return strings.TrimPrefix(lines[0], ":4\n")
	}
	a.Expect(complete(promoter, "promote", "")).To(Equal("shop"))
	a.Expect(complete(approver, "approve", "")).To(Equal("shop"), "by Promotions: the approver may not read Pipelines")
	a.Expect(complete(promoter, "promote", "default/s")).To(Equal("default/shop"))
	a.Expect(complete(promoter, "promote", "shop", "")).To(Equal("prod\nstaging"), "nothing is promoted into the first")
	a.Expect(complete(promoter, "status", "sh")).To(Equal("shop"))
	a.Expect(complete(stranger, "status", "")).NotTo(ContainSubstring("shop"))
	wide := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide"}, Spec: *a.p.Spec.DeepCopy()}
	wide.Spec.Environments[2].Waves = []pipelinesv1.Wave{{Name: "canary", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "0"}}}, {Name: "rest"}}
	status := a.p.Status.DeepCopy()
	status.Environments["prod/canary"], status.Environments["prod/rest"] = status.Environments["prod"], status.Environments["prod"]
	a.Expect(a.c.Create(a.t.Context(), wide)).To(Succeed())
	wide.Status = *status
	a.Expect(a.c.Status().Update(a.t.Context(), wide)).To(Succeed())
	a.Expect(complete(promoter, "promote", "wide", "")).To(Equal("prod/canary\nprod/rest\nstaging"), "the waves in place of their environment")
	var out, errOut strings.Builder
	a.Expect(Program(a.t.Context(), []string{pluginName, "approve", "--help"}, &out, &errOut)).To(BeZero())
	a.Expect(out.String()).To(ContainSubstring("kubectl capstan approve PIPELINE [ENVIRONMENT]"))
}
