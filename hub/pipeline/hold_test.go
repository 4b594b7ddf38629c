package pipeline

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestHolds(t *testing.T) {
	g := NewWithT(t)
	var h holds
	key, now := types.NamespacedName{Namespace: "team", Name: "shop"}, time.Unix(1000, 0)
	g.Expect(h.wait(key, 0, 0, now)).To(BeZero(), "nothing to wait for")
	g.Expect(h.wait(key, 3, 0, now)).To(Equal(2 * time.Second))
	g.Expect(h.wait(key, 2, 0, now.Add(600*time.Millisecond))).To(Equal(1400 * time.Millisecond))
	var written []time.Duration
	for at := time.Duration(0); at < 20*time.Second; at += 500 * time.Millisecond {
		if h.wait(key, 1, 0, now.Add(at)) == 0 {
			written = append(written, at)
		}
	}
	g.Expect(written).To(Equal([]time.Duration{2 * time.Second, 6 * time.Second, 10 * time.Second, 14 * time.Second, 18 * time.Second}))
	g.Expect(h.wait(key, 1, 0, now.Add(-time.Hour))).To(Equal(slowestHold), "the clock was set back")
	g.Expect(h.wait(key, 0, 0, now.Add(19*time.Second))).To(BeZero(), "at once")
	g.Expect(h.lockedState.of).To(BeEmpty())
}

// Many Pipelines that wait at the same time are written one after the other, at a rate that depends on
// how long a write takes, and none of them later than longestHold.
func TestHoldsOfMany(t *testing.T) {
	for _, c := range []struct {
		took, last  time.Duration
		least, most int // writes in the first ten seconds
	}{
		{took: 0, last: 2 * time.Second, least: 500, most: 500},
		{took: 4 * time.Millisecond, last: 10 * time.Second, least: 490, most: 500},
		{took: 80 * time.Millisecond, last: 20 * time.Second, least: 40, most: 51},
		{took: time.Minute, last: 20 * time.Second, least: 12, most: 17},
	} {
		t.Run(c.took.String(), func(t *testing.T) {
			g := NewWithT(t)
			var h holds
			for range 50 {
				h.wrote(c.took)
			}
			start, reads := time.Unix(1000, 0), 0
			due, written := map[int]time.Duration{}, map[int]time.Duration{}
			for n := range 500 {
				due[n] = 0
			}
			for at := time.Duration(0); at < time.Minute && len(due) > 0; at += time.Millisecond {
				for n := range 500 {
					if when, is := due[n]; !is || when > at {
						continue
					}
					reads++
					wait := h.wait(types.NamespacedName{Namespace: "team", Name: strconv.Itoa(n)}, 1, 0, start.Add(at))
					if due[n] = at + wait + time.Duration(n%7)*time.Millisecond; wait == 0 { // It is handled late.
						written[n] = at
						delete(due, n)
					}
				}
			}
			last, early := time.Duration(0), 0
			for _, at := range written {
				g.Expect(at).To(BeNumerically(">=", leastHold))
				if last = max(last, at); at < 10*time.Second {
					early++
				}
			}
			g.Expect(written).To(HaveLen(500))
			g.Expect(last).To(BeNumerically("<=", c.last+7*time.Millisecond))
			g.Expect(early).To(And(BeNumerically(">=", c.least), BeNumerically("<=", c.most)))
			g.Expect(reads).To(BeNumerically("<=", 10*500), "each asks a few times")
		})
	}
}

// While a start goes on, which is while applications are observed, Pipelines of which targets are missing are not
// written, for longestStart at most. When it stops, they are, and when it goes on they wait again.
func TestHoldsWhileAFleetStarts(t *testing.T) {
	key, start := types.NamespacedName{Namespace: "team", Name: "shop"}, time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		// observed returns how many applications are observed after a time.
		observed func(at time.Duration) int
		written  []time.Duration
	}{
		{"one each second", func(at time.Duration) int { return int(at / time.Second) }, []time.Duration{longestStart, longestStart + nextHold}},
		{"until 30 s", func(at time.Duration) int { return int(min(at, 30*time.Second) / time.Second) }, seconds(33, 37, 41, 45)},
		{"again from 40 s", func(at time.Duration) int {
			return int((min(at, 30*time.Second) + max(0, at-40*time.Second)) / time.Second)
		}, append(seconds(33, 37), longestStart, longestStart+nextHold)},
		{"one in three seconds", func(at time.Duration) int { return int(at / (3 * time.Second)) }, seconds(2, 23, 47, 71)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			var h holds
			var written []time.Duration
			for at, due := time.Duration(0), time.Duration(0); len(written) < len(c.written); at += time.Second {
				h.wait(types.NamespacedName{Namespace: "team", Name: "other"}, 1, c.observed(at), start.Add(at))
				if at < due {
					continue
				}
				wait := h.wait(key, 1, c.observed(at), start.Add(at))
				g.Expect(wait).To(BeNumerically("<=", slowestHold))
				if due = at + wait; wait == 0 {
					written = append(written, at)
				}
			}
			g.Expect(written).To(Equal(c.written))
			g.Expect(h.wait(key, 0, 1000, start.Add(10*time.Second))).To(BeZero(), "one with all its targets is written at once")
		})
	}
}

func seconds(n ...int) []time.Duration {
	all := make([]time.Duration, len(n))
	for i := range n {
		all[i] = time.Duration(n[i]) * time.Second
	}
	return all
}
