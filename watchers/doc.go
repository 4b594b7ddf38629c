// Package watchers runs an informer for each kind that is demanded of a cluster.
//
// # Purpose
//
// The package turns demand into observations. A Pipeline demands objects by name. The
// controllers that act in self-managed clusters demand whole kinds, through Source and
// Reader.
//
// # Contract
//
// SetDemand, SetDemands, the Listener's methods and a Source's Start return at once in every state of
// a cluster. Each demand has a set of owners, never a count. When the last owner has left,
// the informer ends after Timings.Linger.
//
// Kind defines how a kind is read: Excerpt makes a Reduce that keeps given fields, labels
// and annotations, and Both combines two Kinds that read the same kind.
//
// If a cluster does not serve a kind, or does not permit its list, only that kind in that
// cluster is affected. The watcher tries it again after a backoff, and its Freshness says
// what is missing and how to fix it.
//
// A changed observation wakes Pipelines at once; an equal one wakes none. The objects of
// an initial list, and every change of freshness, wake each Pipeline once, after live
// changes. Each cluster has a token bucket for wakes. Wakes above it are folded and
// delivered when the bucket has a token: no wake is lost.
//
// An observation is fresh while its kind is synced, the cluster has answered within
// Timings.FreshFor, its watch has caught up after an outage, and the kind's own list and
// watch calls do not fail: an answered probe says nothing about them. An observation
// that is not fresh stays in the index, marked as such. It is removed when demand ends,
// or another cluster takes the name.
//
// A watch may be behind although its cluster answers. Observation.Since says what an observation is not
// older than, and Confirm reads an object again: a new leader needs to know what it may act on.
//
// # Limits
//
// A cluster is not trusted. Package decode bounds each piece of an answer and the texts of an
// identity. Each object is reduced as it is decoded, and the limits of intake.go apply: of the
// number of objects, of what is read and stored, and of the rate of events. client-go gets
// objects in their stored form.
//
// A change is stored and observed by the goroutine that takes it from client-go's queue, which
// takes nothing new meanwhile: handlers and Sources must not wait.
//
// # Scope
//
// If the credentials allow it, one informer watches the whole cluster; objects that are
// not demanded are reduced to their key. Otherwise there is one informer for each demanded
// namespace, each with its own state. A cluster-wide informer is much cheaper: each informer
// is a watch in the API server and 6 goroutines here, a key half a kilobyte. When an object
// is demanded later and only its key is stored, that one object is read, through the
// connection's own limiter; nothing is listed again. An older read never overwrites a newer
// event. When a whole kind or namespace is demanded that was stored as keys, it is listed
// again.
//
// # Locking
//
// shared.mu guards the field lockedState of shared, Watcher, watched, subject, keeper,
// run and informer; callbacks, I/O and channel sends that could wait are made without
// it. The other fields of these structs do not change, or are grouped by the goroutine
// that owns them: loop and work. wakes, ledger, initialWakes and members have their own
// mutexes; shared.mu is not taken under them.
//
// loop is the goroutine of Start. It does all that never waits, for all clusters: it judges
// freshness, delivers wakes, reports, and checks timeouts. It checks a cluster when something has
// changed it (changedLocked), and when it is due: view.due says when time alone changes something.
// A check of each cluster every 2 s took a tenth of the CPU of a hub over 10,000 clusters. work is the work goroutine of
// one keeper, for one (cluster, kind). It does what can wait, and exists while there is
// work. Each informer has one goroutine in addition to client-go's. All end with Start's
// context, or when the linger of the demand has passed.
//
// # Files
//
// Each file uses only those before it in this list, of which the first are data and pure
// functions: options, problem, stored, intake, demand, judge; calls, discover,
// ledger, informer; shared, subject; run, feed, settle; keeper, freshness, watched, watcher;
// source, members and reader.
//
// # Trade-offs
//
// Whether a cluster-wide list is allowed is found by trying it with limit=1 rather
// than by a SelfSubjectAccessReview, because the transport to workload clusters
// lets no POST pass.
//
// A new run lists again and notifies Sources of every object as created. It does not
// notify them of an object that was deleted in between. Level-triggered controllers, which
// list through the Reader, lose nothing.
package watchers
