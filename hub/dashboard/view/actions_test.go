package view

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// actor is a Scope with all rights.
func actor() Scope {
	s := Everything()
	all := Namespaces{All: true}
	s.Approve, s.Patch, s.Override, s.Suspend, s.Request, s.OverrideWindows, s.Nameless = all, all, all, all, all, true, false
	return s
}

func onePipeline(environments ...string) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop", UID: "u"}}
	p.Spec.Promotion = &pipelinesv1.Promotion{Manual: true, Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}}
	p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{}
	for _, name := range environments {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: name, Targets: []pipelinesv1.Target{{Namespace: "shop-" + name}}})
	}
	return p
}

func oneInto(environment string, n int64, phase capstanv1.PromotionPhase) capstanv1.Promotion {
	p := capstanv1.Promotion{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "p-" + environment, UID: "p"}}
	p.Spec = capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: "shop", UID: "u"}, Environment: environment, Number: n, Revision: "1.1.0", Manual: true, Source: capstanv1.PromotionSource{Environment: "dev"}}
	p.Status.Phase = phase
	return p
}

// Which actions are possible on a promotion follows from its state.
func TestActionsOf(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		edit func(*capstanv1.Promotion)
		want []string
	}{
		"waits for an approval": {func(*capstanv1.Promotion) {}, []string{"approve", "reject"}},
		"waits for gates": {func(p *capstanv1.Promotion) {
			p.Status.Phase = capstanv1.PhaseAwaitingGates
			p.Status.Gates = []capstanv1.GateStatus{{Name: "soak", State: capstanv1.GateClosed}, {Name: "windows", State: capstanv1.GateOpen}, {Name: "reject", State: capstanv1.GateInvalid}}
		}, []string{"approve", "reject", "override"}},
		"automatic, waits for gates": {func(p *capstanv1.Promotion) { p.Spec.Manual, p.Status.Phase = false, capstanv1.PhaseAwaitingGates }, []string{"reject"}},
		"approved":                   {func(p *capstanv1.Promotion) { p.Spec.Approval = &capstanv1.Approval{By: "ann"} }, nil},
		"rejected":                   {func(p *capstanv1.Promotion) { p.Spec.Rejection = &capstanv1.Rejection{By: "ann", Comment: "no"} }, nil},
		"in progress":                {func(p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhaseAwaitingRollout }, nil},
		"failed":                     {func(p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhaseFailed }, []string{"retry"}},
		"ended as rejected": {func(p *capstanv1.Promotion) {
			p.Spec.Rejection, p.Status.Phase, p.Status.FinishTime = &capstanv1.Rejection{By: "ann", Comment: "no"}, capstanv1.PhaseRejected, &at
		}, []string{"retry"}},
		"succeeded": {func(p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhaseSucceeded }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			p := oneInto("prod", 1, capstanv1.PhaseAwaitingApproval)
			tc.edit(&p)
			f := &Facts{Promotions: []capstanv1.Promotion{p}}
			var names []string
			for _, l := range f.ActionsOf(&p, actor()) {
				names = append(names, l.Name)
				g.Expect(l.Link).To(HavePrefix("/promotions/apps/p-prod/" + l.Name))
			}
			g.Expect(names).To(Equal(tc.want))
			g.Expect(f.ActionsOf(&p, Everything())).To(BeEmpty(), "without rights")
			newer := oneInto("prod", 2, capstanv1.PhasePromoting)
			f.Promotions = append(f.Promotions, newer)
			g.Expect(f.ActionsOf(&p, actor())).To(BeEmpty(), "a newer promotion replaced it")
		})
	}
}

// An action into a wave has the name of the wave in its address, escaped, and the page of an action shows names as
// they are, also hostile ones.
func TestActionPageOfHostileNames(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	hostile := strings.Repeat("x", 200) + `"><script>`
	p := onePipeline("dev", "prod/canary", hostile)
	p.Status.Environments["dev"] = &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{{Revision: "1.2.0", Ready: true}}, Agreed: &pipelinesv1.AgreedRevision{Revision: "1.2.0"}}
	f := &Facts{Pipelines: []pipelinesv1.Pipeline{*p}, Now: time.Now()}
	g.Expect(ActionsInto(p, "prod/canary", actor())[0].Link).To(Equal("/pipelines/apps/shop/promote/prod%2Fcanary"))
	g.Expect(ActionsInto(p, "dev", actor())).To(BeEmpty())
	page, ok := ActionPage(f, actor(), "pipelines", []string{"apps", "shop", "promote", hostile})
	g.Expect(ok).To(BeTrue())
	g.Expect(page.Form).To(BeTrue())
	g.Expect(data[useraction.Revision](page, "revisions")).To(Equal([]useraction.Revision{{Revision: "1.2.0", Runs: []string{"dev"}}}))
	g.Expect(data[Place](page, "source")[0].Environment).To(Equal("prod/canary"))
	p.Spec.Reject = []string{">=1.2.0"}
	f.Pipelines[0] = *p
	page, _ = ActionPage(f, actor(), "pipelines", []string{"apps", "shop", "promote", hostile})
	g.Expect(data[Refusal](page, "form")).To(ConsistOf(HaveField("Text", "The Pipeline knows no other revision.")))

	for _, parts := range [][]string{{"apps", "shop", "approve"}, {"apps", "shop", "promote"}, {"apps", "shop", "suspend", "prod/canary"}, {"apps", "other", "suspend"}, {"apps", "shop", "promote", "nowhere"}, {"apps", "shop"}} {
		_, ok := ActionPage(f, actor(), "pipelines", parts)
		g.Expect(ok).To(BeFalse(), "%v", parts)
	}
	_, ok = ActionPage(f, Scope{Suspend: Namespaces{All: true}}, "pipelines", []string{"apps", "shop", "suspend"})
	g.Expect(ok).To(BeFalse(), "it is not visible")
}

// Who may not see the Pipeline of a promotion does not see its targets, and sees that they are hidden.
func TestActionPageWithoutPipelines(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	f := &Facts{Pipelines: []pipelinesv1.Pipeline{*onePipeline("dev", "prod")}, Promotions: []capstanv1.Promotion{oneInto("prod", 1, capstanv1.PhaseAwaitingApproval)}, Now: time.Now()}
	scope := actor()
	scope.Pipelines = Namespaces{}
	page, ok := ActionPage(f, scope, "promotions", []string{"apps", "p-prod", "approve"})
	g.Expect(ok).To(BeTrue())
	g.Expect(data[Place](page, "places")).To(Equal([]Place{{Environment: "prod", Hidden: true}}))
	g.Expect(data[Place](page, "source")).To(BeEmpty())
	g.Expect(page.Frame).To(HaveField("Back", PromotionsPath))
	page, _ = ActionPage(f, actor(), "promotions", []string{"apps", "p-prod", "approve"})
	g.Expect(data[Place](page, "places")[0].Targets).To(HaveLen(1))
	g.Expect(data[Place](page, "source")[0].Environment).To(Equal("dev"))
}

// The page of a dashboard without sign-in says that it can change nothing.
func TestActionsWithoutSignIn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	f := &Facts{Promotions: []capstanv1.Promotion{oneInto("prod", 1, capstanv1.PhaseAwaitingApproval)}}
	page, ok := ActionPage(f, Everything(), "promotions", []string{"apps", "p-prod", "approve"})
	g.Expect(ok).To(BeTrue())
	g.Expect(data[Refusal](page, "form")).To(ConsistOf(HaveField("Text", ContainSubstring("has no sign-in"))))
}
