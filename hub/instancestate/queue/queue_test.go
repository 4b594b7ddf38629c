package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/queue"
	"github.com/capstan-hub/capstan/hub/instancestate/queue/queuetest"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	region = "eu-west-1"
	// patience is the timeout of waits, for a busy machine.
	patience = 2 * time.Minute
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(patience)
	os.Exit(leaks.Main(m.Run))
}

// world is a simulated SQS with one queue and a clock.
type world struct {
	*aws.Server
	sqs    *sqs.Service
	client *api.Client
	clock  clock.WithTicker
	url    string
}

func start(t testing.TB, c clock.WithTicker, attributes map[string]string) *world {
	t.Helper()
	w := &world{sqs: sqs.New(sqs.Options{Clock: c, Seed: 7}), clock: c}
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.sqs}, Clock: c}); err != nil {
		t.Fatal(err)
	}
	config, closeConnections := w.Config(aws.Root(), region)
	w.client = api.NewFromConfig(config)
	t.Cleanup(func() {
		w.Stop()
		closeConnections()
	})
	w.url = w.create(t, "q", attributes)
	return w
}

func (w *world) create(t testing.TB, name string, attributes map[string]string) string {
	t.Helper()
	out, err := w.client.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String(name), Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	return *out.QueueUrl
}

// observer counts notifications.
type observer struct {
	mu      sync.Mutex
	counts  map[queue.Count]int
	samples []string
	changes int
}

func (o *observer) Count(what queue.Count, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = map[queue.Count]int{}
	}
	o.counts[what] += n
}

func (o *observer) Waited(time.Duration) {}

func (o *observer) Malformed(reason error, sample string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !errors.Is(reason, message.ErrMalformed) {
		sample = "no reason: " + sample
	}
	o.samples = append(o.samples, sample)
}

func (o *observer) StatusChanged() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
}

func (o *observer) of(what queue.Count) func() int {
	return func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.counts[what]
	}
}

func (w *world) options(h queue.Handler) queue.Options {
	return queue.Options{
		Client: w.client, QueueURL: w.url, WaitTime: 10 * time.Second, VisibilityTimeout: time.Minute, PollersMin: 2, PollersMax: 8,
		Handler: h, Clock: w.clock, Log: logr.Discard(),
	}
}

// run a consumer; the returned function stops it and waits for its end.
func run(t testing.TB, o queue.Options) (*queue.Consumer, func()) {
	c := queue.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return c, stop
}

func ack(_ context.Context, d *queue.Delivery) { d.Ack() }

func bodies(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = queuetest.Body(i)
	}
	return all
}

func TestConsumes(t *testing.T) {
	t.Parallel()
	w := start(t, clock.RealClock{}, nil)
	queuetest.Consumes(t, w.client, queuetest.Lacks{})
}

// Full receives start pollers, up to the maximum; they end when the queue is empty.
func TestPollersFollowTheLoad(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	g.Expect(w.sqs.Put(region, "q", bodies(2000)...)).To(BeNil())
	most := 0
	var mu sync.Mutex
	var consumer *queue.Consumer
	ready := make(chan struct{})
	o := w.options(func(_ context.Context, d *queue.Delivery) {
		<-ready
		mu.Lock()
		most = max(most, consumer.Status().Pollers)
		mu.Unlock()
		d.Ack()
	})
	consumer, _ = run(t, o)
	close(ready)
	g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(2000))
	mu.Lock()
	g.Expect(most).To(Equal(8))
	mu.Unlock()
	g.Eventually(func() int {
		c.Step(10 * time.Second)
		return consumer.Status().Pollers
	}).Should(Equal(2))
	stats := w.sqs.Stats(region, "q")
	g.Expect(stats.Received).To(Equal(2000), "no message was read twice")
	calls := w.Count(aws.Match{Service: "sqs", Action: "DeleteMessageBatch"})
	g.Expect(calls).To(BeNumerically("<", 2000), "deletes go in batches: %d calls", calls)
}

