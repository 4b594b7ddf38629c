// Package measure queries the Prometheus endpoints that the administrator names.
//
// # Purpose
//
// A check of an environment may need a number, such as a rate of errors. Users write the query in
// their Pipelines; the administrator names the endpoints, by --check-endpoint. A reconciler must not
// wait for an endpoint: Measurer makes the queries and calls it back.
//
// # Contract
//
// The result of a query is a value, no data, or an error. A scalar, or a vector with one sample,
// gives a value. An empty vector, NaN and infinite numbers are no data. All else is an error. Only
// HasValue says something about the application.
//
// Measure never blocks and does no I/O. It uses a kept result, or a query under way, that began at
// notBefore or later; else it makes a query. So identical queries share one result. Results are
// kept for ten minutes. Memory is bounded by the distinct queries of that time, and by the callers
// that wait.
//
// At most 16 queries run at once, and 4 at one endpoint. Each endpoint has its own line, and the
// endpoints take turns: one that does not answer does not delay the others. A query ends after 10 s.
//
// Start owns all goroutines and returns when they have ended. Callbacks run in them, without a lock.
// After the end, no callback is called.
//
// # Security
//
// The addresses that a name resolves to are checked by internal/netguard before each connection. No
// redirect is followed and no proxy is used. 64 KiB of an answer are read, after decompression. A
// message has no text of the server: it has the status code, or the class of the error. A token is
// sent to the host of its endpoint only, and over http:// only to this machine. The files of an
// endpoint are read for each query, so a new token or certificate is used at once.
//
// # Locking
//
// Measurer.mu guards the state in state.go: entries, lines and counts. peer.mu guards the transport
// of an endpoint. Neither is held over I/O or a callback, and they are never held together.
//
// # Trade-offs
//
// Lines are per endpoint, not per namespace: a namespace with many distinct queries delays those of
// others at the same endpoint. The namespaces option separates them.
//
// Warnings of an endpoint are ignored. Thanos reports a partial response so: disable it there.
//
// Old results are removed when Measure is called, not by a timer.
//
// The tests answer queries with the documented JSON of the HTTP API. Prometheus itself as a Go module
// has several hundred dependencies.
package measure
