package publisher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
)

// perSubject returns the numbers of the received events, by subject.
func perSubject(events []ce.Event) map[string][]string {
	all := map[string][]string{}
	for _, e := range events {
		all[e.Subject()] = append(all[e.Subject()], e.ID())
	}
	return all
}

// TestInOrderPerSubject: a third of all attempts fails. Every event still arrives once, those
// of a subject in order, and no more than MaxInFlight are in flight at a time.
func TestInOrderPerSubject(t *testing.T) {
	g := NewWithT(t)
	const subjects, each = 40, 25
	b := &broker{on: func(context.Context, ce.Event, int) error {
		if rand.IntN(3) == 0 {
			return errors.New("not now")
		}
		return nil
	}}
	p, stop := run(t, Options{})
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	want := map[string][]string{}
	for n := range each {
		for s := range subjects {
			e := newEvent(event.PromotionStarted, fmt.Sprint("pipelines/shop/", s), n)
			want[e.Subject()] = append(want[e.Subject()], e.ID())
			p.Publish(e, nil)
		}
	}
	g.Eventually(b.ids).Should(HaveLen(subjects * each))
	stop()
	g.Expect(perSubject(b.got)).To(Equal(want))
	g.Expect(b.max).To(BeNumerically("<=", 8))
	g.Expect(b.closed).To(BeTrue())
}

// TestSubjectsAtOnce: MaxInFlight subjects are served at a time, with one event of each.
func TestSubjectsAtOnce(t *testing.T) {
	g := NewWithT(t)
	hold := make(chan struct{})
	b := &broker{on: func(context.Context, ce.Event, int) error { <-hold; return nil }}
	p, _ := run(t, Options{})
	s := fast(b)
	s.Timeout = time.Minute
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	for n := range 3 {
		for subject := range 20 {
			p.Publish(newEvent(event.PromotionStarted, fmt.Sprint(subject), n), nil)
		}
	}
	g.Eventually(b.total).Should(Equal(8))
	g.Consistently(b.total, 20*time.Millisecond).Should(Equal(8))
	b.mu.Lock()
	for id := range b.attempts {
		g.Expect(id).To(HaveSuffix("#0"))
	}
	b.mu.Unlock()
	close(hold)
	g.Eventually(b.ids).Should(HaveLen(60))
}

// TestSelection: a backend gets events by patterns, with its prefix, and none about itself.
func TestSelection(t *testing.T) {
	g := NewWithT(t)
	all, clusters := &broker{}, &broker{}
	p, _ := run(t, Options{})
	s := fast(clusters)
	s.EventTypes, s.Prefix = []string{"cluster.*", "backend.*"}, "sap.kyma"
	g.Expect(p.Set("ns/clusters", s)).To(Succeed())
	g.Expect(p.Set("ns/all", fast(all))).To(Succeed())
	p.Publish(started(1), nil)
	p.Publish(newEvent(event.ClusterReady, "clusters/Cluster/fleet/prod", 1), nil)
	p.Publish(newEvent(event.BackendReady, event.BackendSubject("ns/clusters"), 1), nil)
	g.Eventually(all.ids).Should(HaveLen(3))
	g.Eventually(clusters.ids).Should(Equal([]string{"clusters/Cluster/fleet/prod#1"}))
	g.Expect(clusters.got[0].Type()).To(Equal("sap.kyma.cluster.ready.v1"))
}

// TestRetryAfter: the whole backend is paused for as long as it requests, but no longer than
// maxRetryAfter.
func TestRetryAfter(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakeClock(time.Now())
	b := &broker{on: func(_ context.Context, e ce.Event, attempt int) error {
		if e.Subject() == "a" && attempt == 1 {
			return &sink.Error{Class: sink.Transient, Code: "slow-down", RetryAfter: 24 * time.Hour}
		}
		return nil
	}}
	p, _ := run(t, Options{Clock: now})
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	p.Publish(newEvent(event.PromotionStarted, "a", 1), nil)
	g.Eventually(func() int { return b.tries("a#1") }).Should(Equal(1))
	g.Eventually(func() string { return lastCode(p) }).Should(Equal("slow-down"))
	p.Publish(newEvent(event.PromotionStarted, "b", 1), nil)
	now.Step(maxRetryAfter - time.Second)
	g.Consistently(b.ids, 50*time.Millisecond).Should(BeEmpty())
	g.Eventually(func() []string { now.Step(time.Second); return b.ids() }).Should(ConsistOf("a#1", "b#1"))
}

func lastCode(p *Publisher) string {
	if s, _ := p.Status("ns/b"); s.LastError != nil {
		return s.LastError.Code
	}
	return ""
}

