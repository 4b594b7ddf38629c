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
// state a cluster is in. What is demanded is a set of owners, never a count; the
// last owner's leaving ends an informer after Timings.Linger.
//
// How a kind is read is its Kind's: Excerpt makes a Reduce of the fields, labels and
// annotations that are to be kept, and Both puts together those of two who read one kind.
//
// A kind that a cluster does not serve, or may not be listed, concerns that kind in
// that cluster: it is tried again after a backoff, and its Freshness says what is
// missing and how to mend it.
//
// A changed observation passes at once; equal ones end in the index. What an
// initial list brings, and every change of freshness, wakes Pipelines after live
// changes, and once. Over a bucket of wakes per cluster, wakes are folded and
// delivered when there is room: none is lost.
//
// An observation is fresh while its kind is synced, the cluster was heard of within
// Timings.FreshFor, its watch has caught up with what an outage kept from it, and the
// kind's own list and watch calls do not fail: a probe that is answered says nothing
// of them. What is not fresh stays in the index, and
// says so. It is forgotten when demand ends, or another cluster took the name.
//
// # Scope
//
// One informer for the whole cluster where the credentials allow it, with objects
// that nobody demands reduced to their key; else one for each namespace demanded,
// each with a state of its own. Cluster-wide is the cheaper by far: each informer
// is a watch in the API server and 9 goroutines here, a key half a kilobyte. When
// an object is demanded later that is stored as its key, that one object is read,
// through the connection's own limiter; nothing is listed again. An older read
// never overwrites a newer event. When a whole kind or namespace is demanded that
// was stored as keys, it is listed again.
//
// # Locking
//
// Watcher.mu guards lockedState and every field whose name begins with locked;
// callbacks, I/O and channel sends that could wait are made without it. One
// goroutine, that of Start, does all that waits for nothing, for all clusters:
// judging freshness, delivering wakes, reporting, and noticing that time has
// passed. What waits is done for each (cluster, kind) by its keeper's work
// goroutine, which exists while there is work. Each informer has one goroutine
// besides client-go's own. All end with Start's context, or when the demand has
// lingered out.
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
