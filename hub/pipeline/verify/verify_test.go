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
	for wrong, v := range map[string]pipelinesv1.Verification{
		`spec.verification.for: "soon" is not a duration, such as 2h or 90m`:                          {For: "soon"},
		`spec.verification.for: -1s is not from 0s to 744h, in whole seconds`:                         {For: "-1s"},
		`spec.verification.tolerate: 745h is not from 0s to 744h, in whole seconds`:                   {Tolerate: "745h"},
		`spec.verification.deadline: 0s is not from 1s to 1489h, in whole seconds`:                    {Deadline: "0s"},
		`spec.verification.rolloutDeadline: 1500ms is not from 1s to 1489h, in whole seconds`:         {RolloutDeadline: "1500ms"},
		`spec.verification.deadline: 30m is not longer than for (30m): no revision could be verified`: {For: "30m", Deadline: "30m"},
	} {
		r := Parse(&v, "spec.verification")
		g.Expect(r.Err()).To(MatchError(wrong))
		g.Expect(r.Set()).To(BeTrue())
		g.Expect(r.Judge(&capstanv1.Trial{Phase: capstanv1.PhaseVerifying, ReadySeconds: 1 << 40})).To(Equal(Open), "nothing is decided until it is corrected")
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
				return r.Judge(&capstanv1.Trial{Phase: tc.phase, State: capstanv1.TrialState(s.State),
					ReadySeconds: int64(s.Ready.Seconds()), UnreadySeconds: int64(s.Unready.Seconds()), ObservedSeconds: int64(s.Observed.Seconds())})
			}
			g.Expect(judge(left - time.Second)).To(Equal(Open))
			g.Expect(judge(left)).To(Equal(tc.next))
			for _, other := range []soak.Verdict{soak.Progressing, soak.Unobserved} {
				g.Expect(r.Left(tc.phase, trial.Note(now, other))).To(BeZero(), "time alone changes nothing")
			}
		})
	}
	g.Expect(r.Judge(nil)).To(Equal(Open))
	g.Expect(Rules{}.Judge(&capstanv1.Trial{Phase: capstanv1.PhaseVerifying, ReadySeconds: 1})).To(Equal(Open))
}
