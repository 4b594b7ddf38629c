package outbox_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/playground/generated"
)

//go:generate go test . -run TestNothingIsLostOfTheObjectsIsDocumented -update

var update = flag.Bool("update", false, "write the table of objects in docs/losses.md")

// fault is how calls to the API server fail.
type fault struct {
	name string
	// reason of the API server, which is also the metric's.
	reason string
	// code is the HTTP status of the answer; 0 cuts the connection.
	code int
	// all calls fail: lists and watches as well. Else only the writes of records.
	all bool
}

func faults() []fault {
	return []fault{
		{name: "the API server answers writes of records with 500", code: http.StatusInternalServerError, reason: "InternalError"},
		{name: "the API server answers writes of records with 409", code: http.StatusConflict, reason: "Conflict"},
		{name: "the API server answers writes of records with 429", code: http.StatusTooManyRequests, reason: "TooManyRequests"},
		{name: "the hub may not write records (403)", code: http.StatusForbidden, reason: "Forbidden"},
		{name: "the connections of writes are cut", reason: "Connection"},
		{name: "every connection of the hub to the API server is cut", reason: "Connection", all: true},
	}
}

// line is the way to the API server. It can fail.
type line struct{ now atomic.Pointer[fault] }

// of returns a transport that fails as the line does.
func (l *line) of(inner http.RoundTripper) http.RoundTripper { return &transport{inner, l} }

type transport struct {
	http.RoundTripper
	line *line
}