// TestBreaker: a dead broker is tested with one event at a time. No event is given up because
// of it, however long it takes. Afterwards everything arrives in order.
func TestBreaker(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakeClock(time.Now())
	var dead atomic.Bool
	dead.Store(true)
	var most atomic.Int32
	b := &broker{}
	b.on = func(context.Context, ce.Event, int) error {
		if dead.Load() {
			return errors.New("connection refused")
		}
		return nil
	}
	var changes atomic.Int32
	p, _ := run(t, Options{Clock: now, Changed: func(string) { changes.Add(1) }})
	s := fast(b)
	s.MaxAttempts = 3
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	for i := range 50 {
		p.Publish(newEvent(event.PromotionStarted, fmt.Sprint(i%10), i), nil)
	}
	g.Eventually(func() bool { now.Step(time.Millisecond); return status(p, "ns/b")().Taking }).Should(BeFalse())
	g.Eventually(func() int { return status(p, "ns/b")().InFlight }).Should(BeZero())
	b.mu.Lock()
	b.max = 0
	b.mu.Unlock()
	for range 50 {
		before := b.total()
		// Each poll steps the clock: the timer of the next probe may be set after the first step.
		g.Eventually(func() int { now.Step(probeMax); return b.total() }).Should(BeNumerically(">", before))
		g.Eventually(func() int { return status(p, "ns/b")().InFlight }).Should(BeZero())
	}
	b.mu.Lock()
	most.Store(int32(b.max))
	b.mu.Unlock()
	g.Expect(most.Load()).To(BeEquivalentTo(1))
	g.Expect(status(p, "ns/b")().Queued).To(Equal(50), "none was given up")
	g.Eventually(changes.Load).Should(BeEquivalentTo(1))

	dead.Store(false)
	g.Eventually(func() []string { now.Step(probeMax); return b.ids() }).Should(HaveLen(50))
	for _, ids := range perSubject(b.got) {
		g.Expect(slices.IsSortedFunc(ids, func(a, c string) int { return number(a) - number(c) })).To(BeTrue(), "%v", ids)
	}
	g.Eventually(changes.Load).Should(BeEquivalentTo(2))
	g.Expect(status(p, "ns/b")().LastError).To(BeNil())
}

// TestADeadBrokerLosesNothing: with few attempts, and also with only one subject, the breaker
// opens before any event is given up.
func TestADeadBrokerLosesNothing(t *testing.T) {
	const events = 50
	for name, row := range map[string]struct{ attempts, subjects int }{
		"never, one subject": {NoRetry, 1}, "never, many": {NoRetry, events}, "three times, one subject": {3, 1}, "three times, many": {3, events},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := clocktesting.NewFakeClock(time.Now())
			var dead atomic.Bool
			b := &broker{on: func(context.Context, ce.Event, int) error {
				if dead.Load() {
					return errors.New("connection refused")
				}
				return nil
			}}
			box := &outbox{}
			p, _ := run(t, Options{Clock: now, Sources: []Source{box}})
			s := fast(b)
			s.MaxAttempts = row.attempts
			g.Expect(p.Set("ns/b", s)).To(Succeed())
			g.Eventually(walks(p)).Should(BeFalse())
			p.Publish(newEvent(event.PromotionStarted, "before", 0), nil)
			g.Eventually(func() time.Time { return status(p, "ns/b")().LastPublish }).ShouldNot(BeZero())
			dead.Store(true)
			for i := range events {
				e := newEvent(event.PromotionStarted, fmt.Sprint("pipelines/shop/", i%row.subjects), i)
				box.add(e)
				p.Publish(e, box)
			}
			g.Eventually(func() bool { now.Step(time.Millisecond); return status(p, "ns/b")().Taking }).Should(BeFalse())
			for range 10 {
				before := b.total()
				g.Eventually(func() int { now.Step(probeMax); return b.total() }).Should(BeNumerically(">", before))
			}
			g.Expect(status(p, "ns/b")().Queued).To(Equal(events))
			g.Expect(box.settled).To(BeEmpty())
			dead.Store(false)
			g.Eventually(func() []string { now.Step(probeMax); return b.ids() }).Should(HaveLen(1 + events))
		})
	}
}

