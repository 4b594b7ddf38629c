// Package pipeline reconciles Pipelines: it passes the demand of a Pipeline to the index
// and the watchers, writes the observations to its status, and creates a Promotion when
// one is due.
//
// # Purpose
//
// The decision is the pure package decision. The lifecycle of a Promotion is in the
// package hub/promotion.
//
// # Contract
//
// The reconciler is level-triggered: events only trigger a reconcile; decisions use
// current state. It never calls a workload cluster, only reads the index, so a slow cluster
// cannot block a worker. A Pipeline with an invalid spec gets a condition that names what
// to fix, and affects no other Pipeline. Two Pipelines that promote into one application get
// a condition that names the other; when one of them changes, the other is woken.
//
// A failure has one Event on the Pipeline, in its own words (report.go). The Events of a
// Promotion and of a ClusterConnection have the cause.
//
// Exactly once: three steps create a Promotion.
//
//  1. The status, with the agreed revisions and their sequences, is written with the
//     resourceVersion that was read. Nothing is decided from it before.
//  2. The Pipeline and its Promotions are read uncached, and the decision is made again.
//  3. One Promotion is created under a name that only one can have.
//
// A conflict in any step starts the reconcile again.
//
// In dry run the reconciler decides in the same way, writes only status.dryRun, and creates nothing (dryrun.go).
//
// On a warm standby the reconciler only passes demand on. A process that begins to lead confirms what differs
// from the stored statuses before it acts on it, and leaves a status alone that it cannot contradict yet (standby.go).
//
// # Locking
//
// One worker at a time reconciles a Pipeline. The Waker, holds and dryRuns have a mutex each, for
// field access only.
//
// # Trade-offs
//
// After a start, a Pipeline is written at most once in a few seconds (holds) while its
// targets are observed for the first time. This delays the first status by up to 4 s, in a
// start of a large fleet by up to two minutes, and saves one write for each target.
package pipeline
