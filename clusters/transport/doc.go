// Package transport sends the requests of one connection to one cluster.
//
// Purpose: four things that the transport of a rest.Config cannot do. It replaces
// credentials while watches stay open. It delays requests while a cluster is unreachable.
// It only allows reads. It prevents a kubeconfig from sending the hub to addresses that are
// not an API server.
//
// Contract: a Transport is an http.RoundTripper. A request passes, in this order:
//
//  1. the guard, which allows GET and HEAD to the server of the connection, and PATCH if
//     AllowPatch returns true. It refuses every other request with a *RefusedError;
//  2. the gate. While it is closed, requests wait until it opens, and then for a random
//     time of at most Spread, or until their context ends. A waiting watch keeps its
//     resource version, so an outage causes no list. Probes (context of WithProbe) do not
//     wait;
//  3. the current credentials: a token and a generation. SetCredentials replaces both
//     at the same time. A new client certificate makes a new generation, which is an
//     http.Transport of its own: an HTTP/2 connection with open watches is never idle and
//     would keep the old certificate. The streams of the old generation end by themselves;
//  4. the dialer (internal/egress), which checks the address that a name resolved to, not the name.
//     Through the proxy of the administrator, which resolves the name, it checks the name;
//  5. after 401, Reauthenticate; after no response, CheckServer; then one more try when the
//     gate is open. Without that, an informer would wait for the end of its own backoff
//     after the cluster is reachable again.
//
// The size of a response is limited (MaxAnswer); that of a watch is not, so its reader limits
// what it keeps. A Stream observes the watches of one informer: for how long they may have
// missed events, and when they last received bytes.
//
// LastContact is the time of the last byte of a response of the API server. A 401
// and a 5xx do not count: a load balancer in front of failed API servers sends them too.
//
// When a watch loses its connection, client-go gets an error after which its reflector
// resumes from the last resource version and does not list again: io.ErrUnexpectedEOF in
// the stream, "connection refused" before it.
//
// Locking: gate, connections and Stream have a mutex each, held for field access only.
// The credentials are one atomic pointer.
//
// Trade-offs: the proxy is used by the dialer, not by http.Transport, whose check of addresses
// would see the proxy instead of the cluster. For the same reason, proxies from the environment are
// not used.
package transport