// TestTransientFailuresOpenTheBreaker: an event that is given up after transient failures also
// counts as a failure of the broker.
func TestTransientFailuresOpenTheBreaker(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	q := newQueue("ns/b", Settings{MaxAttempts: NoRetry}.withDefaults(), DefaultDwell)
	broken := &sink.Error{Class: sink.Transient}
	for i := range breakAfter {
		g.Expect(q.breaker.open).To(BeFalse())
		g.Expect(q.take(&item{event: newEvent(event.PromotionStarted, fmt.Sprint(i), i)}, now, false).verdict).To(Equal(queued))
		a := q.next(now)
		a.item.failedAt, q.lastPublish = now, now.Add(time.Millisecond)
		g.Expect(q.exhausted(a, broken)).To(BeTrue())
		a.handle.inUse.Done()
		q.finished(a, GivenUp, broken, now)
	}
	g.Expect(q.breaker.open).To(BeTrue())
	g.Expect(q.lastError).To(Equal(broken))
}

// TestTimeBetweenProbes: it grows from Backoff to BackoffMax, and never beyond probeMax.
func TestTimeBetweenProbes(t *testing.T) {
	for _, row := range []struct{ most, want time.Duration }{{time.Minute, probeMax}, {2 * time.Second, 2 * time.Second}} {
		g := NewWithT(t)
		now := time.Now()
		var b breaker
		b.failed(now, false, true, Settings{Backoff: time.Second, BackoffMax: row.most})
		at, may := b.next()
		g.Expect(may).To(BeTrue())
		g.Expect(at.Sub(now)).To(And(BeNumerically("<=", time.Second), BeNumerically(">", 700*time.Millisecond)))
		for range 10 {
			now = at
			b.failed(now, b.begin(), false, Settings{Backoff: time.Second, BackoffMax: row.most})
			at, _ = b.next()
		}
		g.Expect(at.Sub(now)).To(And(BeNumerically("<=", row.want), BeNumerically(">", row.want*7/10)))
	}
}

func number(id string) int {
	_, digits, _ := strings.Cut(id, "#")
	var n int
	_, _ = fmt.Sscan(digits, &n)
	return n
}

// TestUnavailableAndGone: after an error of class unavailable the breaker opens at once and
// probes follow. After one of class gone nothing is sent until the sink is replaced.
func TestUnavailableAndGone(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakeClock(time.Now())
	var class atomic.Value
	class.Store(sink.Unavailable)
	b := &broker{on: func(context.Context, ce.Event, int) error {
		return sink.Errorf(class.Load().(sink.Class), "no-stream", "there is none")
	}}
	p, _ := run(t, Options{Clock: now})
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	p.Publish(started(1), nil)
	g.Eventually(func() bool { return status(p, "ns/b")().Taking }).Should(BeFalse())
	g.Expect(b.tries(started(1).ID())).To(Equal(1))
	class.Store(sink.Gone)
	g.Eventually(func() bool { now.Step(time.Second); return status(p, "ns/b")().Gone }).Should(BeTrue())
	total := b.total()
	g.Consistently(func() int { now.Step(time.Hour); return b.total() }, 50*time.Millisecond).Should(Equal(total))

	mended := &broker{}
	g.Expect(p.Set("ns/b", fast(mended))).To(Succeed())
	g.Eventually(mended.ids).Should(Equal([]string{started(1).ID()}))
	g.Eventually(b.isClosed).Should(BeTrue())
}

// TestIdleBreakerPings: without events, a ping closes the breaker.
func TestIdleBreakerPings(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakeClock(time.Now())
	b := &broker{}
	p, _ := run(t, Options{Clock: now})
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	backend := p.all()[0]
	backend.mu.Lock()
	backend.lockedQueue.breaker.failed(now.Now(), false, true, backend.lockedQueue.settings)
	backend.mu.Unlock()
	backend.poke()
	g.Eventually(func() bool { now.Step(time.Second); return status(p, "ns/b")().Taking }).Should(BeTrue())
	g.Expect(b.total()).To(BeZero())
}

