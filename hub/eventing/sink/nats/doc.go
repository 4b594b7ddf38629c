// Package nats publishes to a stream of NATS JetStream.
//
// Contract: an event goes as structured CloudEvents JSON to the subject
// <subjectPrefix>.<kind>, such as capstan.promotion.succeeded.v1, with its id as
// Nats-Msg-Id: within streamDuplicateWindow the stream keeps it once, however often it
// is sent. Publish returns nil when the stream has acknowledged it.
//
// The stream is made, or looked at, before the first event and after it was missing. One
// that the hub made (its metadata say so) follows the configuration; of one that somebody
// else made only what cannot be changed (storage, retention) and the subjects must fit,
// its limits are left alone. Subjects are added, never taken away: two hubs may share a
// stream.
//
// Open makes no connection; the first call makes one when there is none, and others wait
// for it. A connection that breaks is restored by the client itself, until it gives up
// (maxReconnects); until it is back, calls fail at once: nothing is buffered here.
//
// What a Secret may hold, in this order: creds (a file of nsc), nkey (a user seed),
// username and password, token; and ca.crt, tls.crt, tls.key.
//
// # Locking
//
// Sink.mu guards the connection and is never held over I/O. A connection is made in a
// goroutine of its own, one at a time, which Close ends and waits for. Callbacks of the
// client take no lock but poke Options.Changed.
package nats
