package browser

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// colleagueName is a second user with the rights of approverName.
const colleagueName = "colleague"

// anotherBrowser opens a tab with cookies of its own, as the browser of another user has.
func anotherBrowser(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(world.browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{WithT: NewWithT(t), t: t, ctx: ctx}
	b.Expect(chromedp.Do(ctx)).To(Succeed())
	b.do(sized(screen, false))
	return b
}

// colleague signs in a second user, in a browser of its own.
func colleague(t *testing.T, path string) *tab {
	t.Helper()
	temporary(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: colleagueName}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sees"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: appsNamespace, Name: colleagueName}},
	})
	token, err := tokenOf(t.Context(), appsNamespace, colleagueName)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	b := anotherBrowser(t)
	b.signInWith(token, path)
	return b
}

// waiting returns the promotion of a revision of an application that waits for an approval, when there is one.
func waiting(t *testing.T, app, revision string) *capstanv1.Promotion {
	t.Helper()
	var found capstanv1.Promotion
	NewWithT(t).Eventually(func() (phases []capstanv1.PromotionPhase) {
		var all capstanv1.PromotionList
		if err := world.admin.List(t.Context(), &all, client.InNamespace(appsNamespace), client.MatchingLabels{capstanv1.PipelineLabel: app}); err != nil {
			return nil
		}
		for _, p := range all.Items {
			if p.Spec.Revision == revision {
				found, phases = p, append(phases, p.Status.Phase)
			}
		}
		return phases
	}, patience).Should(ConsistOf(capstanv1.PhaseAwaitingApproval))
	return &found
}

// A page becomes outdated while it is open: its form is replaced, without a reload, by the link to what replaced the promotion. The
// keyboard leads from there to the new approval.
func TestOutdatedPage(t *testing.T) {
	pipeline(t, "outdated", "dev", "prod")
	b := newTab(t)
	b.signIn("/pipelines")
	b.Eventually(func() string { return b.cell("outdated", "prod") }, patience).Should(ContainSubstring("1.0.0"))
	b.Expect(release("outdated", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	old := waiting(t, "outdated", "1.1.0")
	b.open("/promotions/apps/" + old.Name + "/approve")
	b.tabTo(`main textarea`)
	b.do(chromedp.KeyEvent("as agreed"), kept())

	b.Expect(release("outdated", "dev").Deploy(t.Context(), "1.2.0")).To(Succeed())
	newer := waiting(t, "outdated", "1.2.0")
	next := "/promotions/apps/" + newer.Name + "/approve"
	b.Eventually(func() bool {
		return seen[bool](b, fmt.Sprintf(`document.querySelector('main [name="uid"], main button[form="act"]') === null && document.querySelector('main a[href=%q]') !== null`, next))
	}, patience).Should(BeTrue())
	b.Expect(b.main()).To(And(ContainSubstring("A newer promotion replaced it: no. "), ContainSubstring("1.2.0 into prod")))
	b.Expect(eval[bool](b, `window.kept === true`)).To(BeTrue(), "it was not reloaded")
	b.passes()
	b.act(newer.Name+"/approve", b.write("as agreed"))
	b.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(old), old)).To(Succeed())
	b.Expect(old.Spec.Approval).To(BeNil())
	b.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(newer), newer)).To(Succeed())
	b.Expect(newer.Spec.Approval).To(HaveField("Comment", "as agreed"))
}

// Two users, each in an own browser, confirm at the same moment: one approves, the other one rejects. Exactly one decision is
// recorded, and the other user reads whose it is.
func TestTwoPeopleAtOnce(t *testing.T) {
	pipeline(t, "together", "dev", "prod")
	one := newTab(t)
	one.signIn("/pipelines")
	one.Eventually(func() string { return one.cell("together", "prod") }, patience).Should(ContainSubstring("1.0.0"))
	other := colleague(t, "/pipelines")
	one.Expect(release("together", "dev").Deploy(t.Context(), "1.1.0")).To(Succeed())
	promotion := waiting(t, "together", "1.1.0")
	for b, action := range map[*tab]string{one: "approve", other: "reject"} {
		b.open("/promotions/apps/" + promotion.Name + "/" + action)
		b.tabTo(`main textarea`)
		b.do(chromedp.KeyEvent("by " + action))
		b.tabTo(`main button[form="act"]`)
	}
	var both sync.WaitGroup
	failed := make(chan error, 2)
	for _, b := range []*tab{one, other} {
		both.Go(func() {
			ctx, cancel := context.WithTimeout(b.ctx, actionTime)
			defer cancel()
			if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
				failed <- err
			}
		})
	}
	both.Wait()
	one.Expect(failed).NotTo(Receive())

	one.Eventually(func(g Gomega) {
		g.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
		g.Expect(promotion.Spec.Approval != nil || promotion.Spec.Rejection != nil).To(BeTrue())
	}, patience).Should(Succeed())
	loser, decision := other, "approved by system:serviceaccount:apps:"+approverName+": by approve"
	if promotion.Spec.Rejection != nil {
		loser, decision = one, "rejected by system:serviceaccount:apps:"+colleagueName+": by reject"
	}
	loser.Eventually(loser.main, patience).Should(ContainSubstring("It was already " + decision))
	one.Consistently(func(g Gomega) {
		g.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
		g.Expect(promotion.Spec.Approval == nil).NotTo(Equal(promotion.Spec.Rejection == nil), "one decision is recorded")
	}, 2*time.Second).Should(Succeed())
	for _, b := range []*tab{one, other} {
		b.open("/pipelines/apps/together")
		b.Eventually(b.opened, patience).Should(ContainSubstring(map[bool]string{true: "by approve", false: "by reject"}[promotion.Spec.Approval != nil]))
	}
}