// The window limits the messages that are read and not settled, in number and in bytes.
func TestWindow(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*queue.Options){
		"messages": func(o *queue.Options) { o.Window = 100 },
		"bytes":    func(o *queue.Options) { o.WindowBytes, o.PollersMax = int64(80*len(queuetest.Body(1))), 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			w := start(t, clock.RealClock{}, nil)
			g.Expect(w.sqs.Put(region, "q", bodies(500)...)).To(BeNil())
			held := make(chan *queue.Delivery, 1000)
			o := w.options(func(_ context.Context, d *queue.Delivery) { held <- d })
			edit(&o)
			c, _ := run(t, o)
			g.Eventually(c.InFlight).Should(BeNumerically(">=", 80))
			g.Consistently(c.InFlight, "300ms").Should(BeNumerically("<=", 100))
			for range 500 {
				var d *queue.Delivery
				g.Eventually(held).Should(Receive(&d))
				d.Ack()
			}
			g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(500))
		})
	}
}

// A full window of messages is kept invisible until they are settled: the default window, of
// ten thousand messages, in `make soak`.
func TestFullWindowStaysInvisible(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	n := 1000
	if os.Getenv("CAPSTAN_SOAK") != "" {
		n = queue.DefaultWindow
	}
	g.Expect(w.sqs.Put(region, "q", bodies(n)...)).To(BeNil())
	held := make(chan *queue.Delivery, 2*n)
	o := w.options(func(_ context.Context, d *queue.Delivery) { held <- d })
	o.Window, o.PollersMax = n, 1000 // So that the window is the limit, not the pollers.
	consumer, _ := run(t, o)
	g.Eventually(consumer.InFlight).Should(Equal(n))
	for range 3 {
		changed := w.sqs.Stats(region, "q").VisibilityChanges
		for range 2 { // Half of the time is over: all are extended.
			c.Step(15 * time.Second)
		}
		g.Eventually(func() int { return w.sqs.Stats(region, "q").VisibilityChanges }).Should(BeNumerically(">=", changed+n))
	}
	g.Expect(w.sqs.Stats(region, "q").Received).To(Equal(n), "when its time has passed none has been read twice")
	for range n {
		(<-held).Ack()
	}
	g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(n))
}

// backsOff returns a message repeatedly, and checks when it is visible again.
func backsOff(t *testing.T, back func(*queue.Delivery), waits []time.Duration) {
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	handed := make(chan int, 10)
	o := w.options(func(_ context.Context, d *queue.Delivery) {
		back(d)
		handed <- d.Receives
	})
	consumer, _ := run(t, o)
	g.Expect(w.sqs.Put(region, "q", queuetest.Body(1))).To(BeNil())
	for i, wait := range waits {
		g.Eventually(handed).Should(Receive(Equal(i + 1)))
		if wait == 0 {
			continue
		}
		g.Eventually(consumer.InFlight).Should(BeZero())
		for wait := wait*time.Second - time.Second; wait > 0; wait -= 5 * time.Second {
			c.Step(min(5*time.Second, wait))
		}
		g.Expect(w.sqs.Stats(region, "q").Visible).To(BeZero(), "after nearly %ds", wait)
		c.Step(time.Second)
	}
}

// After a failure a message is delivered again after 5 s, 10 s, 20 s, up to a quarter of an
// hour.
func TestRetryBacksOff(t *testing.T) {
	t.Parallel()
	backsOff(t, (*queue.Delivery).Retry, []time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 900, 900})
}

