// Package hub wires Capstan: it makes every part, connects the parts to each other, and
// runs them.
//
// # Purpose
//
// New is the only place that knows all parts. A part is one package below hub; parts do
// not import each other.
//
// # A tour
//
// Start at hub.go. New has five steps, and each step has its files:
//
//  1. The manager (manager.go): the process, its lease (lease.go, and sharing.go for a hub that
//     shares the management cluster with others), its health checks, and the cache of the hub's
//     own objects (Pipelines, Promotions, ClusterConnections, EventingBackends, and the Events
//     that the hub records).
//  2. The stack (stack.go, kinds.go): the connections to clusters, the watchers over them,
//     and the index of observations. There is one stack in a process, so each kind of a
//     cluster is watched once, even if several parts read it.
//  3. Eventing (eventing.go, tell.go): the publisher, to which the reconcilers report, the
//     reconciler of EventingBackends, discovery and webhooks.
//  4. The reconcilers: the annotator (annotate.go, which also wires capa-annotator), the
//     state of instances (instances.go), Pipelines and Promotions (promotions.go).
//  5. The servers: the promotion hook (hook.go), the dashboard (dashboard.go) and diagnostics
//     (diagnostics.go).
//
// In dry run (dryrun.go) the steps 3 and 4 are replaced by the reconciler of Pipelines alone, which only announces,
// and every client has the gate of hub/dryrun in front of it.
//
// The packages below, from the bottom up:
//
//   - internal/* are rules that several packages need, such as which Promotions belong to a
//     Pipeline.
//   - clusters keeps one connection to each workload cluster that is demanded. It reads
//     Clusters, GitopsClusters, ClusterProfiles and Secrets that name clusters, with their
//     kubeconfigs, and does not trust the kubeconfigs. It knows no Pipeline.
//   - watchers runs one informer for each (cluster, kind) that is demanded. watchers/apps
//     reads the revision and the health of an application.
//   - index holds who uses which application, and what was last observed. It is pure data.
//     A reconciler reads it and never waits for a workload cluster.
//   - strategy carries out a promotion: strategy/notification sends a Flux event,
//     strategy/pullrequest edits a Git repository and opens a pull request, with gitrepo
//     (clones), manifest (the edit) and provider (five Git services).
//   - hub/pipeline reconciles Pipelines: it writes the demand and the status, and creates
//     Promotions. The decision is the pure package hub/pipeline/decision, two tables that
//     docs/promotion-life.md prints.
//   - hub/promotion takes Promotions through their phases and calls the strategies.
//   - hub/approval serves approvals and hints as signed HTTP calls. It writes them to the
//     objects that the reconcilers read.
//   - hub/explain explains why a Pipeline does not advance.
//   - hub/annotator writes the capacity of a new node on node groups. Its parts are
//     annotation (formats), capacity and catalogue (EC2).
//   - hub/instancestate labels machines with the state that AWS reports for their instances.
//   - hub/eventing publishes CloudEvents: event defines them, outbox derives them from the
//     hub's objects, publisher queues them, sink sends them to a broker, backend reconciles
//     EventingBackends, schema has their keys, discovery and admission serve them to clients
//     and to the API server.
//   - hub/dashboard serves the pages. The content of a page is the pure package
//     hub/dashboard/view.
//   - hub/claim keeps two hubs of one management cluster from serving one namespace.
//   - hub/diagnostics serves profiles, the log level and the state of the process.
//   - hub/dryrun is the gate that sends only reads and a few writes.
//   - internal/secretwatch wakes reconcilers, and connections, when a Secret changes.
//     hub/serving runs HTTP servers. hub/awsconfig holds the credentials for AWS.
//
// # The path of a release
//
// A Pipeline is reconciled. Its targets go to the index, and the difference in demand goes
// to the watchers, which demand a connection from clusters and start an informer. A
// HelmRelease changes. The informer makes an observation of it, the index returns the
// Pipelines that use it, and they are enqueued. The reconciler writes the agreed revision
// and its sequence to the status of the Pipeline. The decision is that a Promotion is due,
// and it is created under a name that only one can have. hub/promotion takes it through
// its phases and calls a strategy. When all targets of the environment run the revision,
// the Promotion has succeeded, and the decision for the next environment follows.
//
// # Contract
//
// Imports run downwards only; the linter checks it. Every goroutine belongs to a Runnable
// of the manager and ends with it. Clocks are injected. No reconciler of Pipelines or
// Promotions calls a workload cluster. Metrics are registered with Options.Registerer, and
// never on import.
//
// Parts are complete when they are constructed. Four setters remain, because in these cases
// two parts need each other; a comment at each call says so:
//
//   - clusters.Manager.AddListener: watchers need connections, connections notify watchers.
//   - clusters.Manager.SetAware: the multicluster manager takes the connections as its
//     provider, and the connections engage it.
//   - outbox.Outbox.PublishTo: the outbox is a source of the publisher, and publishes
//     through it.
//   - queueReadings.from: event backends show the state of their queues, and instance state,
//     which reads the queues, needs the types and the publisher of the event backends.
//
// # Leader and standby
//
// Only the leader annotates, promotes, writes ClusterConnections, and acts in self-managed
// clusters. Every replica runs the stack for the management cluster. A standby
// reads the queues of AWS, labels the machines that it watches there, and publishes the
// events about them. A standby also serves the promotion hook, which only writes to the
// hub's objects, the dashboard, the webhooks and discovery. Its dashboard shows the recorded
// state and says that the replica has no connection to workload clusters. Its caches are
// filled, so its /readyz shows whether it could lead. A process that loses the lease ends.
//
// With Options.WarmStandby a standby connects to the workload clusters, too, and the index of
// each replica has what Pipelines use (hub/pipeline/standby.go). Its dashboard shows the
// connections as it observes them, and its /readyz (warm.go) whether it could lead without a gap.
//
// # Locking
//
// None: New runs in one goroutine, before any part starts.
//
// # Trade-offs
//
// One watch serves all parts that read a kind, so its objects hold what any enabled part
// reads. This costs some bytes per object in self-managed clusters, where the dashboard
// reads nothing, and saves a watch, its decoding and its store in the management cluster.
//
// Connections read the metadata of Clusters by a watch of their own: they are a layer
// below the watchers.
package hub
