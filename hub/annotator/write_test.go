package annotator

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const slow, quick = multicluster.ClusterName("Cluster/a/slow"), multicluster.ClusterName("Cluster/a/quick")

// A cluster has its share of the workers, whatever others do.
func TestLanesShare(t *testing.T) {
	g := NewWithT(t)
	l := lanes{clock: testclock.NewFakeClock(time.Now())}
	for range laneShare {
		g.Expect(l.enter(slow)).To(BeZero())
	}
	g.Expect(l.enter(slow)).To(Equal(laneRetry))
	g.Expect(l.enter(quick)).To(BeZero())
	l.leave(slow, false)
	g.Expect(l.enter(slow)).To(BeZero(), "one place was given back")
	g.Expect(l.enter(slow)).To(Equal(laneRetry))
	for range laneShare {
		l.leave(slow, false)
	}
	l.leave(quick, false)
	g.Expect(l.lockedState).To(BeEmpty(), "nothing is kept of clusters that answer")
}

// A cluster that kept silent is left alone, twice as long each time; then one tries for
// all, and its answer ends the rest.
func TestLanesRest(t *testing.T) {
	g := NewWithT(t)
	clock := testclock.NewFakeClock(time.Now())
	l := lanes{clock: clock}
	for rest := laneRest; ; rest *= 2 {
		rest = min(rest, laneRestMax)
		g.Expect(l.enter(slow)).To(BeZero())
		l.leave(slow, true)
		g.Expect(l.enter(slow)).To(Equal(rest))
		g.Expect(l.enter(quick)).To(BeZero(), "another's silence is nothing to it")
		l.leave(quick, false)
		clock.Step(rest - time.Millisecond)
		g.Expect(l.enter(slow)).To(Equal(time.Millisecond))
		clock.Step(time.Millisecond)
		if rest == laneRestMax {
			break
		}
	}
	g.Expect(l.enter(slow)).To(BeZero(), "one tries")
	g.Expect(l.enter(slow)).To(Equal(laneRetry), "for all")
	l.leave(slow, false)
	for range laneShare {
		g.Expect(l.enter(slow)).To(BeZero(), "it has answered")
	}
	l.leave(slow, true)
	g.Expect(l.enter(slow)).To(Equal(laneRest), "the old rests are forgotten")
}

// Both places are taken when the cluster falls silent: an answer that comes after the
// silence ends the rest, one that came before does not.
func TestLanesOfTwoAtOnce(t *testing.T) {
	g := NewWithT(t)
	l := lanes{clock: testclock.NewFakeClock(time.Now())}
	enterBoth := func() {
		g.Expect(l.enter(slow)).To(BeZero())
		g.Expect(l.enter(slow)).To(BeZero())
	}
	enterBoth()
	l.leave(slow, true)
	l.leave(slow, false)
	g.Expect(l.enter(slow)).To(BeZero(), "an answer came after the silence")
	l.leave(slow, false)

	enterBoth()
	l.leave(slow, false)
	l.leave(slow, true)
	g.Expect(l.enter(slow)).To(Equal(laneRest))
}
