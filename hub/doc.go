// Package hub is Capstan itself: one list that wires every part to every other,
// and the run of it.
//
// # A tour of the house
//
// Start at hub.go: New is the whole list. From there, downwards:
//
//   - clusters keeps one connection to each workload cluster that something
//     demands. It reads CAPI Clusters, GitopsClusters and their kubeconfig Secrets,
//     trusts none of them, and knows nothing of Pipelines.
//   - watchers runs one informer for each (cluster, kind) that something demands,
//     on those connections. watchers/apps says what a kind's revision and health are.
//   - index holds who uses what and what was last seen. It is pure data; whoever
//     wants to know something of a workload cluster reads it here and waits for nobody.
//   - hub/pipeline reconciles Pipelines: demand out, observations in, status
//     written, Promotions created. Its decision is the pure package
//     hub/pipeline/decision: two tables, printed in docs/promotion-life.md.
//   - hub/promotion carries Promotions through their life, by way of a strategy.
//   - hub/approval takes approvals and hints by signed HTTP calls and writes them where
//     the reconcilers find them. hub/explain says in words why nothing happens.
//   - hub/annotator writes on node groups what a node of them would be; its parts are
//     hub/annotator/annotation (formats), capacity and catalogue (EC2). annotate.go
//     wires it, in the hub and alone.
//   - hub/instancestate labels what AWS says of instances; instances.go wires it.
//   - hub/eventing tells event backends of all that: event says what is told, outbox
//     derives it from the hub's objects, publisher queues it, sink takes it to a broker,
//     backend reconciles EventingBackends, schema knows their keys, and discovery and
//     admission answer about them. eventing.go wires it.
//   - internal/secretwatch wakes reconcilers, and the keepers of connections, when a
//     Secret changes, and hub/serving runs the HTTP servers.
//   - hub/dashboard shows all of it, to whom may see it; what a page says is the pure
//     package hub/dashboard/view. local.go watches the management cluster for it, and
//     for instance state, on every replica.
//   - strategy is how a promotion is carried out: strategy/notification tells of it,
//     strategy/pullrequest edits a Git repository and opens a pull request, by way of
//     its parts gitrepo (clones), manifest (the edit) and provider (five services).
//
// # The way of a release
//
// A Pipeline is reconciled: its targets go to the index, the difference in demand
// to the watchers, which ask clusters for a connection and start an informer. A
// HelmRelease changes: the informer's handler makes an observation of it, the index
// says which Pipelines care, they are enqueued. The Pipeline's status is written
// with the agreed revision and its sequence; the decision says that a Promotion is
// due; it is created under a name that only one can have. hub/promotion takes it
// through its phases; the strategy acts; the environment is seen at the revision;
// the Promotion has succeeded, and the next environment is decided upon.
//
// # Rules of the house
//
// Imports run downwards only; packages beside each other in hub do not import each
// other but meet in hub.go; the linter keeps the walls. Every goroutine belongs to
// a Runnable of the manager and ends with it. Clocks are injected. A workload
// cluster is never asked from a reconciler.
//
// # Leader and standby
//
// Only the leader connects to workload clusters and acts. A standby serves the
// promotion hook and the dashboard as the leader does, for the hook's calls only record
// and the dashboard shows what is recorded (and says that it hears no cluster); it reads
// the queues of AWS, labels by them and publishes what it knows from there; it answers
// webhooks and discovery, and keeps the hub's own caches warm, so that its /readyz tells
// whether it could take over.
// Losing the lease ends the process.
package hub
