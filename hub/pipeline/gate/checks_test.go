package gate

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// checked is a Pipeline whose prod has gates, and a promotion into it.
func checked(gates pipelinesv1.Gates, ready bool) (*pipelinesv1.Pipeline, *capstanv1.Promotion) {
	now := metav1.Now()
	targets := []pipelinesv1.Target{{Namespace: "shop"}}
	status := func() *pipelinesv1.EnvironmentStatus {
		return &pipelinesv1.EnvironmentStatus{
			Targets: []pipelinesv1.TargetStatus{{Ready: ready, Revision: "1.1", ObservedTime: &now}},
			Agreed:  &pipelinesv1.AgreedRevision{Revision: "1.1", Sequence: 1},
		}
	}
	return &pipelinesv1.Pipeline{
			Spec:   pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{{Name: "dev", Targets: targets}, {Name: "prod", Targets: targets, Gates: &gates}}},
			Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{"dev": status(), "prod": status()}},
		}, &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{
			Environment: "prod", Revision: "1.1", Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 1},
		}}
}

var (
	celReady = pipelinesv1.Check{Name: "ready", CEL: &pipelinesv1.CELCheck{Expression: "sourceTargets.all(t, t.ready)"}}
	errors3  = pipelinesv1.Check{Name: "errors", Passes: 3, Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "x", Expression: "value < 1"}}
)

func TestCheckGate(t *testing.T) {
	t.Parallel()
	status := func(v capstanv1.CheckVerdict, done bool) []capstanv1.CheckStatus {
		return []capstanv1.CheckStatus{{Name: "errors", Verdict: v, Done: done, Message: "why"}}
	}
	for name, tc := range map[string]struct {
		check   pipelinesv1.Check
		ready   bool
		known   []capstanv1.CheckStatus
		state   capstanv1.GateState
		reason  string
		message string
	}{
		"cel passes":       {celReady, true, nil, capstanv1.GateOpen, ReasonChecksPassed, "all checks pass"},
		"cel fails":        {celReady, false, nil, capstanv1.GateClosed, ReasonCheckFailed, `check "ready" fails: "sourceTargets.all(t, t.ready)" is false`},
		"not measured":     {errors3, true, nil, capstanv1.GateClosed, ReasonCheckPending, `check "errors" was not measured yet; it is when the other gates are open, or soon will be`},
		"too few passes":   {errors3, true, status(capstanv1.CheckPass, false), capstanv1.GateClosed, ReasonCheckPending, `check "errors" must pass 3 times in sequence`},
		"passes":           {errors3, true, status(capstanv1.CheckPass, true), capstanv1.GateOpen, ReasonChecksPassed, "all checks pass"},
		"fails":            {errors3, true, status(capstanv1.CheckFail, false), capstanv1.GateClosed, ReasonCheckFailed, `check "errors" fails: why`},
		"no data":          {errors3, true, status(capstanv1.CheckNoData, false), capstanv1.GateClosed, ReasonCheckNoData, `check "errors" has no result: why`},
		"cannot be asked":  {errors3, true, status(capstanv1.CheckError, false), capstanv1.GateClosed, ReasonCheckError, `check "errors" cannot be measured: why`},
		"not valid":        {pipelinesv1.Check{Name: "none"}, true, nil, capstanv1.GateInvalid, ReasonInvalidGate, `correct the Pipeline: spec.environments[1].gates.checks[0] (check "none"): set exactly one of cel and prometheus`},
		"of another check": {errors3, true, []capstanv1.CheckStatus{{Name: "other", Verdict: capstanv1.CheckPass, Done: true}}, capstanv1.GateClosed, ReasonCheckPending, `check "errors" was not measured yet; it is when the other gates are open, or soon will be`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			p, promotion := checked(pipelinesv1.Gates{Checks: []pipelinesv1.Check{tc.check}}, tc.ready)
			rules, facts := For(p, 1).Measured(tc.known), FactsOf(p, promotion, time.Now())
			g.Expect(rules.Empty()).To(BeFalse())
			results := rules.Judge(facts)
			g.Expect(results).To(HaveLen(1))
			g.Expect(results[0]).To(Equal(Result{Name: capstanv1.GateChecks, Type: capstanv1.CheckGate, State: tc.state, Reason: tc.reason, Message: tc.message}))
			pending := tc.reason == ReasonCheckPending
			g.Expect(rules.Expected(facts).IsZero()).To(Equal(tc.state != capstanv1.GateOpen && !pending))

			// A reader that measures nothing says what the status does.
			promotion.Status.Gates = []capstanv1.GateStatus{{Name: capstanv1.GateChecks, State: tc.state, Reason: tc.reason, Message: tc.message}}
			g.Expect(For(p, 1).Judge(facts)[0]).To(Equal(results[0]))

			promotion.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateChecks, By: "ann", Reason: "hotfix"}}
			rules = For(p, 1).Measured(tc.known)
			g.Expect(FirstClosed(rules.Judge(facts))).To(BeNil(), "overridden")
			g.Expect(rules.Expected(facts)).To(Equal(facts.Now))
		})
	}
}

