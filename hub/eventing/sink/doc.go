// Package sink is the interface between the publisher and a broker: a Sink, and the classes
// of its errors.
//
// Purpose: the answers of each broker (a status code, an error of its client) are mapped to
// one of five classes. The publisher treats a class the same way for all brokers.
//
// Contract: a Sink is safe for concurrent use. Its methods return when their context ends.
// Publish returns nil if, and only if, the broker has acknowledged the event. If the sink
// does not know whether the event arrived, it returns an error, and the event is sent again
// under the same id. A sink does not retry by itself. The only exception is a protocol of two
// steps: an expired token is fetched again once.
//
// The text and code of an Error are shown in conditions, logs and dead letters. They must not
// contain any byte of a Secret, the body of an answer, or the query of a URL.
//
// Locking: none here.
package sink
