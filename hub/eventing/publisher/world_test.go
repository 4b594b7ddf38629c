package publisher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// broker is a sink in memory whose behaviour a test sets.
type broker struct {
	// on is called for each attempt, outside the lock, and returns its error.
	on func(ctx context.Context, e ce.Event, attempt int) error

	mu       sync.Mutex
	got      []ce.Event
	attempts map[string]int
	at       map[string]time.Time
	now, max int
	pings    int
	closed   bool
}

func (b *broker) Ping(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pings++
	return nil
}

func (b *broker) Publish(ctx context.Context, e ce.Event) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		panic("published after Close")
	}
	if b.attempts == nil {
		b.attempts, b.at = map[string]int{}, map[string]time.Time{}
	}
	b.attempts[e.ID()]++
	attempt := b.attempts[e.ID()]
	b.now++
	b.max = max(b.max, b.now)
	b.mu.Unlock()
	var err error
	if b.on != nil {
		err = b.on(ctx, e, attempt)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now--
	if err == nil {
		b.got = append(b.got, e)
		b.at[e.ID()] = time.Now()
	}
	return err
}

func (b *broker) Close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *broker) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, e := range b.got {
		ids = append(ids, e.ID())
	}
	return ids
}

func (b *broker) tries(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[id]
}

func (b *broker) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := 0
	for _, n := range b.attempts {
		all += n
	}
	return all
}

func (b *broker) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// outbox is a Source that keeps all events and records which are settled.
type outbox struct {
	mu      sync.Mutex
	events  []ce.Event
	settled map[string]map[string]Outcome // by backend and id
}

func (o *outbox) add(e ce.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

func (o *outbox) Pending(_ context.Context, backend string, yield func(ce.Event) bool) error {
	o.mu.Lock()
	var pending []ce.Event
	for _, e := range o.events {
		if _, done := o.settled[backend][e.ID()]; !done {
			pending = append(pending, e)
		}
	}
	o.mu.Unlock()
	for _, e := range pending {
		if !yield(e) {
			break
		}
	}
	return nil
}

func (o *outbox) Settled(backend, id string, how Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled == nil {
		o.settled = map[string]map[string]Outcome{}
	}
	if o.settled[backend] == nil {
		o.settled[backend] = map[string]Outcome{}
	}
	o.settled[backend][id] = how
}

func (o *outbox) outcome(backend, id string) Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled[backend][id]
}

// newEvent makes an event of a kind.
func newEvent(k event.Kind, subject string, n int) ce.Event {
	e := ce.New()
	e.SetID(fmt.Sprintf("%s#%d", subject, n))
	e.SetType(event.DefaultPrefix + "." + string(k))
	e.SetSource("/hubs/test")
	e.SetSubject(subject)
	e.DataEncoded = []byte(`{}`)
	return e
}

func started(i int) ce.Event { return newEvent(event.PromotionStarted, "pipelines/shop/web", i) }

// fast returns settings for tests on the real clock.
func fast(s *broker) Settings {
	return Settings{
		Type: "memory", Sink: s, MaxInFlight: 8, Timeout: time.Second, MaxAttempts: 1000,
		Backoff: time.Millisecond, BackoffMax: 4 * time.Millisecond,
	}
}

// run a publisher until the test ends. The returned function ends it earlier and checks that
// no goroutine is left.
func run(t *testing.T, o Options) (*Publisher, func()) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	if o.Clock == nil {
		o.Clock = quiet().Clock
	}
	o.Logger = quiet().Logger
	p := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := leaks.Find(before); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return p, stop
}

// quiet returns options without logs, on the real clock.
func quiet() Options { return Options{Clock: clock.RealClock{}, Logger: logr.Discard()} }

func status(p *Publisher, name string) func() Status {
	return func() Status {
		s, _ := p.Status(name)
		return s
	}
}

// walks returns whether the first walk of the first backend has not ended. Events that are
// published during a walk are not in the queue yet.
func walks(p *Publisher) func() bool {
	return func() bool {
		b := p.all()[0]
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.lockedQueue.deferring || b.lockedQueue.walking
	}
}

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(2 * time.Millisecond)
	m.Run()
}
