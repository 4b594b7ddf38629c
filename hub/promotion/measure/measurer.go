package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/internal/collectors"
	"github.com/capstan-hub/capstan/internal/netguard"
)

const (
	// deadline of one query.
	deadline = 10 * time.Second
	// maxQueries is how many queries run at once, and maxAtEndpoint at one endpoint.
	maxQueries    = 16
	maxAtEndpoint = 4
	// keep is how long a result is kept.
	keep = 10 * time.Minute
)

// Verdict is what a measurement found.
type Verdict string

// A measurement has a value, found no data, or failed.
const (
	HasValue Verdict = "HasValue"
	NoData   Verdict = "NoData"
	Error    Verdict = "Error"
)

// Query is a PromQL expression and the name of the endpoint that evaluates it.
type Query struct{ Endpoint, Query string }

// Measurement is the result of a Query.
type Measurement struct {
	Verdict Verdict
	// Value is valid with HasValue.
	Value float64
	// Message says why there is no value. It has no text of the endpoint.
	Message string
	// Started is when the query was sent.
	Started time.Time
}

// Options of a Measurer.
type Options struct {
	Endpoints []Endpoint
	// AllowLoopback allows endpoints at loopback addresses.
	AllowLoopback bool
	Clock         clock.PassiveClock
	Registerer    prometheus.Registerer

	// deadline of one query; the constant if 0.
	deadline time.Duration
}

// Measurer queries endpoints.
type Measurer struct {
	options    Options
	peers      map[string]*peer
	metrics    *metrics
	goroutines sync.WaitGroup

	mu          sync.Mutex
	lockedState state
}

var _ manager.Runnable = &Measurer{}

// New makes a Measurer. It makes no call.
func New(o Options) (*Measurer, error) {
	if o.deadline == 0 {
		o.deadline = deadline
	}
	m := &Measurer{options: o, peers: map[string]*peer{}, metrics: newMetrics(), lockedState: newState(o.Endpoints)}
	for _, e := range o.Endpoints {
		if m.peers[e.Name] != nil {
			return nil, fmt.Errorf("endpoint %s is given twice: give each its own name", e.Name)
		}
		m.peers[e.Name] = newPeer(m.context, e, netguard.Policy{AllowLoopback: o.AllowLoopback})
	}
	if _, err := collectors.Register(o.Registerer, m.metrics.all()...); err != nil {
		return nil, err
	}
	return m, nil
}

// Knows returns nil if Pipelines of a namespace may use an endpoint. Else the error is for users.
func (m *Measurer) Knows(endpoint, namespace string) error {
	p := m.peers[endpoint]
	if p != nil && p.open(namespace) {
		return nil
	}
	var usable []string
	for name, one := range m.peers {
		if one.open(namespace) {
			usable = append(usable, name)
		}
	}
	slices.Sort(usable)
	problem := "does not exist"
	if p != nil {
		problem = "is not open to namespace " + namespace
	}
	choice := "this namespace has none"
	if len(usable) > 0 {
		choice = "this namespace has " + strings.Join(usable, ", ")
	}
	return fmt.Errorf("endpoint %s %s: %s; the administrator adds one with --%s", quoted(endpoint), problem, choice, EndpointFlag)
}

// Start makes the queries until the context ends, and returns when no goroutine is left. A Measurer
// starts once. It implements manager.Runnable.
func (m *Measurer) Start(ctx context.Context) error {
	if !m.start(ctx) {
		return errors.New("the Measurer has started already")
	}
	<-ctx.Done()
	m.end()
	m.goroutines.Wait()
	for _, p := range m.peers {
		p.close()
	}
	return nil
}

// Measure calls done once with a result of the query whose Started is not before notBefore, or of a
// query that started after the call. It calls done before it returns if such a result is kept, or if
// the endpoint does not exist; else from a goroutine of the Measurer. done is not called after the
// Measurer has ended. Measure does not block and does no I/O.
func (m *Measurer) Measure(q Query, notBefore time.Time, done func(Measurement)) {
	if m.peers[q.Endpoint] == nil {
		done(Measurement{Verdict: Error, Message: fmt.Sprintf("endpoint %s does not exist", quoted(q.Endpoint)), Started: m.options.Clock.Now()})
		return
	}
	if known := m.request(q, notBefore, done); known != nil {
		done(*known)
	}
}

// run makes one query and calls those who wait for it.
func (m *Measurer) run(ctx context.Context, e *entry, started time.Time) {
	a := m.peers[e.query.Endpoint].ask(ctx, e.query.Query, m.options.deadline)
	if ctx.Err() != nil {
		return // The Measurer ends.
	}
	m.metrics.count(a.verdict, m.options.Clock.Since(started))
	result := Measurement{Verdict: a.verdict, Value: a.value, Message: a.message, Started: started}
	for _, done := range m.finish(e, result) {
		done(result)
	}
}
