// Package view makes the dashboard's pages out of the hub's objects.
//
// Purpose: one place that says what each page shows: which clusters and Pipelines, in
// what order, in which state, and what is too old to be believed.
//
// Contract: pure functions of Facts (objects as they are in the caches, which are not
// changed, and what the leader heard of the clusters), a Scope (what the viewer may
// see) and a Query (what the address asks for). What is outside the Scope is in no
// list and in no count. A page has a frame and lists of blocks; a block changes only
// when what it says changes, so that it can be rendered once for many viewers and sent
// alone: times are absolute, and the time of the last contact is told only once it is
// older than FreshFor. Worst comes first.
//
// What was seen in a cluster that is not Ready, or was not heard of for FreshFor, is
// stale, whatever it looked like: it is never shown as well.
//
// Locking: none.
//
// Trade-offs: each page is made anew from all objects, which at 500 clusters and 200
// Pipelines takes a few milliseconds, and is the reason that nothing here can be out
// of step with anything else.
package view
