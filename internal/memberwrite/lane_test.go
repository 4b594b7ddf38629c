package memberwrite

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const retry = 500 * time.Millisecond

var rests = Rests{Min: 10 * time.Second, Max: 5 * time.Minute}

func newLanes(c clock.PassiveClock) *Lanes { return &Lanes{Clock: c, Rests: rests, Retry: retry} }

const slow, quick = multicluster.ClusterName("Cluster/a/slow"), multicluster.ClusterName("Cluster/a/quick")

// A cluster uses its share of the workers, independent of the others.
func TestLanesShare(t *testing.T) {
	g := NewWithT(t)
	l := newLanes(testclock.NewFakeClock(time.Now()))
	for range Share {
		g.Expect(l.Enter(slow)).To(BeZero())
	}
	g.Expect(l.Enter(slow)).To(Equal(retry))
	g.Expect(l.Enter(quick)).To(BeZero())
	l.Leave(slow, Answered)
	g.Expect(l.Enter(slow)).To(BeZero(), "one place was given back")
	g.Expect(l.Enter(slow)).To(Equal(retry))
	for range Share {
		l.Leave(slow, Answered)
	}
	l.Leave(quick, Answered)
	g.Expect(l.lockedState).To(BeEmpty(), "nothing is kept of clusters that answer")
}

// A cluster that did not answer rests, twice as long each time. Then one call tries for
// all, and its answer ends the rest.
func TestLanesRest(t *testing.T) {
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	l := newLanes(c)
	for rest := rests.Min; ; rest *= 2 {
		rest = min(rest, rests.Max)
		g.Expect(l.Enter(slow)).To(BeZero())
		l.Leave(slow, Unanswered)
		g.Expect(l.Enter(slow)).To(Equal(rest))
		g.Expect(l.Enter(quick)).To(BeZero(), "the rest of one cluster does not concern another")
		l.Leave(quick, Answered)
		c.Step(rest - time.Millisecond)
		g.Expect(l.Enter(slow)).To(Equal(time.Millisecond))
		c.Step(time.Millisecond)
		if rest == rests.Max {
			break
		}
	}
	g.Expect(l.Enter(slow)).To(BeZero(), "one tries")
	g.Expect(l.Enter(slow)).To(Equal(retry), "for all")
	l.Leave(slow, Answered)
	for range Share {
		g.Expect(l.Enter(slow)).To(BeZero(), "it has answered")
	}
	l.Leave(slow, Unanswered)
	g.Expect(l.Enter(slow)).To(Equal(rests.Min), "the old rests are forgotten")
}

// Both places are taken when the cluster stops to answer: an answer that comes after the
// call without one ends the rest, an answer that came before does not.
func TestLanesOfTwoAtOnce(t *testing.T) {
	g := NewWithT(t)
	l := newLanes(testclock.NewFakeClock(time.Now()))
	enterBoth := func() {
		g.Expect(l.Enter(slow)).To(BeZero())
		g.Expect(l.Enter(slow)).To(BeZero())
	}
	enterBoth()
	l.Leave(slow, Unanswered)
	l.Leave(slow, Answered)
	g.Expect(l.Enter(slow)).To(BeZero(), "an answer came after the call without one")
	l.Leave(slow, Answered)

	enterBoth()
	l.Leave(slow, Answered)
	l.Leave(slow, Unanswered)
	g.Expect(l.Enter(slow)).To(Equal(rests.Min))
}

// A turn that was skipped changes neither the rest nor its end.
func TestLaneSkipped(t *testing.T) {
	g := NewWithT(t)
	var l Lane
	now := time.Now()
	l.Enter()
	l.Leave(Unanswered, rests, now)
	g.Expect(l.Resting(now)).To(Equal(rests.Min))
	l.Enter()
	g.Expect(l.Free()).To(BeFalse(), "one tries for all")
	l.Leave(Skipped, rests, now)
	g.Expect(l.Resting(now)).To(Equal(rests.Min))
	g.Expect(l.Free()).To(BeTrue())
	g.Expect(l.Idle()).To(BeFalse())
}
