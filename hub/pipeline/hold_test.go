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
	g.Expect(h.wait(key, 0, now)).To(BeZero(), "nothing to wait for")
	g.Expect(h.wait(key, 3, now)).To(Equal(2 * time.Second))
	g.Expect(h.wait(key, 2, now.Add(600*time.Millisecond))).To(Equal(1400 * time.Millisecond))
	var written []time.Duration
	for at := time.Duration(0); at < 20*time.Second; at += 500 * time.Millisecond {
		if h.wait(key, 1, now.Add(at)) == 0 {
			written = append(written, at)
		}
	}
	g.Expect(written).To(Equal([]time.Duration{2 * time.Second, 6 * time.Second, 10 * time.Second, 14 * time.Second, 18 * time.Second}))
	g.Expect(h.wait(key, 1, now.Add(-time.Hour))).To(Equal(longestHold), "the clock was set back")
	g.Expect(h.wait(key, 0, now.Add(19*time.Second))).To(BeZero(), "at once")
	g.Expect(h.lockedState.until).To(BeEmpty())
}

// Of many Pipelines that wait at the same time, each has its turn; a later one is not behind those
// that do not wait any more.
func TestHoldsOfMany(t *testing.T) {
	g := NewWithT(t)
	var h holds
	now := time.Unix(1000, 0)
	name := func(n int) types.NamespacedName {
		return types.NamespacedName{Namespace: "team", Name: strconv.Itoa(n)}
	}
	for n := range 1000 {
		turn := min(2*time.Second+time.Duration(n)*200*time.Millisecond, 20*time.Second)
		g.Expect(h.wait(name(n), 1, now)).To(Equal(turn), "%d", n)
	}
	g.Expect(h.wait(name(1), 1, now.Add(2*time.Second))).To(Equal(200 * time.Millisecond))
	g.Expect(h.wait(name(0), 1, now.Add(2*time.Second))).To(BeZero(), "its turn")
	g.Expect(h.wait(name(1000), 1, now.Add(10*time.Second))).To(Equal(10*time.Second+holdApart), "behind the others")
	for n := range 1001 {
		h.wait(name(n), 0, now.Add(11*time.Second))
	}
	g.Expect(h.wait(name(1), 1, now.Add(11*time.Second))).To(Equal(leastHold), "none waits")
}