// TestDeadLetters: an event that is refused, too large, or failed too often while others
// succeed goes to the dead letter backend, with the failure as extensions. The next event of
// its subject follows.
func TestDeadLetters(t *testing.T) {
	g := NewWithT(t)
	poison := map[string]error{
		"a#1": sink.Errorf(sink.Refused, "http-400", "bad request"),
		"b#1": sink.Errorf(sink.TooLarge, sink.CodeTooLarge, "2 MiB"),
		"c#1": errors.New("always"),
	}
	b, dead := &broker{on: func(_ context.Context, e ce.Event, _ int) error { return poison[e.ID()] }}, &broker{}
	box := &outbox{}
	p, _ := run(t, Options{Sources: []Source{box}})
	s := fast(b)
	s.MaxAttempts, s.DeadLetter = 2, "ns/dead"
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	other := fast(dead)
	other.EventTypes = []string{"nothing.at.all"} // Dead letters arrive in spite of it.
	g.Expect(p.Set("ns/dead", other)).To(Succeed())
	for n := 1; n <= 2; n++ {
		for _, subject := range []string{"a", "b", "c"} {
			e := newEvent(event.PromotionStarted, subject, n)
			box.add(e)
			p.Publish(e, box)
		}
	}
	// Other events succeed all the time.
	passing := 0
	g.Eventually(func() int {
		passing++
		p.Publish(newEvent(event.PromotionStarted, "others", passing), nil)
		return len(dead.ids())
	}).Should(Equal(3))
	codes := map[string]string{}
	for _, e := range dead.got {
		x := e.Extensions()
		g.Expect(e.Validate()).To(Succeed())
		g.Expect(x[BackendExtension]).To(Equal("ns/b"))
		g.Expect(e.ID()).NotTo(Equal(x[OriginalIDExtension]))
		codes[x[OriginalIDExtension].(string)] = fmt.Sprint(x[ErrorCodeExtension], " ", x[AttemptsExtension])
	}
	g.Expect(codes).To(HaveKeyWithValue("a#1", "http-400 1"))
	g.Expect(codes).To(HaveKeyWithValue("b#1", "too-large 1"))
	g.Expect(codes["c#1"]).To(HavePrefix("unknown "))
	g.Eventually(b.ids).Should(ContainElements("a#2", "b#2", "c#2"))
	g.Eventually(func() Outcome { return box.outcome("ns/b", "a#1") }).Should(Equal(DeadLettered))
	g.Eventually(func() Outcome { return box.outcome("ns/b", "a#2") }).Should(Equal(Published))
}

// TestMaxAttempts: after MaxAttempts failures, between which others succeed, an event is given
// up and the next of its subject follows. That others succeeded is known at the second failure
// at the earliest.
func TestMaxAttempts(t *testing.T) {
	for name, row := range map[string]struct{ configured, attempts int }{
		"by default": {0, 1 + DefaultMaxAttempts}, "never": {NoRetry, 2}, "twice": {2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			box := &outbox{}
			p, _ := run(t, Options{Sources: []Source{box}})
			tell := func(e ce.Event) {
				box.add(e)
				p.Publish(e, box)
			}
			poison := started(1)
			b := &broker{on: func(ctx context.Context, e ce.Event, attempt int) error {
				if e.ID() != poison.ID() {
					return nil
				}
				other := newEvent(event.PromotionStarted, "others", attempt)
				tell(other)
				for box.outcome("ns/b", other.ID()) != Published {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					runtime.Gosched()
				}
				return errors.New("always")
			}}
			s := fast(b)
			s.MaxAttempts, s.Timeout = row.configured, time.Minute
			g.Expect(p.Set("ns/b", s)).To(Succeed())
			tell(poison)
			tell(started(2))
			g.Eventually(func() Outcome { return box.outcome("ns/b", started(2).ID()) }).Should(Equal(Published))
			g.Expect(b.tries(poison.ID())).To(Equal(row.attempts))
			g.Eventually(func() Outcome { return box.outcome("ns/b", poison.ID()) }).Should(Equal(GivenUp))
		})
	}
}

// TestMutualDeadLetterBackends: each event goes to the other backend, not back, and is counted.
func TestMutualDeadLetterBackends(t *testing.T) {
	g := NewWithT(t)
	refuse := func(context.Context, ce.Event, int) error { return sink.Errorf(sink.Refused, "http-400", "no") }
	one, two := &broker{on: refuse}, &broker{on: refuse}
	var given sync.Map
	p, _ := run(t, Options{GivenUp: func(backend string, e ce.Event, code string) { given.Store(backend+" "+e.ID(), code) }})
	for name, s := range map[string]*broker{"ns/one": one, "ns/two": two} {
		settings := fast(s)
		settings.DeadLetter = map[string]string{"ns/one": "ns/two", "ns/two": "ns/one"}[name]
		g.Expect(p.Set(name, settings)).To(Succeed())
	}
	for i := range 10 {
		p.Publish(started(i), nil)
	}
	empty := func() int { return status(p, "ns/one")().Queued + status(p, "ns/two")().Queued }
	g.Eventually(func() int { return one.total() + two.total() }).Should(Equal(40))
	g.Eventually(empty).Should(BeZero())
	g.Eventually(func() float64 {
		return testutil.ToFloat64(p.metrics.dropped.WithLabelValues("ns/one", "http-400"))
	}).Should(Equal(10.0))
	g.Eventually(func() int {
		seen := 0
		given.Range(func(_, code any) bool {
			if code == "http-400" {
				seen++
			}
			return true
		})
		return seen
	}).Should(Equal(20))
}

