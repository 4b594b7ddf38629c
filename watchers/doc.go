// Package watchers runs an informer for each kind that something demands of a
// cluster, and nothing else.
//
// Purpose: demand in, observations out. A Pipeline demands objects by name; the
// controllers that act in self-managed clusters demand whole kinds, through Source
// and Reader.
//
// # Contract
//
// SetDemand, the Listener's methods and a Source's Start return at once, whatever
// state a cluster is in. Each demand has a set of owners, never a count. When the last
// owner has left, the informer ends after Timings.Linger.
//
// Kind defines how a kind is read: Excerpt makes a Reduce that keeps given fields, labels
// and annotations, and Both combines two Kinds that read the same kind.
//
// A kind that a cluster does not serve, or may not be listed, concerns that kind in
// that cluster: it is tried again after a backoff, and its Freshness says what is
// missing and how to fix it.
//
// A changed observation passes at once; equal ones end in the index. What an
// initial list brings, and every change of freshness, wakes Pipelines after live
// changes, and once. Over a bucket of wakes per cluster, wakes are folded and
// delivered when there is room: none is lost.
//
// An observation is fresh while its kind is synced, the cluster has answered within
// Timings.FreshFor, its watch has caught up after an outage, and the kind's own list and
// watch calls do not fail: an answered probe says nothing about them. An observation
// that is not fresh stays in the index, marked as such. It is removed when demand ends,
// or another cluster takes the name.
//
// # Scope
//
// One informer for the whole cluster where the credentials allow it, with objects
// that are not demanded reduced to their key; else one for each namespace demanded,
// each with a state of its own. Cluster-wide is the cheaper by far: each informer
// is a watch in the API server and 9 goroutines here, a key half a kilobyte. When
// an object is demanded later that is stored as its key, that one object is read,
// through the connection's own limiter; nothing is listed again. An older read
// never overwrites a newer event. When a whole kind or namespace is demanded that
// was stored as keys, it is listed again.
//
// # Locking
//
// shared.mu guards the field lockedState of shared, Watcher, watched, subject, keeper,
// run and informer; callbacks, I/O and channel sends that could wait are made without
// it. The other fields of these structs do not change, or are grouped by the goroutine
// that owns them: loop and work. wakes, ledger and initialWakes have mutexes of their
// own, under which shared.mu is not taken.
//
// loop is the goroutine of Start. It does all that never waits, for all clusters:
// judging freshness, delivering wakes, reporting, and noticing that time has passed.
// work is the work goroutine of one keeper, for one (cluster, kind). It does what can
// wait, and exists while there is work. Each informer has one goroutine besides
// client-go's own. All end with Start's context, or when the demand has lingered out.
//
// # Files
//
// Each file uses only those before it in this list, of which the first are data and pure
// functions: options, problem, decode, stored, demand, judge; calls, discover, ledger,
// informer; shared, subject; run, feed, settle; keeper, freshness, watched, watcher;
// source and reader.
//
// # Trade-offs
//
// Whether a cluster-wide list is allowed is found by trying it with limit=1 rather
// than by a SelfSubjectAccessReview, because the transport to workload clusters
// lets no POST pass.
//
// One handler per informer: each costs two goroutines and 16 KiB.
//
// A new epoch lists anew and tells Sources of every object as created; of an object
// that went in between it tells nothing. Level-triggered controllers, which list
// through the Reader, lose nothing by it.
package watchers
