package pipeline

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/index"
)

func TestHolds(t *testing.T) {
	g := NewWithT(t)
	var h holds
	key, now := types.NamespacedName{Namespace: "team", Name: "shop"}, time.Unix(1000, 0)
	g.Expect(h.wait(key, 0, start{}, now)).To(BeZero(), "nothing to wait for")
	g.Expect(h.wait(key, 3, start{}, now)).To(Equal(2 * time.Second))
	g.Expect(h.wait(key, 2, start{}, now.Add(600*time.Millisecond))).To(Equal(1400 * time.Millisecond))
	var written []time.Duration
	for at := time.Duration(0); at < 20*time.Second; at += 500 * time.Millisecond {
		if h.wait(key, 1, start{}, now.Add(at)) == 0 {
			written = append(written, at)
		}
	}
	g.Expect(written).To(Equal([]time.Duration{2 * time.Second, 6 * time.Second, 10 * time.Second, 14 * time.Second, 18 * time.Second}))
	g.Expect(h.wait(key, 1, start{}, now.Add(-time.Hour))).To(Equal(slowestHold), "the clock was set back")
	g.Expect(h.wait(key, 0, start{}, now.Add(19*time.Second))).To(BeZero(), "at once")
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
			began, reads := time.Unix(1000, 0), 0
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
					wait := h.wait(types.NamespacedName{Namespace: "team", Name: strconv.Itoa(n)}, 1, start{}, began.Add(at))
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

// While a start goes on, which is while it makes progress, a Pipeline of which targets are missing is not
// written, until its time is over. When the start stops it is, and when it goes on the Pipeline waits again.
func TestHoldsWhileAFleetStarts(t *testing.T) {
	key, began := types.NamespacedName{Namespace: "team", Name: "shop"}, time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		// observed returns how many applications are observed after a time.
		observed func(at time.Duration) int
		until    time.Duration
		written  []time.Duration
	}{
		{"one each second", func(at time.Duration) int { return int(at / time.Second) }, time.Minute, seconds(60, 64, 68)},
		{"until 30 s", func(at time.Duration) int { return int(min(at, 30*time.Second) / time.Second) }, time.Minute, seconds(37, 41, 45, 49)},
		{"again from 42 s", func(at time.Duration) int {
			return int((min(at, 30*time.Second) + max(0, at-42*time.Second)) / time.Second)
		}, time.Minute, seconds(37, 41, 60)},
		{"fewer and more", func(at time.Duration) int { return 10 + int(at/time.Second)%2 }, time.Minute, seconds(2, 6, 10, 14)},
		{"written before", func(at time.Duration) int { return int(at / time.Second) }, 0, seconds(2, 6, 10, 14)},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			var h holds
			var written []time.Duration
			for at, due := time.Duration(0), time.Duration(0); len(written) < len(c.written); at += time.Second {
				of := start{0, c.observed(at), began, began.Add(c.until)}
				h.wait(types.NamespacedName{Namespace: "team", Name: "other"}, 1, of, began.Add(at))
				if at < due {
					continue
				}
				wait := h.wait(key, 1, of, began.Add(at))
				g.Expect(wait).To(BeNumerically("<=", slowestHold))
				if due = at + wait; wait == 0 {
					written = append(written, at)
				}
			}
			g.Expect(written).To(Equal(c.written))
			g.Expect(h.wait(key, 0, start{0, 1000, began, began.Add(time.Hour)}, began.Add(10*time.Second))).To(BeZero(), "one with all its targets is written at once")
		})
	}
}

// The start of a hub is over when it made no progress for a tenth of its time.
func TestWhenAStartIsOver(t *testing.T) {
	key, began := types.NamespacedName{Namespace: "team", Name: "shop"}, time.Unix(1000, 0)
	for _, c := range []struct{ at, longest time.Duration }{
		{2 * time.Second, leastPause},
		{5 * time.Second, leastPause},
		{15 * time.Second, 1500 * time.Millisecond},
		{20 * time.Second, longestPause},
		{time.Minute, longestPause},
	} {
		for _, short := range []time.Duration{time.Millisecond, 0} {
			var h holds
			pause := c.longest - short
			wait := func(key types.NamespacedName, observed int, at time.Duration) time.Duration {
				return h.wait(key, 1, start{0, observed, began, began.Add(longestStart)}, began.Add(at))
			}
			NewWithT(t).Expect(wait(key, 1, c.at-leastHold)).To(Equal(leastHold))
			wait(types.NamespacedName{Namespace: "team", Name: "other"}, 2, c.at-pause)
			NewWithT(t).Expect(wait(key, 2, c.at) > 0).To(Equal(short > 0), "%s after a pause of %s", c.at, pause)
		}
	}
}

// Only Pipelines that this process has not written wait while the hub starts, and only shortly after it began to lead.
func TestWhatAStartHolds(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*scene)
		first time.Duration
	}{
		"a new Pipeline":         {func(*scene) {}, longestStart},
		"its status is stored":   {func(s *scene) { s.p.Status.ObservedGeneration = s.p.Generation }, standFor},
		"edited since":           {func(s *scene) { s.p.Status.ObservedGeneration = s.p.Generation; s.p.Generation++ }, longestStart},
		"written by the process": {func(s *scene) { s.r.observed.Store(client.ObjectKeyFromObject(s.p), observedAs{uid: s.p.UID}) }, leastHold},
		"later":                  {func(s *scene) { s.clock.Step(longestStart) }, leastHold},
		"on a standby":           {func(s *scene) { s.standby() }, leastHold},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			c.edit(s)
			_, written := s.r.Observed(client.ObjectKeyFromObject(s.p), s.p.UID)
			began := s.clock.Now()
			for n := range 200 { // Each second another cluster is connected, or observed.
				if n%2 == 0 {
					s.r.connected = func() int64 { return int64(n + 2) }
				} else {
					other := index.Object{Cluster: "Cluster/apps/" + strconv.Itoa(n), Kind: helmReleases, Namespace: "dev", Name: "web"}
					s.r.Index.SetPipeline(types.NamespacedName{Namespace: "apps", Name: strconv.Itoa(n)}, index.Use{Refs: []string{other.Cluster}, Objects: []index.Object{other}})
					s.r.Index.Observe(other, index.Observation{Found: true, Ready: true, Revision: "1.0"})
				}
				if s.r.hold(s.p, 1, written) == 0 {
					s.g.Expect(s.clock.Since(began)).To(Equal(c.first))
					return
				}
				s.clock.Step(time.Second)
			}
			t.Error("it is held without end")
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
