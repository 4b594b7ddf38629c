package queue

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"
)

// An extension and the last job of one message may be in one batch: the failure of the one leaves
// the other as it is. A job that fails too often is reported once.
func TestBatchOfOneMessage(t *testing.T) {
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	var done, failed []job
	b := newBatcher(c, nil, func(jobs []job) { done = append(done, jobs...) }, func(jobs []job) { failed = append(failed, jobs...) })
	d := &Delivery{}
	extension, last := job{d: d}, job{d: d, last: true}
	b.put(extension, last)
	batch, _ := b.take(false)
	g.Expect(batch).To(HaveLen(2))
	b.finish(batch, []job{extension}, false)
	g.Expect(done).To(Equal([]job{last}))

	for try := 1; ; try++ {
		none, wait := b.take(false)
		g.Expect(none).To(BeEmpty())
		g.Expect(wait).To(BeNumerically(">", 0))
		c.Step(wait)
		again, _ := b.take(false)
		g.Expect(again).To(HaveLen(1))
		b.finish(again, again, false)
		if len(failed) > 0 {
			g.Expect(try).To(Equal(maxTries - 1))
			break
		}
	}
	g.Expect(failed).To(HaveLen(1))
	g.Expect(done).To(HaveLen(1))
	g.Expect(b.active).To(BeZero())
}

// An extension of a message that is being settled is not made: it would undo the delay of a retry.
func TestLateExtension(t *testing.T) {
	g := NewWithT(t)
	c := New(Options{Clock: testclock.NewFakeClock(time.Now())})
	d := &Delivery{consumer: c, state: settling}
	g.Expect(c.changeBatch(context.Background(), []job{{d: d, visibility: time.Minute}})).To(BeEmpty())
	g.Expect(c.stillDue([]job{{d: d}, {d: d, last: true}})).To(HaveLen(1))
}
