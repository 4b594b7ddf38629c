package verify

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/soak"
)

func TestParse(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Parse(nil, "spec.verification").Set()).To(BeFalse())
	r := Parse(&pipelinesv1.Verification{For: "30m"}, "spec.verification")
	g.Expect(r).To(Equal(Rules{set: true, required: 30 * time.Minute, tolerate: 5 * time.Minute, deadline: 2 * time.Hour}))
	g.Expect(Parse(&pipelinesv1.Verification{}, "").deadline).To(Equal(time.Hour))
	slow := pipelinesv1.Check{Name: "burn", CEL: &pipelinesv1.CELCheck{Expression: "true"}, Interval: "6h", Passes: 4}
	g.Expect(Parse(&pipelinesv1.Verification{Checks: []pipelinesv1.Check{slow}}, "").deadline).To(Equal(49*time.Hour), "its passes take 24 h")
	for wrong, v := range map[string]pipelinesv1.Verification{
		`spec.verification.for: "soon" is not a duration, such as 2h or 90m`:                                                             {For: "soon"},
		`spec.verification.for: -1s is not from 0s to 744h, in whole seconds`:                                                            {For: "-1s"},
		`spec.verification.tolerate: 745h is not from 0s to 744h, in whole seconds`:                                                      {Tolerate: "745h"},
		`spec.verification.deadline: 0s is not from 1s to 1489h, in whole seconds`:                                                       {Deadline: "0s"},
		`spec.verification.rolloutDeadline: 1500ms is not from 1s to 1489h, in whole seconds`:                                            {RolloutDeadline: "1500ms"},
		`spec.verification.deadline: 18h is not longer than the 4 passes of check "burn", which take 18h: no revision could be verified`: {Deadline: "18h", Checks: []pipelinesv1.Check{slow}},
		`spec.verification.deadline: 30m is not longer than for (30m): no revision could be verified`:                                    {For: "30m", Deadline: "30m"},
	} {
		r := Parse(&v, "spec.verification")
		g.Expect(r.Err()).To(MatchError(wrong))
		g.Expect(r.Set()).To(BeTrue())
		g.Expect(r.JudgeTime(&capstanv1.Trial{Phase: capstanv1.PhaseVerifying, ReadySeconds: 1 << 40})).To(Equal(Open), "nothing is decided until it is corrected")
	}
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
		Verification: &pipelinesv1.Verification{For: "1h"},
		Environments: []pipelinesv1.Environment{{}, {Verification: &pipelinesv1.Verification{For: "x"}}},
	}}
	g.Expect(For(p, 0).Required()).To(Equal(time.Hour))
	g.Expect(For(p, 1).Err()).To(MatchError(HavePrefix("spec.environments[1].verification.for: ")))
}

// The time until the verdict changes is exact: one second earlier there is another verdict.
func TestJudgeAndLeft(t *testing.T) {
	g, now := NewWithT(t), time.Unix(1_700_000_000, 0)
	r := Parse(&pipelinesv1.Verification{For: "30m", Tolerate: "5m", Deadline: "40m", RolloutDeadline: "20m"}, "")
	for name, tc := range map[string]struct {
		phase capstanv1.PromotionPhase
		sums  soak.Sums
		now   soak.Verdict
		next  Verdict
		left  time.Duration
	}{
		"late":                    {capstanv1.PhaseAwaitingRollout, soak.Sums{State: soak.Unready, Unready: 5 * time.Minute, Observed: 5 * time.Minute}, soak.Unready, Late, 15 * time.Minute},
		"verified":                {capstanv1.PhaseVerifying, soak.Sums{State: soak.Ready, Ready: 20 * time.Minute, Observed: 25 * time.Minute}, soak.Ready, Verified, 10 * time.Minute},
		"degraded":                {capstanv1.PhaseVerifying, soak.Sums{State: soak.Unready, Unready: time.Minute, Observed: 10 * time.Minute}, soak.Unready, Degraded, 4*time.Minute + time.Second},
		"inconclusive, ready":     {capstanv1.PhaseVerifying, soak.Sums{State: soak.Ready, Ready: 5 * time.Minute, Observed: 39 * time.Minute}, soak.Ready, Inconclusive, time.Minute},
		"inconclusive, not ready": {capstanv1.PhaseVerifying, soak.Sums{State: soak.Unready, Ready: 29 * time.Minute, Observed: 39 * time.Minute}, soak.Unready, Inconclusive, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			trial := soak.ResumeTrial(tc.sums).Note(now, tc.now)
			left := r.Left(tc.phase, trial)
			g.Expect(left).To(Equal(tc.left))
			judge := func(d time.Duration) Verdict {
				s := trial.At(now.Add(d)).Sums()
				return r.JudgeTime(&capstanv1.Trial{Phase: tc.phase, State: capstanv1.TrialState(s.State),
					ReadySeconds: int64(s.Ready.Seconds()), UnreadySeconds: int64(s.Unready.Seconds()), ObservedSeconds: int64(s.Observed.Seconds())})
			}
			g.Expect(judge(left - time.Second)).To(Equal(Open))
			g.Expect(judge(left)).To(Equal(tc.next))
			for _, other := range []soak.Verdict{soak.Progressing, soak.Unobserved} {
				g.Expect(r.Left(tc.phase, trial.Note(now, other))).To(BeZero(), "time alone changes nothing")
			}
		})
	}
	g.Expect(r.JudgeTime(nil)).To(Equal(Open))
	g.Expect(Rules{}.JudgeTime(&capstanv1.Trial{Phase: capstanv1.PhaseVerifying, ReadySeconds: 1})).To(Equal(Open))
}

