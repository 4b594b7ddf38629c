package publisher

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"

	"github.com/capstan-hub/capstan/hub/eventing/event"
)

const (
	// spread is how long the broker takes to answer in the paired runs, as on the same network.
	spread = time.Millisecond
	// paired is the maximum number of paired runs.
	paired = 5
)

// latency returns the 50th and 99th percentile of the time from Publish to the broker's
// acknowledgement, for two live backends next to a number of dead ones.
func latency(tb testing.TB, p *Publisher, events, dead int) (p50, p99 time.Duration) {
	tb.Helper()
	answer := func(ctx context.Context, _ ce.Event, _ int) error {
		timer := time.NewTimer(spread)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	live := []*broker{{on: answer}, {on: answer}}
	var names []string
	set := func(name string, b *broker) {
		s := fast(b)
		s.Timeout = 50 * time.Millisecond
		if err := p.Set(name, s); err != nil {
			tb.Fatal(err)
		}
		names = append(names, name)
	}
	for i, b := range live {
		set(fmt.Sprint("ns/live-", i), b)
	}
	for i := range dead { // Accepts the call and never answers.
		set(fmt.Sprint("ns/dead-", i), &broker{on: func(ctx context.Context, _ ce.Event, _ int) error { <-ctx.Done(); return ctx.Err() }})
	}
	told := map[string]time.Time{}
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for i := range events {
		e := newEvent(event.PromotionStarted, fmt.Sprint("pipelines/shop/", i%50), i)
		told[e.ID()] = time.Now()
		p.Publish(e, nil)
		<-pace.C
	}
	var took []time.Duration
	for _, b := range live {
		for deadline := time.Now().Add(20 * time.Second); len(b.ids()) < events; {
			if time.Now().After(deadline) {
				tb.Fatalf("%d of %d events arrived", len(b.ids()), events)
			}
			<-pace.C
		}
		b.mu.Lock()
		for id, at := range b.at {
			took = append(took, at.Sub(told[id]))
		}
		b.mu.Unlock()
	}
	for _, name := range names {
		p.Remove(name, 0)
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// TestOneDeadBackend: a dead backend does not measurably change the latency of the others.
// One pair of runs must show it: other load on the machine may disturb the rest.
func TestOneDeadBackend(t *testing.T) {
	middle := func(dead int) time.Duration {
		p, stop := run(t, Options{})
		defer stop()
		p50, _ := latency(t, p, 200, dead)
		return p50
	}
	for range paired {
		alone, together := middle(0), middle(1)
		t.Logf("from Publish to the broker's acknowledgement (which takes %s): %s alone, %s next to a dead backend", spread, alone, together)
		if together <= alone+alone/10+2*time.Millisecond {
			return
		}
	}
	t.Fatal("the live backends were slower in all of the runs next to a dead one")
}

// BenchmarkDeadBackends: the latency of two live backends at 500 events a second.
func BenchmarkDeadBackends(b *testing.B) {
	for _, dead := range []int{0, 1, 3} {
		b.Run(fmt.Sprint("dead=", dead), func(b *testing.B) {
			p := benchPublisher(b)
			for b.Loop() {
				p50, p99 := latency(b, p, 500, dead)
				b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
				b.ReportMetric(float64(p99.Microseconds()), "p99-µs")
			}
		})
	}
}

// BenchmarkThroughput: events a second to a broker that answers at once.
func BenchmarkThroughput(b *testing.B) {
	p := benchPublisher(b)
	to := &broker{}
	s := fast(to)
	s.MaxEvents, s.MaxBytes = 1<<30, 1<<40
	if err := p.Set("ns/b", s); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		p.Publish(newEvent(event.PromotionStarted, fmt.Sprint("pipelines/shop/", n%200), n), nil)
		n++
	}
	for s, _ := p.Status("ns/b"); s.Queued > 0; s, _ = p.Status("ns/b") {
		runtime.Gosched()
	}
}

func benchPublisher(b *testing.B) *Publisher {
	b.Helper()
	p := New(quiet())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return p
}