// Queries are measured in time for the other gates: as many intervals before as they must pass.
func TestQueriesAreMeasuredInTime(t *testing.T) {
	t.Parallel()
	g, now := NewWithT(t), time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	p, promotion := checked(pipelinesv1.Gates{
		Windows: []pipelinesv1.Window{{Name: "day", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.AllowWindow, Schedule: "0 9 * * *", Duration: "8h", TimeZone: "UTC"}}},
		Checks:  []pipelinesv1.Check{celReady, errors3},
	}, true)
	rules, facts := For(p, 1).Measured(nil), FactsOf(p, promotion, now)
	opens := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	g.Expect(rules.MeasureAt(facts)).To(Equal(opens.Add(-3 * time.Minute)))
	g.Expect(rules.Expected(facts)).To(Equal(opens), "a check that was not measured may pass")
	g.Expect(rules.Forecast(facts, "prod", false)).To(And(ContainSubstring("1.1 may enter"), HaveSuffix(`; checks "ready", "errors" must pass`)))

	facts.Now = opens
	g.Expect(rules.MeasureAt(facts).After(opens)).To(BeFalse(), "they are due")
	overridden := promotion.DeepCopy()
	overridden.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateChecks, By: "ann", Reason: "hotfix"}}
	g.Expect(rules.MeasureAt(FactsOf(p, overridden, opens))).To(BeZero(), "no result matters")
	frozen, _ := checked(pipelinesv1.Gates{
		Windows: []pipelinesv1.Window{{Name: "stop", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow}}}, Checks: []pipelinesv1.Check{errors3},
	}, true)
	g.Expect(For(frozen, 1).Measured(nil).MeasureAt(facts)).To(BeZero(), "no time is known")
}

// The forecast names every check that has not passed, also where nothing is measured.
func TestForecastNamesChecks(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	latency := errors3
	latency.Name = "latency"
	p, promotion := checked(pipelinesv1.Gates{Checks: []pipelinesv1.Check{celReady, errors3, latency}}, true)
	facts := FactsOf(p, promotion, time.Now())
	known := []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckFail, Message: "7 is too much"}, {Name: "latency", Verdict: capstanv1.CheckNoData, Message: "no series"}}
	const both = `it is not known when 1.1 may enter "prod"; check "errors" fails: 7 is too much; checks that have not passed yet: "errors", "latency"`
	g.Expect(For(p, 1).Measured(known).Forecast(facts, "prod", false)).To(Equal(both))
	promotion.Status.Checks = known
	promotion.Status.Gates = []capstanv1.GateStatus{{Name: capstanv1.GateChecks, State: capstanv1.GateClosed, Reason: ReasonCheckFailed, Message: `check "errors" fails: 7 is too much`}}
	g.Expect(For(p, 1).Forecast(facts, "prod", false)).To(Equal(both), "by one that measures nothing")
	promotion.Status.Checks[1].Verdict, promotion.Status.Checks[1].Done = capstanv1.CheckPass, true
	g.Expect(For(p, 1).Forecast(facts, "prod", false)).To(Equal(`it is not known when 1.1 may enter "prod"; check "errors" fails: 7 is too much`))
	promotion.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateChecks, By: "ann", Reason: "hotfix"}}
	g.Expect(For(p, 1).Forecast(facts, "prod", false)).To(BeEmpty(), "overridden")

	p, promotion = checked(pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "2h"}, Checks: []pipelinesv1.Check{errors3}}, true)
	g.Expect(For(p, 1).Forecast(FactsOf(p, promotion, time.Now()), "prod", false)).To(HaveSuffix(`; check "errors" must pass`))
}

// The message and the time of a check stay as they are in the status while the verdict does.
func TestChecksKeepTheirStatus(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p, promotion := checked(pipelinesv1.Gates{Checks: []pipelinesv1.Check{errors3}}, true)
	then := metav1.Now()
	promotion.Status.Checks = []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckFail, Value: "7", Message: "7 is too much", LastTransitionTime: &then}}
	rules := For(p, 1).Measured([]capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckFail, Value: "8", Message: "8 is too much"}})
	facts := FactsOf(p, promotion, time.Now())
	g.Expect(rules.Checks(facts)).To(Equal(promotion.Status.Checks))
	g.Expect(rules.Judge(facts)[0].Message).To(Equal(`check "errors" fails: 7 is too much`))
}
