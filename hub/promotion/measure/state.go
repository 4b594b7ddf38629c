package measure

import (
	"context"
	"time"
)

// state is what mu of Measurer guards. All queries that are kept, wait or run have an entry.
type state struct {
	// ctx is that of Start; nil before and after.
	ctx            context.Context //nolint:containedctx // The queries end with it.
	started, ended bool
	entries        map[Query]*entry
	// lines of the endpoints. next is the index of the one whose turn it is.
	lines   []*line
	next    int
	running int
	// swept is when old entries were removed.
	swept time.Time
}

// line has the queries that wait for an endpoint, the first one first.
type line struct {
	endpoint string
	waiting  []*entry
	running  int
}

// entry is one query. mu of Measurer guards it, but for query, which is constant.
type entry struct {
	query Query
	// kept is the last result; nil if there is none.
	kept *Measurement
	// running since started.
	running bool
	started time.Time
	// present are the callbacks of the query that runs or waits, and following those of the one
	// after it.
	present, following []func(Measurement)
	// waiting in its line.
	waiting bool
}

func newState(endpoints []Endpoint) state {
	s := state{entries: map[Query]*entry{}}
	for _, e := range endpoints {
		s.lines = append(s.lines, &line{endpoint: e.Name})
	}
	return s
}

func (m *Measurer) start(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.lockedState
	if s.started {
		return false
	}
	s.started, s.ctx = true, ctx
	m.dispatchLocked()
	return true
}

// end forgets all queries. No goroutine starts after it.
func (m *Measurer) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lockedState = state{started: true, ended: true, ctx: m.lockedState.ctx, entries: map[Query]*entry{}}
}

// context returns that of Start. Connections are dialled after it only.
func (m *Measurer) context() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lockedState.ctx
}

// request returns a kept result that is new enough; else done is called later.
func (m *Measurer) request(q Query, notBefore time.Time, done func(Measurement)) *Measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.lockedState
	if s.ended {
		return nil
	}
	now := m.options.Clock.Now()
	m.sweepLocked(now)
	e := s.entries[q]
	if e == nil {
		e = &entry{query: q}
		s.entries[q] = e
	}
	switch {
	case e.kept != nil && !e.kept.Started.Before(notBefore) && now.Sub(e.kept.Started) < keep:
		return e.kept
	case e.running && e.started.Before(notBefore):
		e.following = append(e.following, done)
		return nil
	}
	e.present = append(e.present, done)
	if !e.running {
		m.waitLocked(e)
		m.dispatchLocked()
	}
	return nil
}

// finish keeps a result and returns the callbacks that wait for it.
func (m *Measurer) finish(e *entry, result Measurement) []func(Measurement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.lockedState
	if s.ended {
		return nil
	}
	s.running--
	m.lineLocked(e.query.Endpoint).running--
	e.running, e.kept = false, &result
	calls := e.present
	e.present, e.following = e.following, nil
	if len(e.present) > 0 {
		m.waitLocked(e)
	}
	m.dispatchLocked()
	return calls
}

func (m *Measurer) lineLocked(endpoint string) *line {
	for _, l := range m.lockedState.lines {
		if l.endpoint == endpoint {
			return l
		}
	}
	return nil
}

// waitLocked adds a query to the line of its endpoint, once.
func (m *Measurer) waitLocked(e *entry) {
	if e.waiting {
		return
	}
	e.waiting = true
	l := m.lineLocked(e.query.Endpoint)
	l.waiting = append(l.waiting, e)
}

// dispatchLocked starts queries, one of each endpoint in turn, while there are places.
func (m *Measurer) dispatchLocked() {
	s := &m.lockedState
	if s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	for passed := 0; s.running < maxQueries && passed < len(s.lines); {
		l := s.lines[s.next]
		s.next = (s.next + 1) % len(s.lines)
		if len(l.waiting) == 0 || l.running == maxAtEndpoint {
			passed++
			continue
		}
		passed = 0
		e := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.running++
		s.running++
		e.waiting, e.running, e.started = false, true, m.options.Clock.Now()
		ctx, started := s.ctx, e.started
		m.goroutines.Go(func() { m.run(ctx, e, started) })
	}
}

// sweepEvery is how often old results are removed.
const sweepEvery = time.Minute

// sweepLocked removes results that are too old.
func (m *Measurer) sweepLocked(now time.Time) {
	s := &m.lockedState
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for q, e := range s.entries {
		if !e.running && !e.waiting && (e.kept == nil || now.Sub(e.kept.Started) >= keep) {
			delete(s.entries, q)
		}
	}
}
