package promotion

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// C25: the backoff that an attempt leaves in the status doubles up to a bound, is
// spread by a fifth at most, and is the same whoever computes it again.
func TestBackoff(t *testing.T) {
	for i, least := range []time.Duration{
		5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 320 * time.Second, 10 * time.Minute, 10 * time.Minute,
	} {
		g := NewWithT(t)
		var waits []time.Duration
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			p := &capstanv1.Promotion{}
			p.UID = uid
			p.Status.Attempt = &capstanv1.Attempt{Number: int64(i) + 1}
			wait := backoff(p, maxBackoff)
			g.Expect(wait).To(And(BeNumerically(">=", least), BeNumerically("<=", least+least/5)), "after attempt %d", i+1)
			g.Expect(backoff(p, maxBackoff)).To(Equal(wait))
			waits = append(waits, wait)
		}
		g.Expect(waits).NotTo(HaveEach(waits[0]), "promotions that failed together do not come back together")
	}
	g := NewWithT(t)
	p := &capstanv1.Promotion{}
	p.Status.Attempt = &capstanv1.Attempt{Number: 1 << 40}
	g.Expect(backoff(p, maxBackoff)).To(BeNumerically("<=", maxBackoff+maxBackoff/5))
}
