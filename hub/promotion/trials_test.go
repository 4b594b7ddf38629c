package promotion

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
)

// onTrial is a promotion into staging with an open pull request, whose environment runs the revision.
type onTrial struct {
	*Reconciler
	clock    *testclock.FakeClock
	pipeline *pipelinesv1.Pipeline
	p        *capstanv1.Promotion
}

func newTrial(required string) *onTrial {
	c := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	now := metav1.NewTime(c.Now())
	strategy := pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}}
	targets := []pipelinesv1.Target{{Namespace: "web"}}
	pipeline := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{UID: "pipeline"},
		Spec: pipelinesv1.PipelineSpec{
			Promotion: &pipelinesv1.Promotion{Strategy: strategy}, Verification: &pipelinesv1.Verification{For: required},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: targets}, {Name: "staging", Targets: targets}},
		},
		Status: pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets, Environments: map[string]*pipelinesv1.EnvironmentStatus{
			"dev":     {Agreed: &pipelinesv1.AgreedRevision{Revision: "1.1", Sequence: 2}},
			"staging": {Targets: []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.1", ObservedTime: &now}}},
		}},
	}
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{UID: "promotion"},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{UID: pipeline.UID}, Environment: "staging", Number: 1, Revision: "1.1",
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 2}, Strategy: strategy,
		},
		Status: capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, PullRequest: &capstanv1.PullRequestStatus{}, StartTime: &now},
	}
	return &onTrial{New(Options{Clock: c, Recorder: events.NewFakeRecorder(100)}), c, pipeline, p}
}

func (o *onTrial) view() view {
	return view{pipeline: o.pipeline, now: o.clock.Now(), rules: gate.For(o.pipeline, 1), verification: verify.For(o.pipeline, 1)}
}

// after advances the promotion at the end of a duration.
func (o *onTrial) after(d time.Duration) {
	o.clock.Step(d)
	o.advance(o.p, o.view(), decision.OutcomeNone, "", "")
}

// A Secret that a look at the pull request failed with is changed after the revision failed in the
// environment: that starts nothing again.
func TestAChangedSecretStartsNoFailedVerificationAgain(t *testing.T) {
	t.Parallel()
	g, o := NewWithT(t), newTrial("30m")
	o.p.Status.Secret = &capstanv1.SecretVersion{Name: "token", ResourceVersion: "1"}
	o.after(0)
	g.Expect(o.p.Status).To(And(HaveField("Phase", capstanv1.PhaseVerifying), HaveField("Secret", BeNil()), HaveField("Failure", BeNil())))
	o.pipeline.Status.Environments["staging"].Targets[0].Ready = false
	o.after(time.Second)
	o.after(6 * time.Minute)
	g.Expect(o.p.Status.Reason).To(Equal(string(decision.Degraded)))
	o.p.Status.Secret = &capstanv1.SecretVersion{Name: "token", ResourceVersion: "1"} // As an earlier hub has left it.
	v := o.view()
	v.secretChanged = true
	o.advance(o.p, v, decision.OutcomeNone, "", "")
	g.Expect(o.p.Status.Reason).To(Equal(string(decision.Degraded)))
}

// What an earlier process wrote about targets that this one has not observed is not counted: neither as healthy nor
// as unhealthy time, and no promotion arrives by it.
func TestAStoredStatusIsNotJudged(t *testing.T) {
	t.Parallel()
	for name, fleet := range map[string]*pipelinesv1.FleetStatus{"targets": nil, "a fleet": {Targets: 5, Required: 5, Ready: 5, Revision: "1.1"}} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), newTrial("30m")
			if fleet != nil {
				o.pipeline.Spec.Environments[1].Quorum = &pipelinesv1.Quorum{}
				o.pipeline.Status.Environments["staging"].Fleet = fleet
			}
			var stands []string
			o.Observed = func(types.NamespacedName, types.UID) ([]string, bool) { return stands, true }
			view := func() view {
				v := o.view()
				o.distrust(o.p, &v)
				return v
			}
			stands = []string{"staging"}
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			g.Expect(o.p.Status.Phase).To(Equal(capstanv1.PhaseAwaitingMerge))
			stands = nil
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			g.Expect(o.p.Status.Phase).To(Equal(capstanv1.PhaseVerifying))
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			o.clock.Step(10 * time.Minute)
			stands = []string{"staging"}
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			o.clock.Step(time.Hour)
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			g.Expect(o.p.Status.Phase).To(Equal(capstanv1.PhaseVerifying))
			sums, _ := o.trials.of(o.p)
			g.Expect(sums.Sums().Ready).To(Equal(10 * time.Minute))
			g.Expect(o.pipeline.Status.Environments["staging"].Targets[0].Stale).To(BeFalse(), "the object of the cache is not changed")
			stands = nil
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			o.clock.Step(20 * time.Minute)
			o.advance(o.p, view(), decision.OutcomeNone, "", "")
			g.Expect(o.p.Status.Reason).To(Equal(string(decision.Verified)))
		})
	}
}

// The sums are stored in time however many events come, and survive an edit that is invalid.
func TestSumsAreKept(t *testing.T) {
	t.Parallel()
	g, o := NewWithT(t), newTrial("24h")
	o.after(0)
	o.after(0)
	every := verify.For(o.pipeline, 1).StoreEvery(capstanv1.PhaseVerifying)
	o.after(every - time.Minute)
	g.Expect(o.p.Status.Trial.ReadySeconds).To(BeZero())
	g.Expect(o.untilVerdict(o.p, o.view())).To(Equal(time.Minute))

	o.pipeline.Spec.Verification.For = "soon"
	o.after(0)
	o.after(time.Hour)
	o.pipeline.Spec.Verification.For = "24h"
	o.after(0)
	t1, runs := o.trials.of(o.p)
	g.Expect(runs).To(BeTrue())
	g.Expect(t1.Sums().Ready).To(Equal(every - time.Minute))
}
