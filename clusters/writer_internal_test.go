package clusters

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Of many objects, those that show a problem or its end are written first, and then the oldest.
func TestProblemsAreWrittenFirst(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	w := newWriter(nil, Options{Clock: clock}, logr.Discard())
	for name, state := range map[multicluster.ClusterName]capstanv1.ConnectionState{
		"a": capstanv1.ConnectionReady, "b": capstanv1.ConnectionReady, "c": capstanv1.ConnectionUnreachable, "d": capstanv1.ConnectionConnecting, "e": capstanv1.ConnectionReady,
	} {
		w.queue(name, desired{status: capstanv1.ClusterConnectionStatus{State: state}})
	}
	w.remove("f", Ref{})
	w.lockedState.written["e"] = &capstanv1.ClusterConnection{Status: capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionDegraded}}
	clock.Step(time.Second)
	w.queue("g", desired{status: capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady}})
	clock.Step(time.Hour)
	var order []multicluster.ClusterName
	for {
		round, _ := w.pick(1)
		if len(round) == 0 {
			break
		}
		order = append(order, round[0].name)
	}
	g.Expect(order).To(HaveLen(7))
	g.Expect(order[:3]).To(ConsistOf(multicluster.ClusterName("c"), multicluster.ClusterName("e"), multicluster.ClusterName("f")))
	g.Expect(order[6]).To(Equal(multicluster.ClusterName("g")), "it was queued last")
}

// More objects are due than a round has: it has the first ones, in their order.
func TestARoundOfMany(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	w := newWriter(nil, Options{Clock: clock}, logr.Discard())
	var queued []multicluster.ClusterName
	for n := range 10 {
		name := multicluster.ClusterName(string(rune('a' + n)))
		queued = append(queued, name)
		w.queue(name, desired{status: capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady}})
		clock.Step(time.Second)
	}
	for _, expected := range [][]multicluster.ClusterName{queued[:4], queued[4:8], queued[8:]} {
		round, _ := w.pick(4)
		var names []multicluster.ClusterName
		for _, item := range round {
			names = append(names, item.name)
		}
		g.Expect(names).To(Equal(expected))
	}
}

// A round has the most urgent objects, and each object once. What is not due stays in the queue.
func TestRounds(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	w := newWriter(nil, Options{Clock: clock, Timings: Timings{WriteDelay: time.Second}}, logr.Discard())
	names := func(round []picked) (all []multicluster.ClusterName) {
		for _, item := range round {
			all = append(all, item.name)
		}
		return all
	}
	ready, lost := desired{status: capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady}}, desired{status: capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionUnreachable}}
	w.queue("a", ready)
	w.queue("b", ready)
	clock.Step(500 * time.Millisecond)
	w.queue("late", lost)
	clock.Step(500 * time.Millisecond)
	round, _ := w.pick(4)
	g.Expect(names(round)).To(ConsistOf(multicluster.ClusterName("a"), multicluster.ClusterName("b")))
	round, next := w.pick(4)
	g.Expect(round).To(BeEmpty())
	g.Expect(next).To(Equal(500 * time.Millisecond))
	w.queue("c", ready)
	clock.Step(time.Second)
	round, _ = w.pick(1)
	g.Expect(names(round)).To(ConsistOf(multicluster.ClusterName("late")), "it shows a problem")
}
