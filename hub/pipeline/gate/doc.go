// Package gate judges the gates of an environment: the conditions under which a promotion into it
// may take its next step.
//
// # Purpose
//
// Each gate is a function of its spec, of what is known, and of the time. It is open, closed or
// invalid, with a reason, and says when that changes next if nothing else happens. So a promotion
// that waits needs one timer and no polling, and its users see why it waits and until when.
//
// # Contract
//
// All functions are pure: no clock, no client, no state. An invalid gate is closed, and Parse says
// which field to correct. The same functions validate a Pipeline, decide about a promotion, and
// explain it.
//
// The soak is judged by Pipeline.status: it has counted when the status says so. So every reader
// has the same answer, and it survives the process that counted.
//
// # Locking
//
// None of its own: one goroutine uses Rules. They keep the verdicts of the last instant. Windows that were parsed are
// shared by all of them; both the cache and a Window are safe for concurrent use.
//
// # Trade-offs
//
// Rules are made of the spec each time that they are needed, and not kept. That takes some
// microseconds for each window, and there is nothing to keep in step with the spec.
package gate
