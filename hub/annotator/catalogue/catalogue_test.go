package catalogue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
)

func TestFirstAnswer(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	answer, err := w.get(t, ireland, "g5.xlarge")
	g.Expect(err).NotTo(HaveOccurred())
	want, err := capacity.FromInstanceTypeInfo(ec2.Fixture("g5.xlarge"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(catalogue.Answer{Capacity: want, Seen: w.clock.Now()}))

	for _, info := range ec2.Fixtures() {
		_, err := w.get(t, ireland, string(info.InstanceType))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.calls(ireland)).To(Equal(1), "33 types are one page")
	g.Expect(w.calls(ohio)).To(BeZero(), "a region that nobody asks about is not listed")
	g.Expect(w.toldOf(ireland)()).To(BeZero(), "nobody went without an answer")
}

// One listing per region whatever the concurrency, in pages of 100.
func TestOneListingForAll(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	all := ec2.Many(1400)
	w.ec2.Offer(ireland, all...)
	var askers sync.WaitGroup
	failures := make(chan error, 1000)
	for i := range 1000 {
		askers.Go(func() {
			_, err := w.get(t, []string{ireland, ohio}[i%2], string(all[i%33].InstanceType))
			failures <- err
		})
	}
	askers.Wait()
	for range 1000 {
		g.Expect(<-failures).NotTo(HaveOccurred())
	}
	g.Expect(w.listings(ireland)).To(Equal(1))
	g.Expect(w.listings(ohio)).To(Equal(1))
	g.Expect(w.calls(ireland)).To(Equal(14))
	g.Expect(w.Records(aws.Match{Region: ireland})[0].Form.Get("MaxResults")).To(Equal("100"))
	_, err := w.get(t, ireland, string(all[1399].InstanceType))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.calls(ireland)).To(Equal(14))
}

// A caller returns when its context ends. The listing continues, and Notify reports its end.
func TestWaitersHonourTheirContexts(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	resume := make(chan struct{})
	w.ec2.Offer(ireland, ec2.Many(200)...)
	remove := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := w.Get(ctx, catalogue.Query{Region: ireland, InstanceType: "m5.large"})
		gone <- err
		close(resume)
	}()
	g.Eventually(func() int { return w.UnderWay(aws.Match{Region: ireland}) }, patience).Should(Equal(1))
	cancel()
	var err error
	g.Eventually(gone, patience).Should(Receive(&err))
	<-resume
	g.Expect(err).To(MatchError(catalogue.ErrPending))
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(err).To(MatchError("EC2 in region eu-west-1 has not answered yet"))

	answer, err := w.get(t, ohio, "m5.large")
	g.Expect(err).NotTo(HaveOccurred(), "a region that hangs holds no other")
	g.Expect(answer.Capacity.VCPU).To(Equal(int64(2)))
	remove()
}

// Notify reports a failure too, once, so that a caller need not poll.
func TestAFailureIsToldToWhoDidNotWait(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{Call: 3 * time.Second})
	heal := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Hang: true})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ask := func() error {
		_, err := w.Get(gone, catalogue.Query{Region: ireland, InstanceType: "m5.large"})
		return err
	}
	g.Expect(ask()).To(MatchError(catalogue.ErrPending))
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
	g.Expect(ask()).To(MatchError(catalogue.ErrUnavailable))

	// No caller got ErrPending before the next failure, so it is not reported; the answer is.
	w.clock.Step(10 * time.Second)
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).To(MatchError(catalogue.ErrUnavailable))
	g.Expect(w.toldOf(ireland)()).To(Equal(1))
	heal()
	w.clock.Step(20 * time.Second)
	_, err = w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(2))
}

// A call without an answer ends after its time limit, and Notify reports it.
func TestAHangingRegionRecovers(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{Call: 3 * time.Second})
	remove := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Hang: true})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).To(MatchError(catalogue.ErrUnavailable))
	g.Expect(err).To(MatchError("EC2 in region eu-west-1 is unreachable or returned an invalid answer"))
	remove()
	w.clock.Step(10 * time.Second)
	_, err = w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
}

// While EC2 fails it is called once, then after 10 s, 20 s, ... 10 min, for any number of
// queries.
func TestAFailingRegionIsNotHammered(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	w.Inject(aws.Rule{Fault: &aws.InternalError})
	for round, most := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		for i := range 100 {
			_, err := w.get(t, ireland, fmt.Sprintf("m5.x%dlarge", i))
			g.Expect(err).To(MatchError(catalogue.ErrUnavailable))
			failure := failureOf(g, err)
			g.Expect(failure.RetryAfter).To(And(BeNumerically(">=", most*time.Second/2), BeNumerically("<=", most*time.Second)))
			g.Expect(failure.Code).To(Equal("InternalError"))
		}
		g.Expect(w.calls(ireland)).To(Equal(round + 1))
		w.clock.Step(most * time.Second)
	}
}

