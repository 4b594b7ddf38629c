// Package publisher delivers events to backends: each event to each backend that selects
// it, at least once, in order within each subject.
//
// Purpose: callers publish an event once and continue. This package handles everything that
// a broker does or fails at. A failure of one backend does not affect the others.
//
// # Contract
//
// Publish never blocks. Each backend has a queue of its own, in which events wait by
// subject. Of one subject, one event is in flight at a time and the others wait behind it.
// Up to Settings.MaxInFlight subjects are served at once. A lane (lane.go) holds the events
// of one subject.
//
// An event that fails is sent again under the same id, after a backoff that doubles, with
// jitter. If the broker requests a delay, the whole backend is paused for that time, at most
// maxRetryAfter. The class of a sink's error decides:
//
//	transient    sent again, Settings.MaxAttempts times while others succeed; then given
//	             up, but not before others have succeeded since it first failed
//	refused      given up; but after refusalsAtMost of them in a row, the breaker opens and
//	             they stay: the broker is the cause
//	too-large    given up
//	unavailable  the breaker opens; the event is not the cause and stays
//	gone         nothing is sent until the sink is replaced
//
// An event that is given up goes to the dead letter backend, with the failure in extensions
// of the event. Without a dead letter backend it is dropped and logged. A dead letter that is
// given up is dropped, so two backends that name each other do not exchange it endlessly.
//
// The breaker (breaker.go) opens after breakAfter failures in a row. Then one event at a
// time tests whether the broker has recovered. Such a probe is not counted as an attempt of
// the event.
//
// # What is kept, and what is dropped
//
// A queue is bounded by events and by bytes. Most events come from a Source, which can emit
// them again. If the queue is full, such an event is deferred: it is not queued, and neither
// is any other event of a Source, until the queue is half empty. Then every Source is asked
// for its Pending events, in its order. So deferral loses nothing and keeps the order. The
// last quarter of the queue is reserved for events without a Source. Such an event is
// dropped and counted if it does not fit.
//
// The same walk of the Sources implements the outbox. It also runs when a backend is set for
// the first time. So an event that a process did not deliver before it died is published by
// the next one, under the same id. Settled reports the outcome of an event to the Source,
// which records it and does not return the event again. An event that was published but not
// recorded is published again.
//
// A level event (event.Entry) is sent at once if its subject had no event within Dwell.
// Otherwise it waits, and a newer one of the same subject replaces it. So a flapping cluster
// causes one event per Dwell.
//
// # Replacing and removing
//
// Set with the name of an existing backend replaces its sink. Queue, order and counts stay,
// the breaker is closed, and the old sink is closed when its last call has returned. Remove
// lets the queue empty itself until a deadline. After its context has ended, Start returns
// when every queue is empty or Options.Drain has passed. It does not wait for a backend whose
// breaker is open.
//
// # Goroutines and locking
//
// Each backend has one goroutine that starts attempts, one for each event in flight, and one
// for a walk. All end before Start returns. Publisher.mu guards the list of backends,
// backend.mu all data of one backend. Neither is held over I/O or a callback, and they are
// never held together.
//
// # Trade-offs
//
// The queue is in memory: events without a Source are lost with the process. There are few:
// see the callers. Order holds within a subject only; a dead letter loses its place in it.
package publisher
