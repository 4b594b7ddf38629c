// Package transport carries the requests of one connection to one cluster.
//
// Purpose: what a rest.Config's transport cannot do. Credentials change beneath
// open watches, requests wait while a cluster is away instead of hammering it, a
// cluster is only read, and a kubeconfig cannot lead the hub to addresses that
// are nobody's API server.
//
// Contract: a Transport is an http.RoundTripper. A request passes, in this order:
//
//  1. the guard: GET and HEAD to the server itself, and PATCH where AllowPatch
//     says so; everything else is refused with a *RefusedError and never leaves;
//  2. the gate: while shut, requests park until it opens (and Spread beyond, at
//     random) or their context ends. A
//     parked watch keeps its resource version, so an outage costs no list. Probes
//     (context of WithProbe) pass;
//  3. the current credentials: a token and a generation. SetCredentials swaps both
//     at once. A new client certificate makes a new generation, an http.Transport
//     of its own, since an HTTP/2 connection with open watches is never idle and
//     would keep the old one; the old generation's streams end by themselves;
//  4. the dialer, which judges the address that a name resolved to, not the name;
//  5. on 401, Reauthenticate, and one more try if the credentials changed, or, if
//     the gate was shut meanwhile, when it opens. On no answer at all, CheckServer, and
//     one more try when the gate is open. Without that, an informer would sleep out
//     its own backoff after the cluster is back, blind and unaware of it.
//
// What is read of an answer is bounded (MaxAnswer), of a watch while it streams an
// initial list. A Stream follows the watches of one informer: what they may have
// missed, and when they last said something.
//
// LastContact is the time of the last byte of an answer of the API server. A 401
// and a 5xx do not count: a load balancer before dead API servers gives them too.
//
// A watch that loses its connection is told to client-go in the words after which
// its reflector resumes from the last resource version rather than listing anew:
// io.ErrUnexpectedEOF in the stream, "connection refused" before it.
//
// Locking: gate and connections have a mutex each, held for field access only.
// The credentials are one atomic pointer.
//
// Trade-offs: HTTP proxies from the environment are not used, since the address
// check would see the proxy instead of the cluster.
package transport
