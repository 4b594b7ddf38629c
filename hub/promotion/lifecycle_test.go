package promotion

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// A promotion that fails has one Event with the cause, although it is stalled, too. One that
// is older than --stall-after has the Event Stalled.
func TestFailureHasOneEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		phase capstanv1.PromotionPhase
		age   time.Duration
		want  []string
	}{
		"failed":  {capstanv1.PhaseFailed, time.Minute, []string{"Warning Failed NoMarker: no file has the marker"}},
		"too old": {capstanv1.PhasePromoting, time.Hour, []string{"Warning Stalled in Promoting since 2023-11-14T21:13:20Z, which is longer than --stall-after 30m0s: no file has the marker"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := time.Unix(1_700_000_000, 0)
			recorder := events.NewFakeRecorder(10)
			r := New(Options{Clock: testclock.NewFakeClock(now), Recorder: recorder})
			before := &capstanv1.Promotion{Status: capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting}}
			p := before.DeepCopy()
			p.Status.Phase, p.Status.Reason, p.Status.Message = tc.phase, "NoMarker", "no file has the marker"
			p.Status.StartTime = &metav1.Time{Time: now.Add(-tc.age)}
			r.conditions(p, metav1.NewTime(now))
			r.reportTransition(t.Context(), before, p)
			var got []string
			for range len(recorder.Events) {
				got = append(got, <-recorder.Events)
			}
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

// A promotion says what it does and what it waits for.
func TestSentences(t *testing.T) {
	g := NewWithT(t)
	p := &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{Environment: "staging", Revision: "1.1.0", Approval: &capstanv1.Approval{By: "alice"}}}
	g.Expect(sentence(p, decision.Automatic)).To(Equal("Starting (no approval needed)"))
	g.Expect(sentence(p, decision.Approved)).To(Equal("Approved by alice; starting"))
	p.Spec.Rejection = &capstanv1.Rejection{By: "bob", Comment: "not on a Friday"}
	g.Expect(sentence(p, decision.RejectedByUser)).To(Equal(`rejected by bob: not on a Friday; the hub promotes into environment "staging" again when there is a new revision, or when spec.retry is raised`))
	g.Expect(sentence(p, decision.CarriedOut)).To(Equal(`waiting for every target of "staging" to run 1.1.0`))
	p.Spec.Pipeline.Name = "app"
	g.Expect(sentence(p, decision.EnvironmentRemoved)).To(Equal(`environment "staging" was removed from Pipeline app`))
	p.Spec.Environment, p.Spec.Wave = "prod/canary", &capstanv1.PromotionWave{Environment: "prod", Name: "canary"}
	g.Expect(sentence(p, decision.EnvironmentRemoved)).To(Equal(`environment "prod" of Pipeline app was removed, or no cluster is in its wave "canary" any more`))
}