// A message that no reader can handle is not received in a tight loop: in a quarter of an
// hour it has fewer receives than the redrive policy allows.
func TestReleaseBacksOff(t *testing.T) {
	t.Parallel()
	waits := []time.Duration{0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	backsOff(t, func(d *queue.Delivery) { d.Release(0) }, waits)
}

// A message that no reader can handle for two seconds is not received before that.
func TestReleaseAtLeast(t *testing.T) {
	t.Parallel()
	waits := []time.Duration{2, 2, 2, 2, 2, 4}
	backsOff(t, func(d *queue.Delivery) { d.Release(2 * time.Second) }, waits)
}

// With a redrive policy, SQS itself moves malformed messages, and no others.
func TestMalformedWithRedrivePolicy(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	w.create(t, "dead", nil)
	_, err := w.client.SetQueueAttributes(t.Context(), &api.SetQueueAttributesInput{QueueUrl: sdk.String(w.url), Attributes: map[string]string{
		"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":20}`, sqs.ARN(region, "dead")),
	}})
	g.Expect(err).NotTo(HaveOccurred())
	var seen observer
	o := w.options(ack)
	o.Observer = &seen
	consumer, _ := run(t, o)
	g.Eventually(consumer.Status).Should(HaveField("HasDeadLetters", true), "the attributes are known")
	g.Expect(w.sqs.Put(region, "q", append(bodies(9), "abcd")...)).To(BeNil())
	g.Eventually(func() []string { return w.sqs.Bodies(region, "dead") }).Should(ConsistOf("abcd"))
	g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(9))
	seen.mu.Lock()
	g.Expect(seen.samples).To(Equal([]string{"abcd"}), "it is reported once")
	seen.mu.Unlock()
	g.Expect(seen.of(queue.DeadLettered)()).To(Equal(1))
	g.Eventually(func() queue.Status {
		c.Step(10 * time.Second) // The timer of the next read may be set after the first step.
		return consumer.Status()
	}).Should(And(HaveField("DeadLetters", 1), HaveField("HasDeadLetters", true)))
}

// The queue of the redrive policy was deleted: a malformed message stays in the queue, and
// is retried with delays.
func TestMalformedWithoutItsDeadLetterQueue(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	w.create(t, "dead", nil)
	_, err := w.client.SetQueueAttributes(t.Context(), &api.SetQueueAttributesInput{QueueUrl: sdk.String(w.url), Attributes: map[string]string{
		"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"3"}`, sqs.ARN(region, "dead")),
	}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.client.DeleteQueue(t.Context(), &api.DeleteQueueInput{QueueUrl: sdk.String(sqs.URL(w.Server, "dead"))})
	g.Expect(err).NotTo(HaveOccurred())
	var seen observer
	o := w.options(ack)
	o.Observer = &seen
	run(t, o)
	g.Eventually(func() int {
		c.Step(time.Second)
		return w.Count(aws.Match{Action: "GetQueueAttributes"}, "")
	}).Should(BeNumerically(">", 1), "the first attributes are known")
	g.Expect(w.sqs.Put(region, "q", "abcd")).To(BeNil())
	g.Eventually(seen.of(queue.Retried)).Should(Equal(1))
	g.Eventually(w.UnderWayReceives).Should(Equal(2))
	g.Expect(w.sqs.Stats(region, "q").Received).To(Equal(4))
	g.Expect(w.sqs.Bodies(region, "q")).To(ConsistOf("abcd"))
}

// shaky panics at malformed messages.
type shaky struct{ observer }

func (*shaky) Malformed(error, string) { panic("on purpose") }

// A panic on a malformed message affects only that message, like a panic of a Handler.
func TestPanicOnWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := start(t, testclock.NewFakeClock(time.Now()), nil) // The message is not delivered again.
	var seen shaky
	o := w.options(ack)
	o.Observer = &seen
	run(t, o)
	g.Expect(w.sqs.Put(region, "q", append(bodies(3), "abcd")...)).To(BeNil())
	g.Eventually(seen.of(queue.Panicked)).Should(Equal(1))
	g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(3))
	g.Expect(w.sqs.Bodies(region, "q")).To(ConsistOf("abcd"))
}

// Without a dead-letter queue, a malformed message is deleted and reported.
func TestMalformedIsDiscarded(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	var seen observer
	o := w.options(ack)
	o.Observer = &seen
	run(t, o)
	g.Expect(w.sqs.Put(region, "q", "abcd")).To(BeNil())
	g.Eventually(func() int {
		c.Step(time.Second) // The message is retried until the attributes of the queue are known.
		return w.sqs.Stats(region, "q").Deleted
	}).Should(Equal(1))
	g.Expect(seen.of(queue.Discarded)()).To(Equal(1))
}

// UnderWayReceives returns how many receives wait.
func (w *world) UnderWayReceives() int { return w.UnderWay(aws.Match{Action: "ReceiveMessage"}) }

// While it is not known whether the queue has a redrive policy, no malformed message is
// deleted.
func TestMalformedIsKeptWhileAttributesAreDenied(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := start(t, testclock.NewFakeClock(time.Now()), nil)
	w.Inject(aws.Rule{Match: aws.Match{Action: "GetQueueAttributes"}, Fault: sqs.Denied})
	var seen observer
	o := w.options(ack)
	o.Observer = &seen
	consumer, _ := run(t, o)
	g.Expect(w.sqs.Put(region, "q", "abcd")).To(BeNil())
	g.Eventually(seen.of(queue.Retried)).Should(Equal(1))
	g.Eventually(consumer.InFlight).Should(BeZero())
	g.Expect(w.sqs.Bodies(region, "q")).To(ConsistOf("abcd"))
}

