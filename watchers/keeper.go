package watchers

import (
	"context"
	"errors"
	"time"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/internal/backoff"
)

// keeper keeps one kind of one cluster watched, over one connection after another, and
// starts another run when a run ends.
//
// Its work goroutine does all that can wait. There is at most one, and none while there is
// nothing to do: ten thousand goroutines that wait would cost as much as the observations
// of a hundred clusters.
type keeper struct {
	subject *subject

	// loop belongs to the goroutine of Watcher.Start.
	loop keeperLoop
	// work belongs to the work goroutine.
	work keeperWork
	// lockedState is guarded by shared.mu.
	lockedState keeperState
}

type keeperLoop struct {
	// stale holds the namespaces that are not fresh in the index.
	stale map[string]struct{}
}

type keeperWork struct {
	// current is the present run; nil between runs. next runs over a newer connection, and
	// replaces current when next is synced.
	current, next *run
	// transient is the backoff for failures that may end without a user, and repair for
	// those that a user has to fix.
	transient, repair backoff.Sequence
	// restored is when a run last ended with errRestored.
	restored time.Time
}

type keeperState struct {
	// connection over which a run is needed; nil for none.
	connection *clusters.Connection
	// began is when the keeper got that connection, or when the last run ended whose list was
	// complete: since then, a list is needed.
	began time.Time
	// run is the run by which freshness is judged ("the run that counts"); nil between
	// runs. next will replace it; it observes already.
	run, next *run
}

func newKeeper(s *subject) *keeper {
	t := s.shared.options.Timings
	k := &keeper{
		subject: s,
		loop:    keeperLoop{stale: map[string]struct{}{}},
		work: keeperWork{
			transient: backoff.NewSequence(t.TransientRetry, t.Retry),
			repair:    backoff.NewSequence(t.Retry, t.RetryMax),
		},
	}
	s.work = k.doWork
	return k
}

// connect makes the keeper run over a connection. A run that is synced over another
// connection, to the same cluster, continues until the new one is synced. Called by the
// loop.
func (k *keeper) connect(connection *clusters.Connection, now time.Time) {
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	s, subject := &k.lockedState, &k.subject.lockedState
	switch r := s.run; {
	case s.connection == connection:
		if !subject.retryAt.IsZero() && !now.Before(subject.retryAt) {
			k.subject.pokeLocked()
		}
		return
	case r.syncedLocked() && r.ctx.Err() == nil && r.connection.Context().Err() == nil:
	default:
		k.dropRunsLocked()
	}
	s.connection, s.began = connection, now
	subject.problem, subject.retryAt = problem{}, time.Time{}
	k.subject.pokeLocked()
}

// dropRunsLocked ends the runs, none of which counts any more, and returns them.
func (k *keeper) dropRunsLocked() []*run {
	var dropped []*run
	for _, r := range []*run{k.lockedState.run, k.lockedState.next} {
		if r != nil {
			r.cancel(errReplaced)
			dropped = append(dropped, r)
		}
	}
	k.lockedState.run, k.lockedState.next = nil, nil
	return dropped
}

// disconnect ends the runs, and drops their later observations. Called by the loop.
func (k *keeper) disconnect() {
	for _, r := range k.dropConnection() {
		r.ledger.close()
	}
}

func (k *keeper) dropConnection() []*run {
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	dropped := k.dropRunsLocked()
	k.lockedState.connection, k.lockedState.began = nil, time.Time{}
	k.subject.lockedState.problem, k.subject.lockedState.retryAt = problem{}, time.Time{}
	k.subject.pokeLocked()
	return dropped
}

// task is what the work goroutine has to do.
type task struct {
	connection *clusters.Connection
	// counts is the run that counts.
	counts *run
	// nextSynced: the run that is to replace it is synced.
	nextSynced bool
	// due: a run may begin.
	due bool
}

// takeTask returns the next task; false if there is none, and the goroutine ends.
func (k *keeper) takeTask(ctx context.Context) (task, bool) {
	now := k.subject.shared.options.Clock.Now()
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	s := &k.subject.lockedState
	if !s.pending || ctx.Err() != nil {
		s.working = false
		return task{}, false
	}
	s.pending = false
	t := task{
		connection: k.lockedState.connection, counts: k.lockedState.run, nextSynced: k.lockedState.next.syncedLocked(),
		due: !now.Before(s.retryAt),
	}
	if t.due {
		s.retryAt = time.Time{}
	}
	return t, true
}

// doWork does all pending work. It is the work goroutine.
func (k *keeper) doWork(ctx context.Context) {
	for {
		t, more := k.takeTask(ctx)
		if !more {
			return
		}
		own := &k.work
		if r := own.current; r != nil && (r.ctx.Err() != nil || t.nextSynced || (r.connection != t.connection && r != t.counts)) {
			own.current, own.next = own.next, nil
			k.conclude(r, k.endRun(r))
			continue
		}
		if r := own.next; r != nil && (r.ctx.Err() != nil || r.connection != t.connection) {
			own.next = nil
			k.conclude(r, k.endRun(r))
			continue
		}
		k.begin(ctx, t)
		for _, r := range []*run{own.current, own.next} {
			if r != nil && r.ctx.Err() == nil {
				r.align()
			}
		}
	}
}