// TestAReceiverThatRefusesEverythingKeepsTheEvents: a wrong path or a login page refuses each
// event. The first ones are given up; then the backend accepts none, and the others wait. A ping
// that succeeds proves nothing.
func TestAReceiverThatRefusesEverythingKeepsTheEvents(t *testing.T) {
	g := NewWithT(t)
	const n = 200
	var accepts atomic.Bool
	b := &broker{on: func(context.Context, ce.Event, int) error {
		if accepts.Load() {
			return nil
		}
		return sink.Errorf(sink.Refused, "http-400", "gw.example answered 400 Bad Request")
	}}
	var given atomic.Int32
	p, _ := run(t, Options{GivenUp: func(string, ce.Event, string) { given.Add(1) }})
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	for i := range n {
		p.Publish(started(i), nil)
	}
	g.Eventually(func() bool { return status(p, "ns/b")().Taking }).Should(BeFalse())
	tried := b.total()
	g.Eventually(b.total).Should(BeNumerically(">", tried+20), "single events test it")
	g.Expect(status(p, "ns/b")()).To(And(HaveField("Taking", false), HaveField("Queued", BeNumerically(">=", n-refusalsAtMost-8))))
	g.Expect(status(p, "ns/b")().LastError).To(And(
		HaveField("Class", sink.Unavailable), HaveField("Code", "http-400"), MatchError(ContainSubstring("events in a row were refused, and none was accepted")),
		MatchError(ContainSubstring("gw.example answered 400"))))
	g.Expect(given.Load()).To(BeNumerically("<", refusalsAtMost))

	// Another wrong address: the events that were refused at the first count again.
	wrong := &broker{on: b.on}
	g.Expect(p.Set("ns/b", fast(wrong))).To(Succeed())
	g.Eventually(func() int { return wrong.total() }).Should(BeNumerically(">", 2*refusalsAtMost))
	g.Expect(status(p, "ns/b")().Taking).To(BeFalse())
	g.Expect(given.Load()).To(BeNumerically("<", 2*refusalsAtMost))
	accepts.Store(true)
	g.Eventually(func() int { return status(p, "ns/b")().Queued }).Should(BeZero())
	g.Eventually(func() int { return len(wrong.ids()) + int(given.Load()) }).Should(Equal(n))
	g.Expect(status(p, "ns/b")()).To(And(HaveField("Taking", true), HaveField("LastError", BeNil())))

	// Another one that is refused is given up again.
	accepts.Store(false)
	before := given.Load()
	p.Publish(started(n), nil)
	g.Eventually(given.Load).Should(Equal(before + 1))
	g.Expect(status(p, "ns/b")().Taking).To(BeTrue())
}

// TestOneKindThatIsRefusedDelaysNoOther: a receiver refuses one kind, of which many wait.
func TestOneKindThatIsRefusedDelaysNoOther(t *testing.T) {
	g := NewWithT(t)
	refused := event.Prefixed(started(0), event.DefaultPrefix).Type()
	b := &broker{}
	var acceptedAt atomic.Int64 // in attempts
	b.on = func(_ context.Context, e ce.Event, _ int) error {
		if e.Type() == refused {
			return sink.Errorf(sink.Refused, "http-422", "no")
		}
		acceptedAt.Store(int64(b.total()))
		return nil
	}
	p, _ := run(t, Options{})
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	for i := range 500 {
		p.Publish(newEvent(event.PromotionStarted, fmt.Sprint(i), i), nil)
	}
	g.Eventually(func() bool { return status(p, "ns/b")().Taking }).Should(BeFalse())
	p.Publish(newEvent(event.PromotionSucceeded, "other", 1000), nil)
	tried := int64(b.total())
	g.Eventually(acceptedAt.Load).ShouldNot(BeZero())
	g.Expect(acceptedAt.Load()-tried).To(BeNumerically("<", 20), "it does not wait for the others")
}

// TestDeadLetterBackendIsMissing: the event keeps its place until the backend exists.
func TestDeadLetterBackendIsMissing(t *testing.T) {
	g := NewWithT(t)
	b, dead := &broker{on: func(_ context.Context, e ce.Event, _ int) error {
		if e.ID() == started(1).ID() {
			return sink.Errorf(sink.Refused, "http-400", "no")
		}
		return nil
	}}, &broker{}
	p, _ := run(t, Options{})
	s := fast(b)
	s.DeadLetter = "ns/dead"
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	p.Publish(started(1), nil)
	p.Publish(started(2), nil)
	g.Eventually(func() int { return b.tries(started(1).ID()) }).Should(BeNumerically(">", 2))
	g.Expect(b.ids()).To(BeEmpty())
	g.Expect(p.Set("ns/dead", fast(dead))).To(Succeed())
	g.Eventually(func() int { return len(dead.ids()) }).Should(BeNumerically(">=", 1))
	g.Eventually(b.ids).Should(Equal([]string{started(2).ID()}))
}

