package pullrequest

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/strategy"
)

// A hub that starts with a thousand open pull requests sets their commit statuses one after the other.
// That does not take the polls of pull requests, and keeps both below GitHub's 5,000 requests per hour.
func TestCommitStatusesHaveTheirOwnPace(t *testing.T) {
	t.Parallel()
	g, now := NewWithT(t), time.Unix(1_700_000_000, 0)
	p := newPace()
	g.Expect(p.idle(now)).To(BeTrue())
	var first, later int
	for range 1000 {
		if p.show(now) == nil {
			first++
		}
	}
	g.Expect(first).To(Equal(showBurst))
	g.Expect(p.idle(now)).To(BeFalse(), "it is not forgotten while it limits")
	g.Expect(p.poll(now)).To(Succeed())
	var wait *strategy.RetryAfterError
	g.Expect(errors.As(p.show(now), &wait)).To(BeTrue())
	g.Expect(wait).To(And(HaveField("After", showAgain), HaveField("Untried", true)))
	for second := range 3600 {
		at := now.Add(time.Duration(second) * time.Second)
		for range 5 {
			if p.show(at) == nil {
				later++
			}
			if p.poll(at) == nil {
				later++
			}
		}
	}
	g.Expect(later).To(And(BeNumerically(">", 4000), BeNumerically("<", 4500)))
}
