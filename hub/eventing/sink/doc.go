// Package sink is what the publisher knows of a broker: a Sink, and what its errors
// mean.
//
// Purpose: each broker's own words (a status code, an error of its client) become one
// of five classes, each of which the publisher treats alike for all brokers.
//
// Contract: a Sink is safe for use by several goroutines. Its methods end with their
// context. Publish returns nil when, and only when, the broker has said that it keeps
// the event; whoever does not know whether it arrived returns an error, and the event is
// sent again under the same id. A sink does not retry by itself, but where the broker's
// protocol is made of two steps (a token that has expired is fetched anew, once).
//
// An Error's text and code are shown in conditions, logs and dead letters: no byte of a
// Secret, no body of an answer and no query of a URL may stand in it.
//
// Locking: none here.
package sink
