// Package delivery computes delivery figures (DORA) from the ledger: the Promotions of Pipelines.
//
// # Purpose
//
// The dashboard, its JSON API and the hub's metrics show the same figures, by the same rules.
//
// # Contract
//
// All functions are pure: the caller gives the objects and the time. Only what the ledger records is used.
// HistoryOf reads the Promotions of one Pipeline; a Sum adds histories within a Window of days in UTC, and
// gives Figures. So the counts of Pipelines add up to those of their namespaces and of the fleet.
//
//   - A deployment is a Promotion that succeeded, after an attempt of the hub, and is no rollback. With waves
//     it is complete when the last wave succeeded. One for a cluster that joined a wave later is no other deployment,
//     but a part of that change. A Promotion that found the revision there already (AlreadyThere) is none: the Pipeline
//     did not deploy it.
//   - A change is a deployment, or what ended otherwise and failed: its Promotion is Failed, for any reason, or a
//     rollback replaces it. With waves, all Promotions of one revision are one change. Rollbacks, and what was
//     rejected or superseded, are no changes.
//   - The lead time of a change begins when the first environment agreed on the revision, which created the
//     first Promotion of it into the second environment. It ends with the deployment into the last environment. It is
//     not known if the ledger does not have that Promotion; each decision counts once.
//   - The time to restore begins when a Promotion into the environment failed, or a rollback was created. It ends
//     when the failed stages have each had a Promotion that succeeded, also a rollback or one that found the
//     revision there already.
//   - The wait for an approval begins when the run started, or its gates opened, and ends with the approval. The wait for
//     gates is the last time in which a gate was closed. Both are of Promotions that succeeded or failed.
//
// Figures of a Pipeline, a namespace and the fleet count deployments, changes and times to restore of the last
// environments, and waits of all environments. Promotions of environments that the Pipeline does not have any more are not
// counted, nor those that the retention deleted: Figures say since when the ledger has counted Promotions, and since
// when it is complete.
//
// Percentiles are by nearest rank: a value that was observed. All durations are whole seconds.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// Promotions have times in seconds, so events of the same second are ordered by the number of their Promotions. A Promotion that
// failed and then succeeded by another try is recorded as one that succeeded.
package delivery
