// Package nats publishes to a stream of NATS JetStream.
//
// Contract: an event is sent as structured CloudEvents JSON to the subject
// <subjectPrefix>.<kind>, such as capstan.promotion.succeeded.v1. Its id is the Nats-Msg-Id:
// within streamDuplicateWindow the stream stores it once, however often it is sent. Publish
// returns nil when the stream has acknowledged it.
//
// The stream is created or checked before the first event, and after it was missing. A stream
// that the hub has created (see its metadata) follows the configuration. Of any other stream,
// only the settings that cannot be changed (storage, retention) and the subjects must match;
// the hub does not change its limits. Subjects are added and never removed, because two hubs
// may share a stream.
//
// Open makes no connection. The first call makes one if there is none, and other calls wait
// for it. The client restores a broken connection itself, up to maxReconnects times. Until
// then, calls fail at once: nothing is buffered here.
//
// Keys of the Secret, in order of precedence: creds (a file of nsc), nkey (a user seed),
// username and password, token. It may also have ca.crt, tls.crt and tls.key.
//
// # Locking
//
// Sink.mu guards the connection and is never held over I/O. One goroutine at a time makes a
// connection; Close ends it and waits for it. Callbacks of the client take no lock and call
// Options.Changed.
package nats