// A panic of a Handler does not affect other messages.
func TestPanic(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := start(t, testclock.NewFakeClock(time.Now()), nil)
	var seen observer
	o := w.options(func(_ context.Context, d *queue.Delivery) {
		if d.Event.ID == "e-3" {
			panic("boo")
		}
		d.Ack()
	})
	o.Observer = &seen
	run(t, o)
	g.Expect(w.sqs.Put(region, "q", bodies(10)...)).To(BeNil())
	g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(9))
	g.Eventually(seen.of(queue.Panicked)).Should(Equal(1))
	g.Expect(w.sqs.Bodies(region, "q")).To(ConsistOf(queuetest.Body(3)))
}

// Row 13 of the test matrix: the status shows the class of every error of the queue, and the
// consumer recovers without a restart.
func TestErrorsAreReportedAndRecover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class queue.Class
		fault *aws.Fault
	}{
		{queue.Denied, sqs.Denied}, {queue.Throttled, sqs.Throttled}, {queue.Credentials, sqs.Expired}, {queue.Server, &aws.InternalError}, {queue.NoSuchQueue, sqs.Missing},
	} {
		class, fault := c.class, c.fault
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			c := testclock.NewFakeClock(time.Now())
			w := start(t, c, nil)
			w.sqs.SetFaults(region, "q", sqs.Faults{Refuse: fault, RefuseRate: 1})
			consumer, _ := run(t, w.options(ack))
			status := func() queue.Status {
				c.Step(time.Second)
				return consumer.Status()
			}
			// At first, it may be that of the queue's depth.
			g.Eventually(status).Should(And(HaveField("Class", class), HaveField("Ready", false), HaveField("Message", HavePrefix("ReceiveMessage: "))))
			g.Expect(consumer.Status().Message).NotTo(ContainSubstring("RequestID"))
			w.sqs.SetFaults(region, "q", sqs.Faults{})
			g.Expect(w.sqs.Put(region, "q", queuetest.Body(1))).To(BeNil())
			g.Eventually(status).Should(And(HaveField("Class", queue.None), HaveField("Ready", true), HaveField("Message", "")))
			g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(1))
		})
	}
}

// A call that settles messages and is denied is reported, while receives succeed: all messages
// would be delivered again and again.
func TestErrorsOfSettlingAreReported(t *testing.T) {
	t.Parallel()
	for action, handle := range map[string]queue.Handler{
		"DeleteMessageBatch":           ack,
		"ChangeMessageVisibilityBatch": func(_ context.Context, d *queue.Delivery) { d.Retry() },
		"GetQueueAttributes":           ack,
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			c := testclock.NewFakeClock(time.Now())
			w := start(t, c, nil)
			allow := w.Inject(aws.Rule{Match: aws.Match{Action: action}, Fault: sqs.Denied})
			var seen observer
			o := w.options(handle)
			o.Observer = &seen
			consumer, _ := run(t, o)
			g.Expect(w.sqs.Put(region, "q", queuetest.Body(1))).To(BeNil())
			g.Eventually(consumer.Status).Should(And(HaveField("Ready", false), HaveField("Class", queue.Denied),
				HaveField("Message", HavePrefix(action+": "+sqs.Denied.Code)), HaveField("LastReceive", Not(BeZero()))))
			allow()
			g.Eventually(func() queue.Status {
				c.Step(100 * time.Millisecond)
				return consumer.Status()
			}).Should(And(HaveField("Ready", true), HaveField("Message", "")))
		})
	}
}

