package pipeline

import (
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
	g.Expect(h.wait(key, 1, now.Add(-time.Hour))).To(Equal(mostHold), "the clock was set back")
	g.Expect(h.wait(key, 0, now.Add(19*time.Second))).To(BeZero(), "at once")
	g.Expect(h.lockedState).To(BeEmpty())
}