// Known types are answered during an outage, for 30 days, with the time when they were seen.
func TestStaleIsServed(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	first, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	w.Inject(aws.Rule{Fault: &aws.Throttled})

	w.clock.Step(29 * 24 * time.Hour)
	answer, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(first))
	g.Eventually(func() int { return w.Count(aws.Match{Region: ireland}, "RequestLimitExceeded") }, patience).Should(Equal(1), "it was tried")

	w.clock.Step(25 * time.Hour)
	g.Eventually(func() error {
		_, err := w.get(t, ireland, "m5.large")
		return err
	}, patience).Should(MatchError(catalogue.ErrThrottled), "30 days are over")
}

// The timer lists again after a day if there were queries. Notify reports changes.
func TestRefresh(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(w.clock.HasWaiters, patience).Should(BeTrue())
	w.clock.Step(48 * time.Hour)
	g.Eventually(func() int { return w.listings(ireland) }, patience).Should(Equal(2), "somebody had asked")
	g.Eventually(w.clock.HasWaiters, patience).Should(BeTrue())
	w.clock.Step(48 * time.Hour)
	g.Consistently(func() int { return w.listings(ireland) }, 100*time.Millisecond).Should(Equal(2), "nobody has, since")

	_, err = w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return w.listings(ireland) }, patience).Should(Equal(3))
	g.Consistently(w.toldOf(ireland), 100*time.Millisecond).Should(BeZero(), "nothing has changed")

	// In use, it is listed by the timer alone: not before 90 % of a day, nor after 110 %.
	grown := ec2.Fixture("m5.large")
	*grown.MemoryInfo.SizeInMiB *= 2
	w.ec2.Offer(ireland, grown)
	g.Eventually(func() time.Time { a, _ := w.get(t, ireland, "m5.large"); return a.Seen }, patience).Should(Equal(w.clock.Now()))
	g.Eventually(w.clock.HasWaiters, patience).Should(BeTrue())
	w.clock.Step(21*time.Hour + 35*time.Minute)
	g.Consistently(func() int { return w.listings(ireland) }, 100*time.Millisecond).Should(Equal(3))
	w.clock.Step(5 * time.Hour)
	g.Eventually(func() int { return w.listings(ireland) }, patience).Should(Equal(4))
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
	answer, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Capacity.MemoryMiB).To(Equal(int64(16384)))

	// A type that EC2 retired is still answered for.
	answer, err = w.get(t, ireland, "t3.micro")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Seen).To(BeTemporally("<", w.clock.Now().Add(-24*time.Hour)))
	w.clock.Step(30 * 24 * time.Hour)
	g.Eventually(func() error { _, err := w.get(t, ireland, "t3.micro"); return err }, patience).
		Should(MatchError(catalogue.ErrInstanceTypeUnknown))
}

// Unknown types are looked up, all requested ones in one call, and not again for 15 minutes.
func TestUnknownTypes(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.calls(ireland)).To(Equal(1))

	// During one lookup, fifty more types are requested: they are the next call.
	hold := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Times: 1, Latency: time.Second})
	defer hold()
	var askers sync.WaitGroup
	failures := make(chan error, 51)
	ask := func(name string) {
		askers.Go(func() { _, err := w.get(t, ireland, name); failures <- err })
	}
	ask("m9.first")
	g.Eventually(func() int { return w.UnderWay(aws.Match{Region: ireland}) }, patience).Should(Equal(1))
	for i := range 50 {
		ask(fmt.Sprintf("m9.x%dlarge", i))
	}
	askers.Wait()
	for range 51 {
		err := <-failures
		g.Expect(err).To(MatchError(catalogue.ErrInstanceTypeUnknown))
		g.Expect(failureOf(g, err).RetryAfter).To(Equal(15 * time.Minute))
	}
	g.Expect(w.calls(ireland)).To(BeNumerically("<=", 4), "the listing, the first, the rest, and one for a late asker")

	calls := w.calls(ireland)
	w.clock.Step(14 * time.Minute)
	_, err = w.get(t, ireland, "m9.first")
	g.Expect(err).To(MatchError(`EC2 has no instance type "m9.first" in region eu-west-1`))
	g.Expect(w.calls(ireland)).To(Equal(calls))

	// It is released, and the next query after 15 minutes finds it. Notify reports it.
	released := ec2.Fixture("m5.large")
	released.InstanceType = "m9.first"
	w.ec2.Offer(ireland, append(ec2.Fixtures(), released)...)
	w.clock.Step(time.Minute)
	answer, err := w.get(t, ireland, "m9.first")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Capacity.InstanceType).To(Equal("m9.first"))
	g.Expect(w.calls(ireland)).To(Equal(calls + 1))
	g.Expect(w.listings(ireland)).To(Equal(1))
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
}