// A fault of an action that is not needed again ends by itself.
func TestAFaultThatCannotSucceedEnds(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	w.Inject(aws.Rule{Match: aws.Match{Action: "DeleteMessageBatch"}, Fault: sqs.Denied})
	consumer, _ := run(t, w.options(ack))
	g.Expect(w.sqs.Put(region, "q", queuetest.Body(1))).To(BeNil())
	g.Eventually(consumer.Status).Should(HaveField("Class", queue.Denied))
	_, err := w.client.PurgeQueue(t.Context(), &api.PurgeQueueInput{QueueUrl: sdk.String(w.url)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() queue.Status {
		c.Step(30 * time.Second)
		return consumer.Status()
	}).Should(HaveField("Ready", true))
}

// Batches that fail wait for their retry beside the others, and delay none.
func TestABatchThatFailsDelaysNoOther(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := start(t, testclock.NewFakeClock(time.Now()), nil) // No retry is ever due.
	w.Inject(aws.Rule{Match: aws.Match{Action: "DeleteMessageBatch"}, Fault: &aws.InternalError, Times: 8})
	var seen observer
	o := w.options(ack)
	o.Observer = &seen
	run(t, o)
	for n := range 8 { // One batch each.
		g.Expect(w.sqs.Put(region, "q", queuetest.Body(n))).To(BeNil())
		g.Eventually(seen.of(queue.DeleteFailed)).Should(Equal(n + 1))
	}
	g.Expect(w.sqs.Put(region, "q", queuetest.Body(100))).To(BeNil())
	g.Eventually(func() int { return w.sqs.Stats(region, "q").Deleted }).Should(Equal(1))
	g.Expect(w.sqs.Bodies(region, "q")).To(HaveLen(8))
}

// A queue with a name in the configuration is found when it is created, also a second time.
func TestQueueByName(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	o := w.options(ack)
	o.QueueURL, o.QueueName = "", "later"
	consumer, _ := run(t, o)
	status := func() queue.Status {
		c.Step(time.Second)
		return consumer.Status()
	}
	for range 2 {
		g.Eventually(status).Should(HaveField("Class", queue.NoSuchQueue))
		url := w.create(t, "later", nil)
		g.Eventually(status).Should(HaveField("Ready", true))
		_, err := w.client.DeleteQueue(t.Context(), &api.DeleteQueueInput{QueueUrl: sdk.String(url)})
		g.Expect(err).NotTo(HaveOccurred())
	}
}

// All faults occur at the same time for a while: no message is lost, and all of them are
// deleted at the end.
func TestNothingIsLostUnderFaults(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	const n = 1000
	w.sqs.SetFaults(region, "q", sqs.Faults{
		Refuse: &aws.InternalError, RefuseRate: 0.1, Reorder: true, Duplicate: 0.1, LoseReceive: 0.1, ForgetDelete: 0.1, FailEntry: 0.2,
		Delay: time.Second,
	})
	var mu sync.Mutex
	seen := map[string]int{}
	o := w.options(func(_ context.Context, d *queue.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		seen[d.Event.ID]++
		if rand.IntN(10) == 0 {
			d.Retry()
			return
		}
		d.Ack()
	})
	consumer, _ := run(t, o)
	g.Expect(w.sqs.Put(region, "q", bodies(n)...)).To(BeNil())
	left := func() int {
		step := 500 * time.Millisecond
		if consumer.InFlight() == 0 && w.sqs.Stats(region, "q").Visible == 0 {
			step = 5 * time.Second // All messages wait for their next delivery.
		}
		c.Step(step)
		return len(w.sqs.Bodies(region, "q"))
	}
	g.Eventually(left).WithPolling(5 * time.Millisecond).Should(BeZero())
	mu.Lock()
	defer mu.Unlock()
	g.Expect(seen).To(HaveLen(n))
}

// A consumer that is stopped repeatedly during a burst loses no message.
func TestStoppedAtRandom(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	w := start(t, clock.RealClock{}, nil)
	const n = 3000
	g.Expect(w.sqs.Put(region, "q", bodies(n)...)).To(BeNil())
	var mu sync.Mutex
	done := map[string]bool{}
	for range 5 {
		limit := 300 + rand.IntN(300)
		enough := make(chan struct{})
		count := 0
		_, stop := run(t, w.options(func(_ context.Context, d *queue.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			if count++; count == limit {
				close(enough)
			}
			if count%3 == 0 {
				return // The call was in progress when the process ended.
			}
			done[d.Event.ID] = true
			d.Ack()
		}))
		g.Eventually(enough).Should(BeClosed())
		stop()
		mu.Lock()
		g.Expect(len(done)+len(w.sqs.Bodies(region, "q"))).To(BeNumerically(">=", n), "what is not done is in the queue")
		mu.Unlock()
		g.Expect(w.sqs.Stats(region, "q").DeadLettered).To(BeZero())
	}
	run(t, w.options(func(_ context.Context, d *queue.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		done[d.Event.ID] = true
		d.Ack()
	}))
	g.Eventually(func() int { return len(w.sqs.Bodies(region, "q")) }).WithPolling(50 * time.Millisecond).Should(BeZero())
	mu.Lock()
	defer mu.Unlock()
	g.Expect(done).To(HaveLen(n))
}

// A reader that crashes repeatedly and processes a few messages each time processes all of
// them before maxReceiveCount: it does not receive all messages each time.
func TestCrashesRepeatedly(t *testing.T) {
	leaks.AtEnd(t) // The test is not parallel: no other consumer runs.
	g := NewWithT(t)
	c := testclock.NewFakeClock(time.Now())
	w := start(t, c, nil)
	w.create(t, "dead", nil)
	_, err := w.client.SetQueueAttributes(t.Context(), &api.SetQueueAttributesInput{QueueUrl: sdk.String(w.url), Attributes: map[string]string{
		"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":20}`, sqs.ARN(region, "dead")),
	}})
	g.Expect(err).NotTo(HaveOccurred())
	const n, life = 500, 10
	g.Expect(w.sqs.Put(region, "q", bodies(n)...)).To(BeNil())
	left := func() int { return len(w.sqs.Bodies(region, "q")) }
	for lives := 0; left() > 0; lives++ {
		g.Expect(lives).To(BeNumerically("<", 2*n/life), "each life does some")
		alive, did := left(), 0
		var mu sync.Mutex
		consumer, stop := run(t, w.options(func(_ context.Context, d *queue.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			if did++; did <= life {
				d.Ack()
			}
		}))
		g.Eventually(func() int {
			if consumer.InFlight() == 0 && w.sqs.Stats(region, "q").Visible == 0 {
				c.Step(5 * time.Second) // A response that the end of a life cut off: its messages wait.
			}
			return left()
		}).Should(BeNumerically("<=", max(0, alive-life)))
		stop()
	}
	g.Expect(w.sqs.Stats(region, "q").DeadLettered).To(BeZero())
	g.Expect(w.sqs.Stats(region, "q").Deleted).To(Equal(n))
}

// Errors of the SDK without credentials, and without a response.
func TestClassOf(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := api.New(api.Options{
		Region: region, BaseEndpoint: sdk.String("http://127.0.0.1:1"), Retryer: sdk.NopRetryer{},
		Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
			return sdk.Credentials{}, fmt.Errorf("%w: no role", awsconfig.ErrCredentials)
		}),
	})
	_, err := c.GetQueueUrl(t.Context(), &api.GetQueueUrlInput{QueueName: sdk.String("q")})
	g.Expect(queue.ClassOf(err)).To(Equal(queue.Credentials), "%v", err)
	c = api.New(api.Options{
		Region: region, BaseEndpoint: sdk.String("http://127.0.0.1:1"), Retryer: sdk.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
	_, err = c.GetQueueUrl(t.Context(), &api.GetQueueUrlInput{QueueName: sdk.String("q")})
	g.Expect(queue.ClassOf(err)).To(Equal(queue.Network), "%v", err)
	g.Expect(queue.ClassOf(nil)).To(Equal(queue.None))
	g.Expect(queue.ClassOf(errors.New("x"))).To(Equal(queue.Other))
}

// The message of a lasting error stays the same, although each call has another port and
// another request id: so the status is written on transitions only.
func TestErrorMessageIsStable(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(try int) error{
		"connection": func(try int) error {
			return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40000 + try}, Addr: &net.TCPAddr{Port: 443}, Err: syscall.ECONNRESET}
		},
		"name": func(try int) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
				Err: fmt.Sprintf("read udp 10.0.0.1:%d->10.96.0.10:53: i/o timeout", 40000+try), Name: "sqs.eu-west-1.amazonaws.com", IsTimeout: true,
			}}
		},
		"answer": func(try int) error {
			return fmt.Errorf("https response error StatusCode: 502, RequestID: 1b2c-%d, HostID: %d, bad gateway", try, try)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			c := testclock.NewFakeClock(time.Now())
			w := start(t, c, nil)
			failing := &failing{API: w.client, fail: fail}
			o := w.options(ack)
			var seen observer
			o.Client, o.Observer = failing, &seen
			consumer, _ := run(t, o)
			g.Eventually(func() int32 {
				c.Step(30 * time.Second)
				return failing.tries.Load()
			}).Should(BeNumerically(">", 12))
			seen.mu.Lock()
			defer seen.mu.Unlock()
			g.Expect(seen.changes).To(Equal(1), consumer.Status().Message)
		})
	}
}

// failing returns a different error for each receive.
type failing struct {
	queue.API
	tries atomic.Int32
	fail  func(try int) error
}

func (f *failing) ReceiveMessage(context.Context, *api.ReceiveMessageInput, ...func(*api.Options)) (*api.ReceiveMessageOutput, error) {
	return nil, f.fail(int(f.tries.Add(1)))
}