// TestMemoryIsBounded: the queue never exceeds its limit. Events of a Source are not lost and
// keep their order; the others are dropped and counted.
func TestMemoryIsBounded(t *testing.T) {
	g := NewWithT(t)
	const events, subjects = 1000, 7
	hold := make(chan struct{})
	b := &broker{on: func(context.Context, ce.Event, int) error { <-hold; return nil }}
	box := &outbox{}
	var changes atomic.Int32
	p, _ := run(t, Options{Sources: []Source{box}, Changed: func(string) { changes.Add(1) }})
	s := fast(b)
	s.MaxEvents, s.Timeout = 100, time.Minute
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	g.Eventually(walks(p)).Should(BeFalse())
	want := map[string][]string{}
	for i := range events {
		e := newEvent(event.PromotionStarted, fmt.Sprint("pipelines/shop/", i%subjects), i)
		want[e.Subject()] = append(want[e.Subject()], e.ID())
		box.add(e)
		p.Publish(e, box)
		g.Expect(status(p, "ns/b")().Queued).To(BeNumerically("<=", 75))
	}
	g.Expect(status(p, "ns/b")().Deferring).To(BeTrue())
	g.Expect(status(p, "ns/b")().Full).To(BeTrue())
	g.Expect(changes.Load()).To(BeEquivalentTo(1))
	// The last quarter is reserved for events without a Source.
	for i := range 100 {
		p.Publish(newEvent(event.InstanceStateChanged, "instances/i-1", i), nil)
	}
	g.Expect(status(p, "ns/b")().Queued).To(Equal(100))
	g.Expect(testutil.ToFloat64(p.metrics.dropped.WithLabelValues("ns/b", "full"))).To(Equal(75.0))
	close(hold)
	g.Eventually(func() int { return len(b.ids()) }).Should(BeNumerically(">=", events+25))
	g.Eventually(func() int { return status(p, "ns/b")().Queued }).Should(BeZero())
	g.Expect(status(p, "ns/b")().Full).To(BeFalse())
	g.Eventually(changes.Load).Should(And(BeNumerically(">=", 2), Satisfy(func(n int32) bool { return n%2 == 0 })), "both changes are reported")
	got := perSubject(b.got)
	g.Expect(got["instances/i-1"]).To(HaveLen(25))
	delete(got, "instances/i-1")
	g.Expect(got).To(Equal(want), "each once and in order")
}

// TestResyncIsNotFull: a pending Resync does not mean that the queue is full.
func TestResyncIsNotFull(t *testing.T) {
	g := NewWithT(t)
	hold := make(chan struct{})
	b := &broker{on: func(context.Context, ce.Event, int) error { <-hold; return nil }}
	p, _ := run(t, Options{Sources: []Source{&outbox{}}})
	s := fast(b)
	s.MaxEvents, s.Timeout = 10, time.Minute
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	g.Eventually(func() bool { return status(p, "ns/b")().Deferring }).Should(BeFalse())
	for i := range 6 {
		p.Publish(started(i), nil)
	}
	p.Resync() // More than half of the queue is used, so no Source is called yet.
	g.Expect(status(p, "ns/b")().Deferring).To(BeTrue())
	g.Expect(status(p, "ns/b")().Full).To(BeFalse())
	close(hold)
	g.Eventually(func() bool { return status(p, "ns/b")().Deferring }).Should(BeFalse())
}

// TestBytesAreBounded: an event that is larger than the whole queue is given up.
func TestBytesAreBounded(t *testing.T) {
	g := NewWithT(t)
	hold := make(chan struct{})
	b := &broker{on: func(context.Context, ce.Event, int) error { <-hold; return nil }}
	box := &outbox{}
	p, _ := run(t, Options{Sources: []Source{box}})
	s := fast(b)
	s.MaxBytes, s.Timeout = 64<<10, time.Minute
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	g.Eventually(walks(p)).Should(BeFalse())
	for i := range 100 {
		e := started(i)
		e.DataEncoded = []byte(strings.Repeat("x", 4<<10))
		p.Publish(e, nil)
		g.Expect(status(p, "ns/b")().Bytes).To(BeNumerically("<=", 64<<10))
	}
	huge := newEvent(event.PromotionStarted, "huge", 1)
	huge.DataEncoded = []byte(strings.Repeat("x", 60<<10))
	p.Publish(huge, box)
	g.Expect(box.outcome("ns/b", huge.ID())).To(Equal(GivenUp))
	close(hold)
	g.Eventually(func() int { return status(p, "ns/b")().Queued }).Should(BeZero())
}

