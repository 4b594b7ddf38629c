// Package pipeline reconciles Pipelines: it tells the index and the watchers what
// a Pipeline needs, shows in its status what was observed, and writes a Promotion
// where one is due.
//
// Contract: level-triggered. Nothing is derived from an event but that it is time
// to look. It never calls a workload cluster: what is known of one stands in the
// index, so a slow cluster cannot hold a worker. A bad Pipeline gets a condition
// that names what to mend and disturbs no other.
//
// Exactly once: the status, with the agreed revisions and their sequences, is
// written with the resourceVersion that was read before anything is decided from
// it; then the Pipeline and its Promotions are read again, uncached, and decided
// upon again; then one Promotion is created under a name that only one can have.
// Whoever loses any of these races starts over.
//
// The decision itself is the pure package decision. What becomes of a Promotion is
// hub/promotion's.
//
// Locking: none but the Waker's. One worker at a time has a Pipeline.
package pipeline
