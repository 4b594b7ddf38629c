// Package clusters keeps the hub's connections to workload clusters.
//
// Purpose: everything else asks for a cluster by name and finds out whether it can
// be heard. Credentials, rotation, reachability and what a kubeconfig may not do
// are settled here, and nothing of that reaches the callers but a state. The
// package knows no Pipeline and has no informer in a workload cluster.
//
// # Contract
//
// A connection exists while owners demand it (Demand, Release: sets, not counts,
// and the label capstan.dev/self-managed on a Cluster is an owner too), and
// Timings.Linger beyond. Demand and Release return at once.
//
// A cluster is named after the object that leads to its credentials ("Kind/ns/name",
// Ref.ClusterName); "" is the management cluster, which is always connected.
// Resolve follows what a Pipeline names. The objects are read from the management
// cluster: Cluster of cluster.x-k8s.io in whichever version is served, as metadata,
// and GitopsCluster of gitops.weave.works. Neither need be installed.
//
// Connection is one epoch: one server with one CA. Another server or CA begins the
// next epoch; ConnectionChanged tells of it before the old one's Context ends. A
// changed token or client certificate is swapped beneath the same Connection and
// nobody is told. Requests park while a connection is neither Ready nor Degraded,
// so informers are simply kept, and each end of an outage lets them resume.
//
// States and reasons are one table (state.go), printed to
// docs/connection-states.md. Snapshot gives the present one, Listener the changes.
// What the outcome of probes amounts to is health.go.
//
// The Manager is a multicluster.Provider, not a ProviderRunnable: it engages a
// cluster when it is Ready or Degraded for the first time in an epoch, from a
// goroutine of its own, and no rotation engages again.
//
// Options.Elected says when this process leads. Before, and on a replica that never leads,
// the Manager has the connection to the management cluster alone, reads no cluster objects
// and writes no ClusterConnections.
//
// # Goroutines and locking
//
// Each demanded cluster has one goroutine, its keeper's, which alone does what can
// block for that cluster (reading its Secret, probing), each with a deadline. It is
// level-triggered: any wake makes it look at everything. Manager.mu guards the map
// of keepers and keeper.mu what others read of one; both are held for field access
// only, in that order, and never over I/O, a callback or a channel send. Fields
// guarded by a mutex are in a struct named lockedState. One goroutine reads each
// kind of cluster object, one watches the Secrets (metadata only) of each namespace
// that holds a demanded cluster, one writes ClusterConnections.
//
// At most dialPlaces connections are being made at once, at most retryPlaces of
// them to clusters that have failed before.
//
// # Secrets
//
// A Secret is read one by one when its resource version moves and when the cluster
// rejects what it held. Its bytes live in the transport only; what is kept beside
// is a SHA-256 of each part. No message, log line, Event or status is made from
// bytes of a Secret, nor from the error of a decoder that saw them.
//
// # Trade-offs
//
// The /readyz probe says that an API server answers, not that a kind can be read;
// that is what watchers report (ReportKinds), and freshness is judged by them per
// kind, from LastContact.
//
// One failed probe changes nothing, two make a connection Degraded, three and
// Timings.Silence make it Unreachable. Two good ones, Timings.ProbeRetry apart, end
// that. Probes of an unreachable cluster back off to Timings.UnreachableRetryMax,
// never longer than the outage has lasted, so a cluster that was away for hours may
// be found minutes late; a changed Secret is acted upon at once.
//
// A ClusterConnection does not show Connecting where it showed what was last known:
// a restarted hub would write each twice for nothing.
//
// IndexField is refused, and cluster.Cluster objects have a cache without informers:
// an informer that is made on first use blocks its reader for as long as a cluster
// is dead.
package clusters