var errCut = errors.New("the connection was cut on purpose")

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now := t.line.now.Load()
	if now == nil || !now.all && r.Method != http.MethodPatch {
		answer, err := t.RoundTripper.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") != "" {
			answer.Body = &severable{answer.Body, t.line}
		}
		return answer, err
	}
	if now.code == 0 {
		return nil, errCut
	}
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"on purpose","reason":%q,"code":%d}`, now.reason, now.code)
	return &http.Response{
		StatusCode: now.code, Status: http.StatusText(now.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// severable is a watch that ends when all calls fail.
type severable struct {
	io.ReadCloser
	line *line
}

func (s *severable) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if now := s.line.now.Load(); now != nil && now.all {
		return 0, errCut
	}
	return n, err
}

// lossTimes are when a fault lasts.
var lossTimes = []string{"at start", "in flight", "for 5 s", "for an hour"}

// Whatever fails between the hub and its API server, before the start, while events are in
// flight, for 5 s or for an hour of simulated time, and although the hub dies meanwhile (except
// in the 5 s): every event of a promotion is delivered, each time with the same id. The last event of a cluster is
// its last state. When all is recorded, the next hub publishes nothing. `make test` tries one
// time of each fault, and `make soak` all.
func TestNothingIsLostOfTheObjects(t *testing.T) {
	t.Parallel()
	shared.Get(t) // Its processes outlive the subtests.
	for i, f := range faults() {
		for j, when := range lossTimes {
			if !soaks() && i%len(lossTimes) != j {
				continue
			}
			t.Run(f.name+", "+when, func(t *testing.T) {
				t.Parallel()
				f.lasts(t, when)
			})
		}
	}
}

// lasts lets the fault last, with events before it, during it and after it, and two hubs.
func (f *fault) lasts(t *testing.T, when string) {
	w := newWorld(t)
	w.backend("bus")
	bus := &broker{}
	sinks := map[string]sink.Sink{"bus": bus}
	clock := testclock.NewFakeClock(time.Now())
	line := &line{}
	lives := func() *life { return w.live(how{clock: clock, line: line}, sinks) }
	passes := func(d time.Duration) {
		for end := clock.Now().Add(d); clock.Now().Before(end); {
			clock.Step(time.Second)
			w.lasts(2 * time.Millisecond)
		}
	}
	eventually := func(have func() []string, want ...string) {
		w.Helper()
		w.g.Eventually(func() []string { passes(time.Second); return have() }).Should(ContainElements(want))
	}
	start := clock.Now()
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	first, during, after := w.promotion("web-1", 1, false), w.promotion("web-2", 2, false), w.promotion("web-3", 3, false)
	// One cluster becomes unreachable during the fault, and recovers at its end. The other one
	// becomes unreachable at the end: its event is published by a repetition of the write.
	c, lost := w.connection("edge"), w.connection("lost")
	w.state(c, capstanv1.ConnectionReady, at(0))
	w.state(lost, capstanv1.ConnectionReady, at(0))

	if when == "at start" {
		line.now.Store(f)
	}
	var one *life
	if when != "at start" || !f.all { // Without its API server the hub does not start.
		one = lives()
	}
	w.started(first)
	if when != "at start" {
		eventually(bus.kinds, "promotion.started.v1", "cluster.ready.v1")
		if when != "in flight" {
			for _, o := range []client.Object{first, c} {
				w.g.Eventually(func() string { passes(time.Second); return w.record(o) }).ShouldNot(BeEmpty())
			}
		}
		line.now.Store(f)
	}
	w.ended(first, capstanv1.PhaseSucceeded)
	w.state(c, capstanv1.ConnectionUnreachable, at(1))
	w.started(during)
	if !f.all {
		eventually(bus.ids, hub.Promotions(during)[1].ID()) // It was observed after the cluster.
	}
	switch when {
	case "for 5 s":
		passes(5 * time.Second)
	case "for an hour":
		passes(time.Hour)
	}
	if !f.all {
		w.g.Eventually(func() float64 {
			passes(time.Second)
			return one.metric("capstan_eventing_record_failures_total", f.reason)
		}).Should(BeNumerically(">", 0))
		w.g.Expect(one.metric("capstan_eventing_records_waiting")).To(BeNumerically(">=", 2), "a Promotion and the cluster")
	}
	dies := when != "for 5 s"
	if dies && one != nil {
		one.end()
	}
	w.state(c, capstanv1.ConnectionReady, at(2))
	w.state(lost, capstanv1.ConnectionUnreachable, at(3))
	w.ended(during, capstanv1.PhaseSucceeded)
	if !dies && !f.all {
		passes(time.Second) // Both are held, and their writes fail.
	}
	line.now.Store(nil)
	two := one
	if dies {
		two = lives()
	}
	w.started(after)
	w.ended(after, capstanv1.PhaseSucceeded)
	var want []string
	for _, p := range []*capstanv1.Promotion{first, during, after} {
		w.g.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
		for _, e := range hub.Promotions(p) {
			want = append(want, e.ID())
		}
	}
	w.g.Expect(want).To(HaveLen(9))
	eventually(bus.ids, want...)
	last := func(name string) func() event.Kind {
		return func() event.Kind { passes(time.Second); return bus.last()["clusters/Cluster/"+w.ns+"/"+name] }
	}
	w.g.Eventually(last("lost")).Should(Equal(event.ClusterUnreachable)) // Observed after the other one.
	w.g.Eventually(last("edge")).Should(Or(Equal(event.ClusterReady), Equal(event.ClusterRecovered)), "got %v", bus.kinds())
	w.g.Eventually(func() float64 { passes(time.Second); return two.metric("capstan_eventing_records_waiting") }).Should(BeZero())
	// What is published is recorded, within the longest delay of a retry.
	passes(2 * time.Minute)
	two.end()
	known := len(bus.ids())
	three := lives()
	fourth := w.promotion("web-4", 4, false)
	eventually(bus.ids, hub.Promotions(fourth)[0].ID())
	w.g.Expect(bus.ids()[known:]).To(Equal([]string{hub.Promotions(fourth)[0].ID()}), "the rest is recorded")
	three.end()
	// An event that was published again had the same id.
	distinct := slices.Compact(slices.Sorted(slices.Values(bus.ids())))
	w.g.Expect(len(distinct)).To(BeNumerically("<=", len(want)+1+4+3), "and the clusters': registered, ready, unreachable; recovered")
}

// metric returns the value of a metric of the outbox; 0 if there is none with these labels.
func (l *life) metric(name string, labels ...string) float64 {
	all := prometheus.NewRegistry()
	l.w.g.Expect(all.Register(l.outbox)).To(Succeed())
	families, err := all.Gather()
	l.w.g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, label := range m.GetLabel() {
				has = append(has, label.GetValue())
			}
			if f.GetName() == name && slices.Equal(has, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// The table in docs/losses.md has the faults that are tried.
func TestNothingIsLostOfTheObjectsIsDocumented(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "| cause | an event | where it shows | %s |\n|---|---|---|%s\n", strings.Join(lossTimes, " | "), strings.Repeat("---|", len(lossTimes)))
	for _, f := range faults() {
		does := "published; after the death of the hub once more, with the same `id`. A change of a state waits until its record is written"
		if f.all {
			does = "waits in its object until the hub reads it"
		}
		fmt.Fprintf(&b, "| %s | %s | `capstan_eventing_record_failures_total{reason=\"%s\"}`, `capstan_eventing_records_waiting`; alert `CapstanEventsNotRecorded` |%s\n", f.name, does, f.reason, strings.Repeat(" none lost |", len(lossTimes)))
	}
	generated.Section(t, "../../../docs/losses.md", "losses of objects", strings.TrimSuffix(b.String(), "\n"), *update)
}
