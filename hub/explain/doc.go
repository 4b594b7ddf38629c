// Package explain explains the state of a Pipeline: what each environment runs, what is in
// flight, and in one sentence why the next promotion does not happen. Fleet shows all
// clusters and Pipelines, the worst first, and Summary one entry for each cause. WriteBackend explains an EventingBackend.
//
// # Purpose
//
// An operator needs the cause of a blocked promotion, also when clusters do not answer. The
// explanation is made from the hub's own objects (Pipeline, Promotions,
// ClusterConnections). It needs only the permission to read them, and calls no workload
// cluster.
//
// # Contract
//
// Explain is a pure function of these objects and a time. hub/pipeline/decision decides
// what is due, so the explanation is the hub's own decision. Commands for the user are
// complete and can be copied. A Pipeline in any state has an explanation.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// The package explains what the objects contain. If the hub does not run, they are old.
// The report shows this where the objects do: an edit that was not observed.
package explain
