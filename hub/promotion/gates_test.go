package promotion

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
)

// A gate that was removed while it was closed has waited until then, as one that opened.
func TestWaitOfARemovedGate(t *testing.T) {
	t.Parallel()
	g, now := NewWithT(t), time.Unix(1_700_000_000, 0)
	r := New(Options{Clock: testclock.NewFakeClock(now), Recorder: events.NewFakeRecorder(10)})
	closed := func(name string, kind capstanv1.GateType) capstanv1.GateStatus {
		return capstanv1.GateStatus{Name: name, Type: kind, State: capstanv1.GateClosed, LastTransitionTime: &metav1.Time{Time: now.Add(-time.Minute)}}
	}
	before := &capstanv1.Promotion{Status: capstanv1.PromotionStatus{Gates: []capstanv1.GateStatus{
		closed(capstanv1.GatePromotionWindows, capstanv1.PromotionWindowGate), closed(capstanv1.GateWindows, capstanv1.WindowGate),
		{Name: capstanv1.GateSoak, Type: capstanv1.SoakGate, State: capstanv1.GateOpen, LastTransitionTime: &metav1.Time{Time: now}},
	}}}
	p := before.DeepCopy()
	p.Status.Gates = p.Status.Gates[1:2]
	r.reportGates(t.Context(), before, p)
	g.Expect(testutil.CollectAndCount(r.metrics.gateWait)).To(Equal(1), "the other is still closed, and the third was open")
	r.reportGates(t.Context(), p, &capstanv1.Promotion{})
	g.Expect(testutil.CollectAndCount(r.metrics.gateWait)).To(Equal(2))
}

// An override is reported once, although the window that it opens closes every night.
func TestAnOverrideIsReportedOnce(t *testing.T) {
	t.Parallel()
	g, recorder := NewWithT(t), events.NewFakeRecorder(100)
	clock := testclock.NewFakeClock(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	r := New(Options{Clock: clock, Recorder: recorder})
	night := pipelinesv1.Window{Name: "night", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow, Schedule: "0 20 * * *", Duration: "12h", TimeZone: "UTC"}}
	v := view{
		pipeline: &pipelinesv1.Pipeline{Status: pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets}},
		rules:    gate.Parse(&pipelinesv1.Gates{Windows: []pipelinesv1.Window{night}}, "spec.gates"),
	}
	p := &capstanv1.Promotion{Status: capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}}
	for hour := range 72 {
		if hour == 10 {
			p.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateWindows, By: "olga", Reason: "hotfix"}}
		}
		before := p.DeepCopy()
		v.now = clock.Now()
		v.showGates(p)
		r.reportGates(t.Context(), before, p)
		clock.Step(time.Hour)
	}
	overridden := 0
	for range len(recorder.Events) {
		if strings.HasPrefix(<-recorder.Events, "Warning GateOverridden") {
			overridden++
		}
	}
	g.Expect(overridden).To(Equal(1))
	g.Expect(testutil.ToFloat64(r.metrics.overrides.WithLabelValues(string(capstanv1.WindowGate)))).To(Equal(1.0))
}
