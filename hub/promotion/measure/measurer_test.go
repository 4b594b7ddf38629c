package measure

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/playground/leaks"
)

var policyWithoutLoopback = netguard.Policy{}

// gated answers after release, and counts what runs at once.
type gated struct {
	release      chan struct{}
	running, top atomic.Int32
}

func (h *gated) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	n := h.running.Add(1)
	defer h.running.Add(-1)
	for {
		top := h.top.Load()
		if n <= top || h.top.CompareAndSwap(top, n) {
			break
		}
	}
	select {
	case <-h.release:
		body(vector("1"))(w, r)
	case <-r.Context().Done():
	}
}

// An endpoint that does not answer has at most four places: the others are not delayed.
func TestHangingEndpoint(t *testing.T) {
	g := NewWithT(t)
	h := &gated{release: make(chan struct{})}
	hanging, healthy := serve(t, h.serve), serve(t, body(vector("1")))
	m := start(t, Options{Endpoints: []Endpoint{at(t, "hanging", hanging.URL), at(t, "healthy", healthy.URL)}})
	var hung atomic.Int32
	const queries = 20
	for i := range queries {
		m.Measure(Query{"hanging", fmt.Sprint(i)}, time.Now(), func(Measurement) { hung.Add(1) })
	}
	for i := range queries {
		g.Expect(measure(t, m, "healthy", fmt.Sprint(i)).Verdict).To(Equal(HasValue))
	}
	g.Expect(hung.Load()).To(BeZero())
	g.Eventually(h.running.Load, patience).Should(BeEquivalentTo(maxAtEndpoint))
	close(h.release)
	g.Eventually(hung.Load, patience).Should(BeEquivalentTo(queries))
	g.Expect(h.top.Load()).To(BeEquivalentTo(maxAtEndpoint))
}

// No more than sixteen queries run at once.
func TestLimitOfAll(t *testing.T) {
	g := NewWithT(t)
	h := &gated{release: make(chan struct{})}
	s := serve(t, h.serve)
	o := Options{}
	for i := range 6 {
		o.Endpoints = append(o.Endpoints, at(t, fmt.Sprintf("e%d", i), s.URL))
	}
	m := start(t, o)
	var done atomic.Int32
	for i := range 6 {
		for j := range maxAtEndpoint {
			m.Measure(Query{fmt.Sprintf("e%d", i), fmt.Sprint(j)}, time.Now(), func(Measurement) { done.Add(1) })
		}
	}
	g.Eventually(h.running.Load, patience).Should(BeEquivalentTo(maxQueries))
	close(h.release)
	g.Eventually(done.Load, patience).Should(BeEquivalentTo(6 * maxAtEndpoint))
	g.Expect(h.top.Load()).To(BeEquivalentTo(maxQueries))
}

// Identical queries share a query under way and a kept result, if they are new enough.
func TestSharing(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	h := &gated{release: make(chan struct{}, 10)}
	s := serve(t, h.serve)
	m := start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}, Clock: now})
	q, began := Query{"main", "x"}, now.Now()
	got := make(chan Measurement, 10)
	wish := func(notBefore time.Time) { m.Measure(q, notBefore, func(one Measurement) { got <- one }) }

	// Ten callers, one query.
	for range 10 {
		wish(began)
	}
	g.Eventually(h.running.Load, patience).Should(BeEquivalentTo(1))
	// One that wants a newer result gets that of the next query.
	now.SetTime(began.Add(time.Minute))
	newer := make(chan Measurement, 1)
	m.Measure(q, now.Now(), func(one Measurement) { newer <- one })
	h.release <- struct{}{}
	for range 10 {
		var one Measurement
		g.Eventually(got, patience).Should(Receive(&one))
		g.Expect(one.Started).To(Equal(began))
	}
	g.Expect(newer).NotTo(Receive())
	h.release <- struct{}{}
	var one Measurement
	g.Eventually(newer, patience).Should(Receive(&one))
	g.Expect(one.Started).To(Equal(began.Add(time.Minute)))
	g.Expect(s.requests.Load()).To(BeEquivalentTo(2))

	// The kept result is given before Measure returns.
	wish(began)
	g.Expect(got).To(Receive(Equal(one)))
	wish(one.Started)
	g.Expect(got).To(Receive(Equal(one)))
	g.Expect(s.requests.Load()).To(BeEquivalentTo(2))

	// It is forgotten after ten minutes.
	now.SetTime(one.Started.Add(keep))
	wish(began)
	g.Expect(got).NotTo(Receive())
	h.release <- struct{}{}
	g.Eventually(got, patience).Should(Receive(HaveField("Started", one.Started.Add(keep))))
	now.SetTime(now.Now().Add(keep))
	m.Measure(Query{"main", "y"}, now.Now(), func(Measurement) {})
	g.Expect(entries(m)).To(Equal(1), "x is forgotten, y is not")
	h.release <- struct{}{}
	g.Eventually(h.running.Load, patience).Should(BeZero())
}

