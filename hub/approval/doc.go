// Package approval serves the two calls that come from outside: /promotion, a hint that an
// environment has a new revision, and /approval, by which a CI system approves a manual
// promotion. Paths, codes and bodies are those of weave pipeline-controller.
//
//	POST /promotion/NAMESPACE/PIPELINE/SOURCE-ENVIRONMENT            (body: a Flux event)
//	POST /approval/NAMESPACE/PIPELINE/TARGET-ENVIRONMENT/REVISION    (no body)
//
// # Contract
//
// Neither call promotes. A hint triggers a reconcile of the Pipeline: on the leader through
// its queue, on a standby through an annotation that the leader observes. An approval is
// written to spec.approval of the newest Promotion into the environment, if that Promotion
// has the revision and waits for an approval. A caller that repeats its approval gets the
// result of that promotion; nothing is written. The reconcilers decide what follows, from the
// state of the clusters. Both calls then wait up to 5 seconds for the result. They answer 201
// with the address of the pull request, or 204 if there is none (yet).
//
// Every call is signed with the HMAC key of the target environment, else of the Pipeline,
// or with the previous key that the same Secret has during a rotation. If there is no key,
// the answer is 401. The body of a 401 is the same for every cause. Signatures of version 2
// cover method, path, time and body. Weave's signatures cover at most the body and never
// expire; they are accepted only with --legacy-signatures.
//
// # Replays
//
// A captured hint triggers one more reconcile, which changes nothing. A captured approval
// is useless: each run of a promotion is approved once, and the Promotion keeps the digests
// of the signatures of all runs. So within the five minutes in which the signature is
// valid, it approves no second promotion of the same revision and no retry. The digest is
// in the API server, so all replicas see it, also after a restart.
//
// # Bounds
//
// These are bounded: connections, concurrent calls, the size of header and body, the time of
// each phase of a call, and the calls of a client per time. A call takes one of the slots for
// calls only after its body was read. A client that sends slowly holds a connection, of which
// there are many more, until the read timeout. The memory of bodies is bounded as well: a
// small body is read for every call, a larger one for a few calls at a time. With the same
// slots for both, a few clients could hold them all. A client is an IPv4 address or an IPv6
// /64. If there are too many clients, the least recent one is removed. The server's API client
// has its own rate limit, so that callers cannot use up the hub's.
//
// # Locking
//
// One mutex in the limiter, over memory only. Handlers share nothing else.
//
// # Trade-offs
//
// As with weave, a client without a signature can find out whether a Pipeline exists (404
// against 401), and nothing else. A waiting call polls the hub's cache ten times per second
// and does not use a watch: at most maxCalls calls wait at a time.
package approval
