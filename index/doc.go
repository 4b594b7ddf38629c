// Package index holds who uses what, and what was last seen of it.
//
// Purpose: cluster ↔ application ↔ Pipelines, and the last observation of each
// application. Reconcilers read it in place of workload clusters, so that none of
// those can hold a worker.
//
// Contract: pure data. No method waits, calls out or starts a goroutine; methods
// return what is to be woken, and the caller wakes. Observations are kept only of
// what a Pipeline uses, so what a tenant puts into a cluster cannot grow the hub.
//
// Freshness is the kind's in the cluster, since one stream brings a kind; where
// credentials allow only some namespaces, each of those has a stream, and
// SetNamespaceFreshness speaks of one.
//
// Locking: one RWMutex guards everything (lockedState); it is held for map
// operations only. One lock suffices: an observation costs about a microsecond
// (BenchmarkObserve), and a reader shares it.
//
// Trade-offs: each answer is a copy, sorted. Answers are short, and the order makes
// what follows from them repeatable.
package index
