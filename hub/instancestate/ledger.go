package instancestate

import (
	"slices"
	"sync"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// remembers is how many events are remembered whose handlers have reported: more than a
// queue's window, so that a report never comes too early or too late.
const remembers = 20_000

// ledger knows which handlers have reported of which events.
type ledger struct {
	mu          sync.Mutex
	lockedState struct {
		handlers []string
		events   map[string]*entry
		// openOn: object → ids of the events of which a report on it is open.
		openOn map[owner.Key]map[string]struct{}
		// done are ids of events of which nothing is open, oldest first.
		done []string
	}
}

// entry of an event.
type entry struct {
	// reported and open: who has, and who has not, by handler and object.
	reported, open map[report]struct{}
	// then is called when nothing is open any more.
	then []func()
}

type report struct {
	handler string
	object  owner.Key
}

func newLedger() *ledger {
	l := &ledger{}
	l.lockedState.events = map[string]*entry{}
	l.lockedState.openOn = map[owner.Key]map[string]struct{}{}
	return l
}

func (l *ledger) add(handler string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockedState.handlers = append(l.lockedState.handlers, handler)
}

// ofLocked is the entry of an event.
func (l *ledger) ofLocked(id string) *entry {
	e := l.lockedState.events[id]
	if e == nil {
		e = &entry{reported: map[report]struct{}{}, open: map[report]struct{}{}}
		l.lockedState.events[id] = e
	}
	return e
}

// await the reports of all handlers on an object and its event; then is called when they
// are there, perhaps at once. It returns who has not reported.
func (l *ledger) await(id string, object owner.Key, then func()) (open []string) {
	l.mu.Lock()
	if len(l.lockedState.handlers) == 0 {
		l.mu.Unlock()
		then()
		return nil
	}
	e := l.ofLocked(id)
	for _, handler := range l.lockedState.handlers {
		r := report{handler, object}
		if _, has := e.reported[r]; !has {
			e.open[r] = struct{}{}
			open = append(open, handler)
		}
	}
	if len(open) > 0 {
		if l.lockedState.openOn[object] == nil {
			l.lockedState.openOn[object] = map[string]struct{}{}
		}
		l.lockedState.openOn[object][id] = struct{}{}
	}
	if len(e.open) > 0 {
		e.then = append(e.then, then)
		l.mu.Unlock()
		return open
	}
	l.closeLocked(id)
	l.mu.Unlock()
	then()
	return nil
}

// report of a handler.
func (l *ledger) report(handler string, object owner.Key, id string) {
	l.mu.Lock()
	e := l.ofLocked(id)
	r := report{handler, object}
	e.reported[r] = struct{}{}
	delete(e.open, r)
	then := l.settleLocked(id, e)
	l.mu.Unlock()
	call(then)
}

// superseded are the events behind an object's label but for one: nobody is woken for
// them any more. With an empty id, all of them: the object is gone.
func (l *ledger) superseded(object owner.Key, but string) {
	var then []func()
	l.mu.Lock()
	for id := range l.lockedState.openOn[object] {
		if id == but {
			continue
		}
		delete(l.lockedState.openOn[object], id)
		e := l.ofLocked(id)
		for r := range e.open {
			if r.object == object {
				delete(e.open, r)
			}
		}
		then = append(then, l.settleLocked(id, e)...)
	}
	if len(l.lockedState.openOn[object]) == 0 {
		delete(l.lockedState.openOn, object)
	}
	l.mu.Unlock()
	call(then)
}

// settleLocked settles an event of which nothing is open.
func (l *ledger) settleLocked(id string, e *entry) []func() {
	if len(e.open) > 0 {
		return nil
	}
	then := e.then
	e.then = nil
	for r := range e.reported {
		delete(l.lockedState.openOn[r.object], id)
		if len(l.lockedState.openOn[r.object]) == 0 {
			delete(l.lockedState.openOn, r.object)
		}
	}
	l.closeLocked(id)
	return then
}

// closeLocked closes an event of which nothing is open, and forgets the oldest.
func (l *ledger) closeLocked(id string) {
	s := &l.lockedState
	if !slices.Contains(s.done[max(0, len(s.done)-recentlyDone):], id) {
		s.done = append(s.done, id)
	}
	for len(s.done) > remembers {
		oldest := s.done[0]
		s.done = s.done[1:]
		if e := s.events[oldest]; e != nil && len(e.open) == 0 {
			delete(s.events, oldest)
		}
	}
}

// recentlyDone is how far back a repeated id is looked for, to not remember it twice;
// further back it does no harm.
const recentlyDone = 16

// processed is whether every handler has reported; also when there are none.
func (l *ledger) processed(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lockedState.handlers) == 0 {
		return true
	}
	e := l.lockedState.events[id]
	return e != nil && len(e.open) == 0
}

func call(all []func()) {
	for _, f := range all {
		f()
	}
}
