// Package annotator writes on node groups what a node of them would be, so that
// cluster-autoscaler can scale them from zero.
//
// Purpose: MachineDeployments, MachineSets without owner and MachinePools on AWS, in
// the management cluster and in self-managed clusters, bear the capacity annotations of
// their instance type. Where the parts are: resolve what is behind a group (template.go,
// region.go, internal/capa), decide on its values (verdict.go, node.go), whose value it
// is and how it is written (package annotation), what EC2 says (package catalogue), and the
// patches (write.go, internal/memberwrite). Explain (explain.go) reports of one group what is
// in Kubernetes' objects.
//
// # Contract
//
// A reconciliation is a function of what watchers hold and what the catalogue knows,
// and ends in one metadata-only merge patch with a resourceVersion, or in none: a second
// pass writes nothing. It waits for nobody but for its own patch.
//
// Every object that it looked at, there or not, wakes it when it changes or appears
// (dependents.go), as does news of its region in the catalogue. So the order of creation
// does not matter, and a template of thousands of MachineDeployments costs a look at
// memory for each.
//
// What is paused or being deleted, itself or its Cluster, is left alone; what is another
// infrastructure provider's is passed over in silence. Where the instance type cannot be
// told any more, what is annotated stays: the nodes are still of that type.
//
// Each thing to tell is one Event and one line in the log, until it was over
// (notice.go). Events of node groups in self-managed clusters are made on their Cluster
// in the management cluster, since nothing but the patches ever leaves for a workload
// cluster.
//
// The functions ResolveAWSMachineTemplate, ExtractInstanceType and ResolveRegion, the
// constant RegionAnnotation and the sentences of their errors are the seed's.
//
// # Locking
//
// dependents, teller, unseen and contests have a mutex each, held for access of maps only, and
// never two of them at once. One reconciler of each kind runs in workers goroutines,
// which the manager owns.
//
// # Trade-offs
//
// Objects are read unstructured, in whichever version is served, cut to the fields of
// one table (kinds.go): Go types of one version would end with that version.
//
// Somebody who undoes what is written here, each time, is not fought but told: the same
// change is written again only after a wait that doubles (contest.go).
//
// A retry is a RequeueAfter and not an error returned: what failed is told once, by the
// Event and the log, and not at every try by controller-runtime.
//
// A member cluster uses a share of the workers and rests when it does not answer
// (internal/memberwrite).
package annotator
