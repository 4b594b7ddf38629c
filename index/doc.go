// Package index records which Pipelines use which applications in which clusters, and the
// last observation of each application.
//
// Purpose: reconcilers read the index instead of workload clusters, so that an unreachable
// cluster never blocks a worker.
//
// Contract: the package only holds data. No method does I/O, waits for other work or starts
// a goroutine. Methods return the Pipelines to wake, and the caller wakes them. Only
// applications that a Pipeline uses have observations, so objects that a tenant creates in a
// cluster do not use memory of the hub.
//
// Freshness belongs to a kind in a cluster, because one stream delivers a kind. When
// credentials allow only some namespaces, each of them has a stream, and
// SetNamespaceFreshness sets the Freshness of one. SetUnread is for a single application that
// cannot be read although its kind can.
//
// Rivals are Pipelines that promote into the same application.
//
// Locking: one RWMutex guards everything (lockedState). It is held for map operations
// only. One lock is enough: an observation takes about a microsecond (BenchmarkObserve),
// and readers share it.
//
// Trade-offs: each result is a sorted copy. Results are short, and the order makes
// reconciles repeatable.
package index
