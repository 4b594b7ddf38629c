// Package annotator writes the capacity of a future node on node groups, so that
// cluster-autoscaler can scale them from zero.
//
// Purpose: MachineDeployments, MachineSets without owner and MachinePools on AWS get the
// capacity annotations of their instance type. This covers the management cluster and
// self-managed clusters. The parts: resolve the objects behind a group (template.go,
// region.go, internal/capa), decide on its values (verdict.go, node.go), merge them with the
// values of users (package annotation), read the facts of EC2 (package catalogue), and patch
// (write.go, internal/memberwrite). Explain (explain.go) reports the state of one group from
// Kubernetes objects only. Package publication publishes the state of the catalogue for users.
//
// # Contract
//
// A reconciliation is a function of the watchers' stores and the catalogue's memory. It sends
// one metadata-only merge patch with a resourceVersion, or none: a second pass writes nothing.
// It waits only for its own patch.
//
// A change of any object that a reconciliation has read triggers the next one, also when the
// object did not exist before (dependents.go). So does a change of its region in the
// catalogue. So the order of creation does not matter, and a change of a template with
// thousands of MachineDeployments costs one read from memory for each.
//
// The annotator does not change a group that is paused or being deleted, or whose Cluster is.
// It ignores groups of other infrastructure providers without an Event. If the instance type
// can no longer be determined, existing annotations stay: the nodes still have that type.
//
// Each problem results in one Event and one log line, until it is solved (notice.go). Events
// of node groups in self-managed clusters are created on their Cluster in the management
// cluster, because the hub sends only patches to workload clusters.
//
// The requirements fix the functions ResolveAWSMachineTemplate, ExtractInstanceType and
// ResolveRegion, the constant RegionAnnotation and the texts of their errors.
//
// # Locking
//
// dependents, notifier, unseen and contests have one mutex each. It is held for access to maps
// only, and never two of them at once. One reconciler of each kind runs in several worker
// goroutines, which the manager owns.
//
// # Trade-offs
//
// Objects are read unstructured, in the version that is served, reduced to the fields of
// one table (kinds.go): Go types of one version would end with that version.
//
// If another client repeatedly reverts a change, the annotator reports it, and writes the same
// change again only after a wait that doubles (contest.go).
//
// A retry is a RequeueAfter, not a returned error: the Event and the log report a failure
// once. controller-runtime would log it at each try.
//
// A member cluster uses a limited share of the workers, and is not called for a time when it
// does not answer (internal/memberwrite).
package annotator
