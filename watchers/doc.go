// Package watchers runs an informer for each kind that something demands of a
// cluster, and nothing else.
//
// Purpose: demand in, observations out. A Pipeline demands objects by name; the
// controllers that act in self-managed clusters demand whole kinds, through Source
// and Reader.
//
// Contract: SetDemand, the Listener's methods and a Source's Start return at once,
// whatever state a cluster is in. A kind that a cluster does not serve, or may not
// be listed, concerns that kind in that cluster: it is tried again after a backoff,
// and its Freshness says what is missing. A changed observation passes at once;
// equal ones end in the index. Over a bucket of wakes per cluster, wakes are folded
// and delivered when there is room: none is lost.
//
// Scope: cluster-wide where the credentials allow it, with objects that nobody
// demands reduced to their key, else one informer for each namespace demanded.
// When an object is demanded later that is stored as its key, that one object is
// read; no other is listed again. An older read never overwrites a newer event.
//
// Locking: one mutex guards everything in lockedState; callbacks, I/O and channel
// sends are made without it. One goroutine (Start) does what waits for nothing;
// each (cluster, kind) has a keeper, which does all that waits, and one goroutine
// with client-go's informer. All end with Start's context, with the connection's
// epoch, or when the demand has lingered out.
//
// Trade-offs: whether a cluster-wide list is allowed is found by trying it with
// limit=1 rather than by a SelfSubjectAccessReview, because the transport to
// workload clusters lets no POST pass. One handler per informer: each costs two
// goroutines and 16 KiB.
package watchers