// Time alone does not verify a revision that has checks, and a check that fails often enough decides at once.
func TestJudgeChecks(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	errors := pipelinesv1.Check{Name: "errors", Failures: 2, Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "x", Expression: "value < 1"}}
	r := Parse(&pipelinesv1.Verification{For: "30m", Deadline: "40m", Checks: []pipelinesv1.Check{errors}}, "spec.verification")
	g.Expect(r.Err()).NotTo(HaveOccurred())
	ready := func(minutes int64) *capstanv1.Trial {
		return &capstanv1.Trial{Phase: capstanv1.PhaseVerifying, State: capstanv1.TrialReady, ReadySeconds: 60 * minutes, ObservedSeconds: 60 * minutes}
	}
	unready := &capstanv1.Trial{Phase: capstanv1.PhaseVerifying, State: capstanv1.TrialUnready, UnreadySeconds: 301, ObservedSeconds: 400}
	status := func(v capstanv1.CheckVerdict, done bool) []capstanv1.CheckStatus {
		return []capstanv1.CheckStatus{{Name: "errors", Verdict: v, Done: done, Message: "why"}}
	}
	p := &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{Environment: "prod", Revision: "1.1"}}
	p.Name = "web"
	for name, tc := range map[string]struct {
		trial   *capstanv1.Trial
		checks  []capstanv1.CheckStatus
		verdict Verdict
		message string
	}{
		"not measured":            {ready(30), nil, Open, `check "errors" was not measured yet`},
		"passes too early":        {ready(29), status(capstanv1.CheckPass, true), Open, "must be ready for 30m in all"},
		"passes":                  {ready(30), status(capstanv1.CheckPass, true), Verified, ""},
		"passes too seldom":       {ready(30), status(capstanv1.CheckPass, false), Open, "must pass 1 times in sequence"},
		"fails once":              {ready(30), status(capstanv1.CheckFail, false), Open, `check "errors" fails: why; after 2 failures in sequence the promotion fails`},
		"fails":                   {ready(1), status(capstanv1.CheckFail, true), ChecksFailed, `check "errors" of environment "prod" failed with 1.1: why; it is promoted no further`},
		"fails, and is unready":   {unready, status(capstanv1.CheckFail, true), ChecksFailed, ""},
		"unready":                 {unready, status(capstanv1.CheckPass, true), Degraded, ""},
		"no data, waits":          {ready(39), status(capstanv1.CheckNoData, false), Open, `check "errors" has no result: why`},
		"no data at the deadline": {ready(40), status(capstanv1.CheckNoData, false), Inconclusive, `has no verdict after 40m: check "errors" has no result: why`},
		"error at the deadline":   {ready(40), status(capstanv1.CheckError, false), Inconclusive, ""},
		"of another check":        {ready(30), []capstanv1.CheckStatus{{Name: "other", Verdict: capstanv1.CheckPass, Done: true}}, Open, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, p := NewWithT(t), p.DeepCopy()
			verdict := r.Judge(tc.trial, tc.checks)
			g.Expect(verdict).To(Equal(tc.verdict))
			p.Status.Trial, p.Status.Checks = tc.trial, tc.checks
			if verdict == Open {
				g.Expect(r.Waits(p, false)).To(ContainSubstring(tc.message))
			} else {
				g.Expect(r.Failed(p, verdict)).To(ContainSubstring(tc.message))
			}
		})
	}
	now := time.Unix(1_700_000_000, 0)
	done := soak.ResumeTrial(soak.Sums{State: soak.Ready, Ready: 31 * time.Minute, Observed: 31 * time.Minute}).Note(now, soak.Ready)
	g.Expect(r.Left(capstanv1.PhaseVerifying, done)).To(Equal(9*time.Minute), "only the deadline is left")
	wrong := Parse(&pipelinesv1.Verification{Checks: []pipelinesv1.Check{{Name: "none"}}}, "spec.verification")
	g.Expect(wrong.Err()).To(MatchError(`spec.verification.checks[0] (check "none"): set exactly one of cel and prometheus`))
}
