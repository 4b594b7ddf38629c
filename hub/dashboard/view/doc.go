// Package view builds the dashboard's pages from the hub's objects.
//
// Purpose: one place that defines the content of each page: which clusters and Pipelines
// it shows, in which order, in which state, and which observations are stale.
//
// Contract: all functions are pure functions of Facts (the objects of the caches, which
// they do not change, and the leader's observations of the clusters), a Scope (what the
// viewer may see) and a Query (the filter in the address). Objects outside the Scope are
// in no list and in no count. A page has a frame and lists of blocks. A block changes only
// when its content changes, so that it can be rendered once for many viewers and sent
// alone. For this, times are absolute, and the time of the last contact is shown only
// when it is older than FreshFor. Lists begin with the worst state.
//
// The health of a cluster (health.go) is the worst of its connection, applications, nodes, instances and credential; the map,
// the table and the search use the same rows. What waits for a person (waiting.go) is grouped by cause.
//
// The observations of a cluster are stale when it is not Ready, or when the last contact
// is older than FreshFor. A stale application is never shown as ready.
//
// Whether an environment is held is the hub's own decision: hub/pipeline/decision makes it from the objects.
//
// Locking: none.
//
// Trade-offs: each page is built from all objects each time, so all parts of a page are consistent. For 1,000 clusters, 300
// Pipelines of 20 environments and 20,000 promotions this takes 5 to 40 ms of CPU (BenchmarkPages). The caches list objects in
// no order: each list is sorted by an order in which no two objects are equal.
package view