// begin starts a run if there is none over the connection, and a run is due.
func (k *keeper) begin(ctx context.Context, t task) {
	newest := k.work.current
	if k.work.next != nil {
		newest = k.work.next
	}
	if t.connection == nil || t.connection.Context().Err() != nil || !t.due || (newest != nil && newest.connection == t.connection) {
		return
	}
	r := newRun(ctx, k.subject, t.connection, k.work.current)
	k.adopt(r, k.work.current)
	if k.work.current == nil {
		k.work.current = r
	} else {
		k.work.next = r
	}
	if err := r.plan(); err != nil {
		r.fail(err)
	}
}

// adopt makes a new run the one that counts, or the one that will replace the run that
// counts.
func (k *keeper) adopt(r, replaces *run) {
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	switch {
	case k.lockedState.connection != r.connection: // There is a newer connection: the run will end.
	case replaces != nil && k.lockedState.run == replaces:
		k.lockedState.next, r.lockedState.replacement = r, true
	default:
		k.lockedState.run = r
	}
}

// endRun ends a run and returns why it ended.
func (k *keeper) endRun(r *run) error {
	cause, now := r.end(), k.subject.shared.options.Clock.Now()
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	s := &k.lockedState
	if r.syncedLocked() || errors.Is(cause, errReplan) { // Its list was complete, and another one is needed.
		s.began = now
	}
	if s.run == r {
		s.run, s.next = s.next, nil
		if s.run != nil {
			s.run.lockedState.replacement = false
		}
	}
	if s.next == r {
		s.next = nil
	}
	return cause
}

// conclude decides what follows a run that has ended.
func (k *keeper) conclude(r *run, cause error) {
	if p := k.scheduleNext(r, cause); p.reason != "" {
		k.subject.shared.options.Logger.Info("kind cannot be watched",
			"cluster", k.subject.cluster.name, "kind", k.subject.kind.GroupKind.String(), "reason", p.reason, "message", p.message)
	}
}

// restoredApart is the time after which another restore of a cluster counts as one. Within it,
// runs that end with errRestored wait longer and longer.
const restoredApart = time.Minute

// scheduleNext schedules the next run. It returns the problem of the run that has ended, if
// it differs from the last problem.
func (k *keeper) scheduleNext(r *run, cause error) (changed problem) {
	shared, own := k.subject.shared, &k.work
	p, now := problemOf(cause, k.subject.place("")), shared.options.Clock.Now()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.changedLocked(k.subject.cluster.name)
	k.subject.pokeLocked()
	atOnce := errors.Is(cause, errReplan) || errors.Is(cause, errReplaced)
	if errors.Is(cause, errRestored) {
		atOnce = now.Sub(own.restored) > restoredApart // Else its versions are not those of an API server.
		own.restored = now
	}
	if atOnce || now.Sub(r.began) > shared.options.Timings.RetryMax { // After a long run, this is a new failure.
		own.transient.Reset()
		own.repair.Reset()
	}
	if atOnce {
		return problem{}
	}
	wait := own.transient.Wait
	if needsUser(cause) {
		wait = own.repair.Wait
	}
	s := &k.subject.lockedState
	s.retryAt = now.Add(wait())
	if s.problem != p {
		s.problem, changed = p, p
	}
	return changed
}

// readyInformers returns the ready informers of the run that counts.
func (k *keeper) readyInformers() []*informer {
	k.subject.shared.mu.Lock()
	defer k.subject.shared.mu.Unlock()
	if k.lockedState.run == nil {
		return nil
	}
	var ready []*informer
	for _, i := range k.lockedState.run.lockedState.informers {
		if i.lockedState.ready {
			ready = append(ready, i)
		}
	}
	return ready
}

// resumeSilent closes the watches that deliver nothing although the cluster answers: a
// proxy has lost them, or a server has stopped sending events. They resume from the last
// event. Called by the loop, for clusters that answer.
func (k *keeper) resumeSilent() {
	shared, kind := k.subject.shared, k.subject.kind.GroupKind.String()
	for _, i := range k.readyInformers() {
		if i.stream.Silent() < shared.options.Timings.Blind {
			continue
		}
		shared.meters.blind.WithLabelValues(kind).Inc()
		shared.options.Logger.Info("a watch delivers nothing, resuming it", "cluster", k.subject.cluster.name, "kind", kind, "for", shared.options.Timings.Blind)
		shared.spawn(i.stream.Break()) // Closing may wait for the network.
	}
}