// TestFlappingFleet: 500 clusters each flap once a second for a minute. A live broker gets one
// event of each per Dwell, the newest one. While the broker is dead, the queue holds at most
// two of each.
func TestFlappingFleet(t *testing.T) {
	g := NewWithT(t)
	const clusters, seconds = 500, 60
	now := clocktesting.NewFakeClock(time.Now())
	live, hold := &broker{}, make(chan struct{})
	dead := &broker{on: func(context.Context, ce.Event, int) error { <-hold; return nil }}
	p, _ := run(t, Options{Clock: now, Dwell: 30 * time.Second})
	g.Expect(p.Set("ns/live", fast(live))).To(Succeed())
	s := fast(dead)
	s.Timeout = time.Minute
	g.Expect(p.Set("ns/dead", s)).To(Succeed())
	states := []event.Kind{event.ClusterUnreachable, event.ClusterRecovered}
	for second := range seconds {
		for c := range clusters {
			p.Publish(newEvent(states[second%2], fmt.Sprint("clusters/Cluster/fleet/", c), second), nil)
		}
		if second == 0 { // At once, without a wait.
			g.Eventually(live.ids).Should(HaveLen(clusters))
		}
		g.Expect(status(p, "ns/dead")().Queued).To(BeNumerically("<=", 2*clusters))
		now.Step(time.Second)
	}
	g.Eventually(func() map[string]string {
		now.Step(10 * time.Second)
		newest := map[string]string{}
		live.mu.Lock()
		defer live.mu.Unlock()
		for _, e := range live.got {
			newest[e.Subject()] = e.ID()
		}
		for subject, id := range newest {
			if id == fmt.Sprintf("%s#%d", subject, seconds-1) {
				delete(newest, subject)
			}
		}
		return newest
	}).Should(BeEmpty(), "the newest state of each is told")
	g.Expect(len(live.ids())).To(BeNumerically("<=", clusters*4), "of 30,000 edges")
	g.Expect(testutil.ToFloat64(p.metrics.coalesced.WithLabelValues("ns/live"))).To(BeNumerically(">", 25_000))
	close(hold)
	g.Eventually(func() int { now.Step(10 * time.Second); return status(p, "ns/dead")().Queued }).Should(BeZero())
}

// TestReplace: a new sink gets the queue in its order. The old sink is closed when its last
// call has returned.
func TestReplace(t *testing.T) {
	g := NewWithT(t)
	hold, begun := make(chan struct{}), make(chan struct{}, 1)
	old := &broker{on: func(context.Context, ce.Event, int) error {
		begun <- struct{}{}
		<-hold
		return errors.New("the connection was cut")
	}}
	p, _ := run(t, Options{})
	g.Expect(p.Set("ns/b", fast(old))).To(Succeed())
	for i := range 20 {
		p.Publish(started(i), nil)
	}
	<-begun
	fresh := &broker{}
	g.Expect(p.Set("ns/b", fast(fresh))).To(Succeed())
	p.Publish(newEvent(event.PromotionStarted, "other", 1), nil)
	g.Eventually(fresh.ids).Should(Equal([]string{"other#1"}), "another subject does not wait")
	g.Expect(old.isClosed()).To(BeFalse())
	close(hold)
	g.Eventually(fresh.ids).Should(HaveLen(21))
	want := []string{"other#1"}
	for i := range 20 {
		want = append(want, started(i).ID())
	}
	g.Expect(fresh.ids()).To(Equal(want))
	g.Eventually(old.isClosed).Should(BeTrue())
	g.Expect(status(p, "ns/b")().Taking).To(BeTrue(), "the old sink's failure is not the new one's")
}

