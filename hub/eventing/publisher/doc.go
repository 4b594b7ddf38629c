// Package publisher carries events to backends: each event to each backend that wants
// it, at least once, in order for each subject.
//
// Purpose: origins tell once and go on; what a broker is, does or fails at is met here,
// and one backend's failure changes nothing for the others.
//
// # Contract
//
// Tell never blocks. Each backend has a queue of its own, in which events wait by
// subject: of one subject one event is on its way at a time, the others of it wait
// behind; up to Settings.MaxInFlight subjects are served at once. A lane (lane.go) is
// the events of one subject.
//
// What fails is sent again under the same id, after a backoff that doubles, with
// jitter, or after what the broker asked for (at most maxRetryAfter, and then the whole
// backend is left alone). What a sink's classes of errors lead to:
//
//	transient    again, Settings.MaxAttempts times while others pass; then given up, but
//	             not before others have passed since it first failed
//	refused      given up
//	too-large    given up
//	unavailable  the breaker opens; the event is not to blame and stays
//	gone         nothing is sent until the sink is replaced
//
// Given up means: to the dead letter backend, with what happened in extensions of the
// event, or, where there is none, dropped with a warning. A dead letter that is given up
// is dropped: two backends that name each other do not play ball.
//
// The breaker (breaker.go) opens after breakAfter failures in a row and lets one event
// at a time try whether the broker is back. That try is not counted against the event.
//
// # What is kept, and what is dropped
//
// A queue is bounded by events and by bytes. Most events come from a Source, which can
// emit them again: where the queue is full (but for the last quarter, which is for events
// that nobody can emit again) such an event is deferred: not queued, and neither is
// anything else that a Source can emit again, until the queue is half empty; then every
// Source is asked for what is Pending, in its order. So deferral loses nothing and keeps
// the order. An event without a Source that does not fit is dropped and counted.
//
// The same walk of the Sources is the outbox: it is made when a backend is set for the
// first time, so what a process did not get rid of before it died is told by the next
// one, under the same id. Settled tells the Source what became of an event; it records
// that, and does not name the event again. What was published and not recorded is
// published again.
//
// Level news (event.Entry) pass at once when their subject has been quiet for Dwell;
// within it they wait, and a newer one of the same subject takes the place of one that
// waits. So a flapping cluster costs one event each Dwell.
//
// # Replacing and removing
//
// Set with a name that is known gives the backend a new sink: queue, order and counts
// stay, the breaker is closed, the old sink is closed when its last event has come back.
// Remove lets the queue empty itself until a deadline. Start returns when, after its
// context has ended, every queue is empty, or Options.Drain is over; a backend whose
// breaker is open is not waited for.
//
// # Goroutines and locking
//
// Each backend has one goroutine that hands out events, one for each event on its way,
// and one for a walk. All end before Start returns. Publisher.mu guards the list of
// backends, backend.mu all of one backend; neither is held over I/O or a callback, and
// no two at a time.
//
// # Trade-offs
//
// The queue is in memory. What has no Source (there is little: see the callers) is lost
// with the process. Order holds within a subject only; a dead letter leaves its place in
// it.
package publisher
