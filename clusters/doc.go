// Package clusters keeps the hub's connections to workload clusters.
//
// Purpose: other packages get a connection to a cluster by name, and its state. This
// package handles credentials, their rotation, reachability, and the limits of a
// kubeconfig. The package knows no Pipeline and has no informer in a workload cluster.
//
// # Contract
//
// A connection exists while it has owners, and for Timings.Linger after the last owner.
// Demand adds an owner and Release removes it. Owners are a set, not a count. The label
// capstan.dev/self-managed on a Cluster is an owner too. Demand and Release return at once.
//
// The name of a cluster is that of the object with its credentials ("Kind/ns/name",
// Ref.ClusterName). The empty name is the management cluster, which is always connected.
// Resolve follows the reference in a Pipeline. The objects are read from the management
// cluster: Cluster of cluster.x-k8s.io in the served version, as metadata, and
// GitopsCluster of gitops.weave.works. None of these kinds must be installed. A ClusterProfile
// names the server, and a Secret with its name and a label has the token. A Secret with
// pipelinesv1.ClusterSecretLabel is a cluster object, too; its metadata are read in
// Options.SecretNamespaces, and nowhere else. kinds.go has the differences between the kinds.
//
// Connection is one epoch: one server with one CA. Another server or CA begins the
// next epoch; Listener.ConnectionChanged is called before the old one's Context ends. A
// changed token or client certificate is replaced in the same Connection, without a
// notification. Requests wait while a connection is neither Ready nor Degraded. So
// informers continue to run during an outage and resume after it.
//
// One table contains the states and reasons (state.go). It is printed to
// docs/connection-states.md. Snapshot returns the present state; a Listener receives the
// changes. health.go derives events from the results of probes.
//
// The Manager is a multicluster.Provider, not a ProviderRunnable. It engages a cluster only
// while the cluster is self-managed: when it is Ready or Degraded for the first time in an
// epoch, from a separate goroutine, one engagement after the other. A rotation of credentials
// does not engage it again. The engagement ends with the epoch or the label.
//
// Options.Elected says when this process leads. Before that, and on a replica that never
// leads, the Manager writes no ClusterConnections and engages no cluster. A cold standby has
// only the connection to the management cluster. It reads cluster objects only for Objects, and
// reads them again when it begins to lead: no demand can depend on an object that was read
// before. A warm standby (Options.WarmStandby) connects to every demanded cluster. When it
// begins to lead, it reads the ClusterConnections once and writes those that differ.
//
// # Goroutines and locking
//
// Each demanded cluster has one goroutine, that of its keeper. Only this goroutine makes
// calls that can block for that cluster (it reads the Secret and probes), each with a
// deadline. It is level-triggered: any wake makes it reconcile everything.
//
// Manager.mu guards the map of keepers. keeper.mu guards the fields of a keeper that other
// goroutines read. Both are held for field access only, in that order, and never during
// I/O, a callback or a channel send. Under keeper.mu, those of objects and writer are taken, so
// that the newest status is queued last. Fields guarded by a mutex are in a struct named
// lockedState.
//
// One goroutine reads each kind of cluster object, and the Secrets of each namespace. One watches the Secrets (metadata only)
// of each namespace that has a demanded cluster. One writes ClusterConnections.
//
// At most Options.Dials connections are dialled at the same time, at most a quarter of them to
// clusters that have failed before. At most readsForEachCPU clusters for each CPU read their Secret
// for the first time at the same time.
//
// # Secrets
//
// Each Secret is read by name when its resource version changes, and when the cluster
// rejects its credentials. Only the transport holds the bytes; the Manager also keeps a
// SHA-256 of each part. No message, log line, Event or status is made from bytes of a
// Secret, or from the error of a decoder that read them.
//
// # Trade-offs
//
// The /readyz probe shows that an API server responds, not that a kind can be read.
// Package watchers reports that (ReportKinds), and decides for each kind whether
// observations are fresh, from LastContact.
//
// One failed probe changes nothing. Two make a connection Degraded. Three, and no byte for
// Timings.Silence, make it Unreachable, unless the API server itself answers 500: a check
// of it fails, and watches that have nothing to deliver may work. Some seconds of 401
// change nothing if the credentials worked before: requests wait, and open watches
// continue. Two good probes, Timings.ProbeConfirm apart, end the outage; Timings.ProbeRetry
// apart, if the cluster failed within a minute after its last outage. The wait between
// probes of an unreachable cluster grows up to Timings.UnreachableRetryMax, and is at most a
// quarter of the outage. So the hub may find a cluster minutes late after an outage of
// hours. A changed Secret has an effect at once.
//
// A ClusterConnection continues to show its last state while the hub connects again, for at
// most a minute, and not while the hub cannot read the management cluster. Otherwise a
// restarted hub would write each ClusterConnection twice.
//
// A new server or CA is taken for the same cluster if the UID of kube-system is the same. If
// the credentials may not read it from either, a new CA at the same address is, and another
// address is not.
//
// The version and the UID are read after a connection is Ready. After an outage the UID is
// read before, for at most a second: another cluster may answer.
//
// IndexField returns an error, and cluster.Cluster objects have a cache without informers.
// An informer that is made on first use would block its reader while the cluster is
// unreachable.
package clusters
