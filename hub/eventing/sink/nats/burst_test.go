package nats

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/eventing/publisher"
)

// ledger is a Source that keeps its events in memory, as the API server keeps objects.
type ledger struct {
	mu      sync.Mutex
	events  []ce.Event
	settled map[string]bool
	// forget makes some records fail, like a process that dies between the broker's
	// acknowledgement and the record.
	forget bool
}

func (l *ledger) add(e ce.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *ledger) Pending(_ context.Context, _ string, yield func(ce.Event) bool) error {
	l.mu.Lock()
	pending := slices.DeleteFunc(slices.Clone(l.events), func(e ce.Event) bool { return l.settled[e.ID()] })
	l.mu.Unlock()
	for _, e := range pending {
		if !yield(e) {
			break
		}
	}
	return nil
}

func (l *ledger) Settled(_, id string, _ publisher.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forget || rand.IntN(10) > 0 {
		l.settled[id] = true
	}
}

// life is a publisher with one backend.
func life(t testing.TB, s *Sink, sources ...publisher.Source) (*publisher.Publisher, func()) {
	t.Helper()
	p := publisher.New(publisher.Options{Clock: clock.RealClock{}, Logger: logr.Discard(), Sources: sources, Drain: time.Nanosecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	settings := publisher.Settings{
		Type: "nats", Sink: s, Timeout: 2 * time.Second, MaxAttempts: 10, Backoff: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond,
	}
	if err := p.Set("hub/bus", settings); err != nil {
		t.Fatal(err)
	}
	return p, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestBurst publishes 2,000 edges. Meanwhile the publisher ends five times and the server three
// times. The stream has each edge exactly once, in order for each subject.
func TestBurst(t *testing.T) {
	g := NewWithT(t)
	const edges, subjects = 2000, 50
	b := newBroker(t, nil).start()
	l := &ledger{settled: map[string]bool{}, forget: true}
	told := 0
	for n := range 8 {
		s := open(t, Options{Config: config(t, b.url(), nil)})
		p, end := life(t, s, l)
		for range edges / 8 {
			e := news(told)
			l.add(e)
			p.Publish(e, l)
			told++
		}
		if n%3 == 1 {
			b.stop()
			b.start()
		}
		if n == 7 {
			g.Eventually(func() int {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.forget = false
				status, _ := p.Status("hub/bus")
				return status.Queued
			}).Should(BeZero())
			g.Eventually(func() uint64 {
				stream, err := b.admin().Stream(t.Context(), "capstan")
				g.Expect(err).NotTo(HaveOccurred())
				return stream.CachedInfo().State.Msgs
			}).Should(BeEquivalentTo(edges))
		}
		end()
	}
	seen, last := map[string]bool{}, map[string]int{}
	for _, m := range messages(t, b.admin(), "capstan") {
		var e ce.Event
		g.Expect(e.UnmarshalJSON(m.Data)).To(Succeed())
		g.Expect(seen).NotTo(HaveKey(e.ID()))
		seen[e.ID()] = true
		var data struct{ N int }
		g.Expect(e.DataAs(&data)).To(Succeed())
		before, told := last[e.Subject()]
		g.Expect(!told || before < data.N).To(BeTrue(), "%s: %d after %d", e.Subject(), data.N, before)
		last[e.Subject()] = data.N
	}
	g.Expect(seen).To(HaveLen(edges))
	g.Expect(last).To(HaveLen(subjects))
}

// BenchmarkJetStream measures events per second to a file stream of a real server in this
// process.
func BenchmarkJetStream(b *testing.B) {
	for _, inFlight := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("inFlight=", inFlight), func(b *testing.B) {
			server := newBroker(b, nil).start()
			s := open(b, Options{Config: config(b, server.url(), nil)})
			if err := s.Ping(context.Background()); err != nil {
				b.Fatal(err)
			}
			p, end := life(b, s)
			defer end()
			settings := publisher.Settings{Type: "nats", Sink: s, MaxInFlight: inFlight, MaxEvents: 1 << 30, MaxBytes: 1 << 40, Timeout: 10 * time.Second}
			if err := p.Set("hub/bus2", settings); err != nil {
				b.Fatal(err)
			}
			p.Remove("hub/bus", 0)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			n := 0
			for b.Loop() {
				for range batch {
					e := news(n)
					e.SetID(fmt.Sprintf("bench-%d", n))
					n++
					p.Publish(e, nil)
				}
				for status, _ := p.Status("hub/bus2"); status.Queued > 0; status, _ = p.Status("hub/bus2") {
					<-tick.C
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// batch is how many events one iteration of the benchmark delivers.
const batch = 5000

// BenchmarkLatency measures the time from Publish to JetStream's acknowledgement, at 200 events
// per second.
func BenchmarkLatency(b *testing.B) {
	server := newBroker(b, nil).start()
	s := open(b, Options{Config: config(b, server.url(), nil)})
	if err := s.Ping(context.Background()); err != nil {
		b.Fatal(err)
	}
	l := &timed{at: map[string]time.Time{}}
	p, end := life(b, s, l)
	defer end()
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for status, _ := p.Status("hub/bus"); status.Deferring; status, _ = p.Status("hub/bus") {
		<-pace.C // The first walk.
	}
	n := 0
	for b.Loop() {
		e := news(n)
		e.SetID(fmt.Sprintf("bench-%d", n))
		n++
		l.begin(e.ID())
		p.Publish(e, l)
		<-pace.C
	}
	for {
		if took := l.all(); len(took) == n {
			b.ReportMetric(float64(took[n/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[n*99/100].Microseconds()), "p99-µs")
			return
		}
		<-pace.C
	}
}

// timed is a Source that measures the time until each event is settled.
type timed struct {
	mu   sync.Mutex
	at   map[string]time.Time
	took []time.Duration
}

func (l *timed) begin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[id] = time.Now()
}

func (l *timed) all() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.took))
}

func (l *timed) Pending(context.Context, string, func(ce.Event) bool) error { return nil }

func (l *timed) Settled(_, id string, _ publisher.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(l.at[id]))
}
