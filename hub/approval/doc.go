// Package approval serves the two calls that come from outside: /promotion, a hint
// that a revision arrived somewhere, and /approval, by which a pipeline's CI lets a
// manual promotion go on. Paths, codes and bodies are weave pipeline-controller's.
//
//	POST /promotion/NAMESPACE/PIPELINE/SOURCE-ENVIRONMENT            (body: a Flux event)
//	POST /approval/NAMESPACE/PIPELINE/TARGET-ENVIRONMENT/REVISION    (no body)
//
// # Contract
//
// Neither call promotes. A hint has the hub look at the Pipeline now: on the leader
// through its queue, on a standby by an annotation that the leader sees. An approval
// is written to spec.approval of the newest Promotion into the environment, if it is
// of that revision and waits. What follows is the reconcilers' to decide, from what
// the clusters show. Both calls then wait a few seconds for what comes of it, and
// answer 201 with the pull request's address or 204 where there is none (yet).
//
// Every call is signed with the HMAC key of the environment that is promoted into,
// else of the Pipeline; where there is no key, the answer is 401. Signatures of
// version 2 cover method, path, time and body. Weave's, which cover the body at most
// and hold for ever, are taken only where the administrator says so.
//
// # Replays
//
// A captured hint makes the hub look once more, which changes nothing. A captured
// approval is of no use: a promotion is approved once, and the digest of the
// signature is kept on the Promotion that it approved, so that within the five
// minutes of its life it approves no second one of the same revision. The record is
// in the API server: it holds across replicas and restarts.
//
// # Bounds
//
// Connections, calls at a time, the size of header and body, the time of each phase
// of a call, and calls per client in a time are bounded. A call takes one of the places
// for calls when it was read whole: who sends slowly holds a connection, of which there
// are many more, until the time to read has passed. What is held meanwhile is counted:
// so much of a body is read for everybody, and more for a few at a time. The same places
// for both would be fewer lines, and a handful of clients could hold them all; a client is an IPv4 address
// or an IPv6 /64, and the least recent of too many is forgotten. The server's API
// client has a budget of its own, so that callers cannot take the hub's.
//
// # Locking
//
// One mutex in the limiter, over memory only. Handlers share nothing else.
//
// # Trade-offs
//
// As with weave, whether a Pipeline of a name exists can be told without a
// signature (404 against 401); nothing else can. The wait asks the hub's cache ten
// times a second rather than to be told: at most maxCalls wait at a time.
package approval
