package gate

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func line(gates *pipelinesv1.Gates) *pipelinesv1.Pipeline {
	return &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"tier": "prod"}},
		Spec:       pipelinesv1.PipelineSpec{Gates: gates, Environments: []pipelinesv1.Environment{{Name: "staging"}, {Name: "prod"}}},
	}
}

func clusterWindow(name string, spec pipelinesv1.WindowSpec) capstanv1.PromotionWindow {
	return capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: capstanv1.PromotionWindowSpec{WindowSpec: spec}}
}

// Windows of administrators are a gate of their own, whose forecast is combined with the others.
func TestWithin(t *testing.T) {
	g := NewWithT(t)
	soak := soaked(sunday, 3600, pipelinesv1.SoakReady)
	p := line(gates("2h", office()))
	at := func(windows ...capstanv1.PromotionWindow) Rules {
		return For(p, 1).Within(SortWindows(windows), p, "prod", nil)
	}

	none := at()
	g.Expect(none.Judge(soak)).To(HaveLen(2), "nothing selects it")
	g.Expect(none.Expected(soak)).To(BeTemporally("==", sunday.Add(19*time.Hour)), "Monday, 09:00 in Riga")

	freeze := clusterWindow("freeze", pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Reason: "audit", Until: "2026-03-03T10:00:00Z"})
	rules := at(freeze)
	results := rules.Judge(soak)
	g.Expect(results).To(HaveLen(3))
	g.Expect(results[2]).To(Equal(Result{
		Name: capstanv1.GatePromotionWindows, Type: capstanv1.PromotionWindowGate, State: capstanv1.GateClosed, Reason: ReasonFrozen,
		Message: `PromotionWindow "freeze" (audit) denies promotions; promotions are allowed again from Tue 2026-03-03 10:00 UTC`,
		Change:  time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC),
	}))
	g.Expect(rules.Expected(soak)).To(BeTemporally("==", time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)))
	g.Expect(rules.Empty()).To(BeFalse())
	g.Expect(Parse(nil, "").Within(SortWindows([]capstanv1.PromotionWindow{freeze}), p, "prod", nil).Empty()).To(BeFalse())

	// Overrides open one gate each.
	promotion := &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{Overrides: []capstanv1.Override{{Gate: capstanv1.GatePromotionWindows, By: "olga", Reason: "hotfix"}}}}
	soak.Promotion = promotion
	results = rules.Judge(soak)
	g.Expect(results[2]).To(And(HaveField("State", capstanv1.GateOpen), HaveField("Reason", ReasonOverridden)))
	g.Expect(FirstClosed(results).Name).To(Equal(capstanv1.GateSoak))
	g.Expect(rules.Expected(soak)).To(BeTemporally("==", sunday.Add(19*time.Hour)))
	promotion.Spec.Overrides = append(promotion.Spec.Overrides, capstanv1.Override{Gate: capstanv1.GateWindows, By: "olga"}, capstanv1.Override{Gate: capstanv1.GateSoak, By: "olga"})
	g.Expect(FirstClosed(rules.Judge(soak))).To(BeNil())
	g.Expect(rules.Expected(soak)).To(Equal(sunday))
	promotion.Status.Phase, promotion.Status.Retry = capstanv1.PhaseAwaitingGates, 1
	g.Expect(FirstClosed(rules.Judge(soak)).Name).To(Equal(capstanv1.GateSoak), "of another run")
}

// Those who do not know the windows judge by what the status of the promotion says.
func TestRecordedWindows(t *testing.T) {
	g := NewWithT(t)
	opens := metav1.NewTime(sunday.Add(30 * time.Hour))
	facts := soaked(sunday, 7200, pipelinesv1.SoakReady)
	facts.Promotion = &capstanv1.Promotion{Status: capstanv1.PromotionStatus{ExpectedTime: &opens, Gates: []capstanv1.GateStatus{{
		Name: capstanv1.GatePromotionWindows, Type: capstanv1.PromotionWindowGate, State: capstanv1.GateClosed, Reason: ReasonFrozen,
		Message: `PromotionWindow "stop" denies promotions`, NextChangeTime: &opens,
	}}}}
	rules := For(line(gates("2h")), 1)
	g.Expect(rules.Forecast(facts, "prod", true)).To(Equal(
		`1.4.2 may enter "prod" on Mon 2026-03-02 18:00 UTC; PromotionWindow "stop" denies promotions; needs an approval`))
	facts.Promotion.Status.ExpectedTime = nil
	g.Expect(rules.Forecast(facts, "prod", false)).To(Equal(`it is not known when 1.4.2 may enter "prod"; PromotionWindow "stop" denies promotions`))
	p := line(gates("2h"))
	g.Expect(FirstClosed(rules.Within(nil, p, "prod", nil).Judge(facts))).To(BeNil(), "it is known that there are none")
}

// A window that is not valid, whatever is wrong with it, begins nothing that would not begin without it.
func TestWindowsThatAreNotValidBeginNothing(t *testing.T) {
	p, namespace := line(nil), labels.Set{"tier": "prod"}
	draw := func(t *rapid.T, name string) capstanv1.PromotionWindow {
		w := clusterWindow(name, pipelinesv1.WindowSpec{
			Type:     pipelinesv1.WindowType(rapid.SampledFrom([]string{"Allow", "Deny", "", "allow"}).Draw(t, "type")),
			Schedule: rapid.SampledFrom([]string{"", "0 9 * * 1-5", "@daily", "0 0 1 * 1", "TZ=UTC 0 9 * * *"}).Draw(t, "schedule"),
			Duration: rapid.SampledFrom([]string{"", "8h", "0s", "-1h", "800h", "x"}).Draw(t, "duration"),
			TimeZone: rapid.SampledFrom([]string{"", "Europe/Riga", "Europe/Rigo"}).Draw(t, "zone"),
			From:     rapid.SampledFrom([]string{"", "2026-01-01T00:00:00Z", "tomorrow"}).Draw(t, "from"),
			Until:    rapid.SampledFrom([]string{"", "2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z"}).Draw(t, "until"),
		})
		w.Spec.NamespaceSelector = rapid.SampledFrom([]*metav1.LabelSelector{
			nil, {MatchLabels: map[string]string{"tier": "prod"}}, {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is"}}},
		}).Draw(t, "selector")
		return w
	}
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		facts := Facts{Now: sunday.Add(time.Duration(rapid.IntRange(0, 14*24).Draw(t, "hour")) * time.Hour)}
		others := []capstanv1.PromotionWindow{draw(t, "a"), draw(t, "b")}
		open := func(windows ...capstanv1.PromotionWindow) bool {
			return FirstClosed(For(p, 1).Within(SortWindows(windows), p, "prod", namespace).Judge(facts)) == nil
		}
		bad := draw(t, "c")
		if ParseWindow(&bad).Err() == nil {
			return
		}
		with := append([]capstanv1.PromotionWindow{bad}, others...)
		if open(with...) {
			g.Expect(open(others...)).To(BeTrue())
		}
		if bad.Spec.Type != pipelinesv1.AllowWindow {
			g.Expect(open(with...)).To(BeFalse(), "what is no Allow denies")
		}
	})
}
