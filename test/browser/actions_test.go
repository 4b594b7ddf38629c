package browser

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// passes checks the open page in both themes. Without axe-core it does nothing; TestActionsByKeyboard says so.
func (b *tab) passes() {
	b.t.Helper()
	axe, err := readAxe()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	b.Expect(err).NotTo(HaveOccurred())
	for _, theme := range []string{"dark", "light"} {
		b.themed(theme, screen)
		b.Expect(b.violations(axe)).To(BeEmpty(), "%s, %s", eval[string](b, `location.pathname`), theme)
	}
}

// act goes to an action from the page that is open, and confirms it with the keyboard alone. The page passes in both themes.
func (b *tab) act(address string, fill func()) {
	b.t.Helper()
	b.tabTo(`main a[href*="` + address + `"]`)
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`main button[form="act"]`)))
	b.passes()
	if fill != nil {
		fill()
	}
	b.tabTo(`main button[form="act"]`)
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`[data-list="matrix"]`)))
}

// write types a comment with the keyboard.
func (b *tab) write(comment string) func() {
	return func() {
		b.t.Helper()
		b.tabTo(`main textarea`)
		b.do(chromedp.KeyEvent(comment))
	}
}

// A user does each action with the keyboard alone, and sees what is recorded. The pages pass the rules of WCAG in both themes.
func TestActionsByKeyboard(t *testing.T) {
	temporary(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "acts"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"override"}},
		{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotionrequests"}, Verbs: []string{"create", "get", "list"}},
		{APIGroups: []string{"pipelines.weave.works"}, Resources: []string{"pipelines"}, Verbs: []string{"get", "patch"}},
	}})
	temporary(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "acts"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "acts"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: appsNamespace, Name: approverName}},
	})
	pipelineIn(t, appsNamespace, "acts", func(s *pipelinesv1.PipelineSpec) { s.Gates = &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "2h"}} }, "dev", "prod")
	ctx, page := t.Context(), "/pipelines/apps/acts"
	b := newTab(t)
	b.signIn(page)
	user := "system:serviceaccount:apps:" + approverName
	spec := func() pipelinesv1.PipelineSpec {
		p := &pipelinesv1.Pipeline{}
		b.Expect(world.admin.Get(ctx, client.ObjectKey{Namespace: appsNamespace, Name: "acts"}, p)).To(Succeed())
		return p.Spec
	}
	newest := func() capstanv1.Promotion {
		var all capstanv1.PromotionList
		b.Expect(world.admin.List(ctx, &all, client.InNamespace(appsNamespace), client.MatchingLabels{capstanv1.PipelineLabel: "acts"})).To(Succeed())
		var newest capstanv1.Promotion
		for _, p := range all.Items {
			if p.Spec.Number > newest.Spec.Number {
				newest = p
			}
		}
		return newest
	}
	phase := func() capstanv1.PromotionPhase { return newest().Status.Phase }

	b.Eventually(b.main, patience).Should(ContainSubstring("1.0.0"))
	b.act("/suspend", nil)
	b.Expect(spec().Suspend).To(BeTrue())
	b.Eventually(b.main, patience).Should(ContainSubstring("Suspended"))
	b.act("/resume", nil)
	b.Expect(spec().Suspend).To(BeFalse())

	b.Expect(release("acts", "dev").Deploy(ctx, "1.1.0")).To(Succeed())
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingGates))
	b.open(page)
	b.act("/override/soak", b.write("the soak is done elsewhere"))
	b.Expect(newest().Spec.Overrides).To(HaveExactElements(And(HaveField("By", user), HaveField("Gate", "soak"), HaveField("Reason", "the soak is done elsewhere"))))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingApproval))

	b.open(page)
	b.act("/reject", b.write("not today"))
	b.Expect(newest().Spec.Rejection).To(And(HaveField("By", user), HaveField("Comment", "not today")))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseRejected))
	b.Eventually(b.opened, patience).Should(ContainSubstring("not today"))

	b.open(page)
	b.act("/retry", nil)
	b.Expect(newest().Spec.Retry).To(Equal(int64(1)))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingGates))
	b.open(page)
	b.act("/override/soak", b.write("again"))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingApproval))

	// Two people have the page open; the second one reads what the first one did, without a reload.
	other := anotherTab(t)
	approve := "/promotions/apps/" + newest().Name + "/approve"
	other.open(approve)
	other.do(chromedp.WaitVisible(chromedp.CSS(`main button[form="act"]`)), kept())
	b.open(page)
	b.act("/approve", b.write("the release notes are ready"))
	b.Expect(newest().Spec.Approval).To(And(HaveField("By", user), HaveField("Comment", "the release notes are ready")))
	b.Eventually(b.opened, patience).Should(ContainSubstring("the release notes are ready"))
	other.Eventually(func() bool { return seen[bool](other, `document.querySelector('main button[form="act"]') === null`) }, patience).Should(BeTrue())
	other.Expect(other.main()).To(ContainSubstring(user))
	other.Expect(eval[bool](other, `window.kept === true`)).To(BeTrue(), "it was not reloaded")
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingRollout))
	b.Expect(release("acts", "prod").Deploy(ctx, "1.1.0")).To(Succeed())
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseSucceeded))

	request := func() []capstanv1.PromotionRequest {
		var all capstanv1.PromotionRequestList
		b.Expect(world.admin.List(ctx, &all, client.InNamespace(appsNamespace))).To(Succeed())
		return all.Items
	}
	b.Expect(release("acts", "dev").Deploy(ctx, "1.2.0")).To(Succeed())
	b.Eventually(func() string { return newest().Spec.Revision }, patience).Should(Equal("1.2.0"))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingGates))
	b.open(page)
	b.act("/promote/prod", func() {
		b.tabTo(`main input[type="radio"][value="1.2.0"]`)
		b.do(chromedp.KeyEvent(" "))
		b.write("it cannot wait for the soak")()
	})
	b.Expect(request()).To(HaveExactElements(And(HaveField("Spec.Reason", "it cannot wait for the soak"), HaveField("Spec.Revision", "1.2.0"))))
	b.Eventually(func() *capstanv1.RequestReference { return newest().Spec.Request }, patience).Should(And(Not(BeNil()), HaveField("By", user)))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingGates))
	b.open(page)
	b.act("/override/soak", b.write("requested"))
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingApproval))
	b.open(page)
	b.act("/approve", nil)
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseAwaitingRollout))
	b.Expect(release("acts", "prod").Deploy(ctx, "1.2.0")).To(Succeed())
	b.Eventually(phase, patience).Should(Equal(capstanv1.PhaseSucceeded))

	b.open(page)
	b.act("/rollback/prod", b.write("customers complain"))
	b.Eventually(func() capstanv1.PromotionSpec { return newest().Spec }, patience).Should(And(HaveField("Revision", "1.1.0"), HaveField("RollbackOf", Not(BeNil())),
		HaveField("Request.By", user), HaveField("Request.Reason", "customers complain")))
	b.Eventually(b.opened, patience).Should(And(ContainSubstring("customers complain"), ContainSubstring("Rollback of 1.2.0")))

	axe := axeCore(t)
	for name, path := range map[string]string{"promote": page + "/promote/prod", "suspend": page + "/suspend", "outdated": approve} {
		b.check(axe, name, path)
	}
}