// TestRemove: queued events are delivered and later ones are not. A dead backend ends after
// grace.
func TestRemove(t *testing.T) {
	g := NewWithT(t)
	hold := make(chan struct{})
	b := &broker{on: func(context.Context, ce.Event, int) error { <-hold; return nil }}
	dead := &broker{on: func(context.Context, ce.Event, int) error { return errors.New("dead") }}
	ends := make(chan string, 2)
	p, _ := run(t, Options{Ended: func(backend string, left int) { ends <- fmt.Sprint(backend, " ", left) }})
	s := fast(b)
	s.Timeout = time.Minute
	g.Expect(p.Set("ns/b", s)).To(Succeed())
	g.Expect(p.Set("ns/dead", fast(dead))).To(Succeed())
	for i := range 5 {
		p.Publish(started(i), nil)
	}
	p.Remove("ns/b", time.Hour)
	p.Remove("ns/dead", 20*time.Millisecond)
	p.Publish(started(5), nil)
	known := func(name string) func() bool {
		return func() bool { _, known := p.Status(name); return known }
	}
	g.Eventually(known("ns/dead")).Should(BeFalse())
	g.Expect(dead.isClosed()).To(BeTrue())
	g.Eventually(ends).Should(Receive(Equal("ns/dead 5")))
	g.Expect(known("ns/b")()).To(BeTrue())
	close(hold)
	g.Eventually(known("ns/b")).Should(BeFalse())
	g.Expect(b.ids()).To(HaveLen(5))
	g.Expect(b.isClosed()).To(BeTrue())
	g.Eventually(ends).Should(Receive(Equal("ns/b 0")))
	g.Expect(p.Set("ns/b", fast(&broker{}))).To(Succeed(), "it may come again")
}

// TestDrain: Start ends when everything is delivered. It does not wait for a dead backend, and
// waits for a slow one no longer than Drain.
func TestDrain(t *testing.T) {
	g := NewWithT(t)
	slow := &broker{on: func(ctx context.Context, _ ce.Event, _ int) error { <-ctx.Done(); return ctx.Err() }}
	dead := &broker{on: func(context.Context, ce.Event, int) error { return sink.Errorf(sink.Unavailable, "x", "dead") }}
	good := &broker{}
	p, stop := run(t, Options{Drain: 2 * time.Second, Dwell: time.Hour})
	s := fast(slow)
	s.Timeout = time.Hour
	g.Expect(p.Set("ns/slow", s)).To(Succeed())
	g.Expect(p.Set("ns/dead", fast(dead))).To(Succeed())
	g.Expect(p.Set("ns/good", fast(good))).To(Succeed())
	for i := range 100 {
		p.Publish(started(i), nil)
		p.Publish(newEvent(event.ClusterReady, "clusters/Cluster/fleet/a", i), nil)
	}
	stop()
	g.Expect(good.ids()).To(ContainElements(started(99).ID(), "clusters/Cluster/fleet/a#99"), "Dwell is ignored")
	g.Expect([]bool{slow.isClosed(), dead.isClosed(), good.isClosed()}).To(Equal([]bool{true, true, true}))
	g.Expect(p.Set("ns/late", fast(&broker{}))).To(MatchError(ErrStopped))
}

// TestOutboxSurvivesRestarts: the process ends at random moments. No event is missing, and
// duplicates have the same id.
func TestOutboxSurvivesRestarts(t *testing.T) {
	g := NewWithT(t)
	const events = 2000
	box := &outbox{}
	var all []*broker
	seen := map[string]bool{}
	told := 0
	for life := 0; ; life++ {
		b := &broker{}
		all = append(all, b)
		p, stop := run(t, Options{Sources: []Source{box}, Drain: time.Nanosecond})
		g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
		for range 1 + rand.IntN(events/3) {
			if told < events {
				e := newEvent(event.PromotionStarted, fmt.Sprint("pipelines/shop/", told%50), told)
				box.add(e) // The object is written before its event is published.
				p.Publish(e, box)
				told++
			}
		}
		if told == events {
			g.Eventually(func() int { return len(distinct(all, seen)) }).Should(Equal(events))
			stop()
			break
		}
		stop()
		g.Expect(life).To(BeNumerically("<", 1000))
	}
	g.Expect(len(all)).To(BeNumerically(">", 2))
}

func distinct(all []*broker, seen map[string]bool) map[string]bool {
	for _, b := range all {
		for _, id := range b.ids() {
			seen[id] = true
		}
	}
	return seen
}

// TestMetrics: metrics have help texts, and are deleted with their backend.
func TestMetrics(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewPedanticRegistry()
	p, _ := run(t, Options{})
	g.Expect(registry.Register(p)).To(Succeed())
	b := &broker{}
	g.Expect(p.Set("ns/b", fast(b))).To(Succeed())
	p.Publish(started(1), nil)
	g.Eventually(b.ids).Should(HaveLen(1))
	g.Eventually(func() (int, error) {
		return testutil.GatherAndCount(registry, "capstan_eventing_publish_attempts_total")
	}).Should(Equal(1))
	g.Expect(testutil.GatherAndCount(registry, "capstan_eventing_backlog", "capstan_eventing_oldest_seconds", "capstan_eventing_taking")).To(Equal(3))
	problems, err := testutil.GatherAndLint(registry)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(BeEmpty())
	p.Remove("ns/b", 0)
	g.Eventually(func() (int, error) { return testutil.GatherAndCount(registry) }).Should(BeZero())
}