func entries(m *Measurer) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lockedState.entries)
}

// Callbacks may call Measure, and one that waits delays no other query.
func TestCallbacks(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, body(vector("1")))
	m := start(t, Options{Endpoints: []Endpoint{at(t, "main", s.URL)}})
	release, done := make(chan struct{}), make(chan struct{})
	for i := range maxQueries {
		m.Measure(Query{"main", fmt.Sprint("slow", i)}, time.Now(), func(Measurement) { <-release })
	}
	g.Expect(measure(t, m, "main", "x").Verdict).To(Equal(HasValue))
	m.Measure(Query{"main", "outer"}, time.Now(), func(one Measurement) {
		m.Measure(Query{"main", "outer"}, one.Started, func(Measurement) { close(done) })
	})
	g.Eventually(done, patience).Should(BeClosed())
	close(release)
}

// Start ends all goroutines, while queries run and wait, and calls no callback after it.
func TestEnd(t *testing.T) {
	leaks.AtEnd(t)
	g := NewWithT(t)
	s := serve(t, hang)
	slow := at(t, "slow", "http://192.0.2.1") // No answer, not even a refusal.
	m, err := New(Options{Endpoints: []Endpoint{at(t, "main", s.URL), slow}, AllowLoopback: true, Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	var calls atomic.Int32
	call := func(Measurement) { calls.Add(1) }
	// Queries before the start wait for it.
	for i := range 10 {
		m.Measure(Query{"main", fmt.Sprint(i)}, time.Now(), call)
	}
	m.Measure(Query{"slow", "x"}, time.Now(), func(Measurement) {}) // It may fail at once.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	g.Eventually(s.requests.Load, patience).Should(BeEquivalentTo(maxAtEndpoint))
	cancel()
	g.Eventually(ended, patience).Should(Receive(BeNil()))
	m.Measure(Query{"main", "late"}, time.Now(), call)
	g.Expect(entries(m)).To(BeZero())
	g.Expect(m.Start(t.Context())).To(MatchError(ContainSubstring("has started already")))
	g.Expect(calls.Load()).To(BeZero())
}

// Each of many concurrent calls gets one result that is new enough.
func TestConcurrentUse(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, body(vector("1")))
	m := start(t, Options{Endpoints: []Endpoint{at(t, "a", s.URL), at(t, "b", s.URL)}})
	var callers sync.WaitGroup
	var done, wrong atomic.Int32
	const each = 100
	for i := range 8 {
		callers.Go(func() {
			for n := range each {
				notBefore := time.Now()
				m.Measure(Query{string("ab"[n%2]), fmt.Sprint(n%5, i%2)}, notBefore, func(one Measurement) {
					if one.Verdict != HasValue || one.Started.Before(notBefore) {
						wrong.Add(1)
					}
					done.Add(1)
				})
			}
		})
	}
	callers.Wait()
	g.Eventually(done.Load, patience).Should(BeEquivalentTo(8 * each))
	g.Expect(wrong.Load()).To(BeZero())
}
