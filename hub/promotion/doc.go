// Package promotion reconciles Promotions: it takes each one through its lifecycle.
//
// # Purpose
//
// The lifecycle is a table of hub/pipeline/decision. This package collects the facts that
// the table needs, writes the resulting phase, and calls a strategy while the phase is
// Promoting.
//
// # Contract
//
// An open pull request is checked at intervals (strategy.Follower). A check that finds
// no change writes nothing. The pull request is closed when its promotion is superseded,
// when it succeeds without the pull request (the environment was changed outside the
// pipeline), or when it failed and is obsolete.
//
// The package never calls a workload cluster: it reads from Pipeline.status what an
// environment runs and what its source agreed on. It waits until this process has
// observed the Pipeline (Options.Observed), because the observations of an earlier
// process may be hours old.
//
// Exactly once: each attempt has four steps.
//
//  1. Read the Promotion, its Pipeline and all Promotions of the Pipeline uncached, and
//     evaluate the table again.
//  2. Write the attempt to the status with the resourceVersion that was read, so that only
//     one of two hubs continues.
//  3. Call the strategy with the Promotion's identity.
//  4. Write the outcome.
//
// No other attempt starts until the deadline of an attempt has passed. A second hub, or
// this one after a crash, waits and does not act at the same time.
//
// Old Promotions are deleted after the retention time. Two Promotions of an environment
// are always kept: the newest, which the numbering needs, and the newest succeeded one. The
// latter shows whether a state was promoted or changed outside the pipeline.
//
// A promotion that failed because of its credentials starts again when the Secret
// changes: the metadata of that one Secret is watched while a promotion waits for it.
//
// # Locking
//
// One worker at a time reconciles a Promotion. The times of the next checks (follows) and
// the watches of Secrets (internal/secretwatch) have a mutex each. No call that waits is
// made under them.
//
// # Trade-offs
//
// The facts come from Pipeline.status, not from the index of observations. A promotion
// advances one status write later, and decides from the state that users see.
package promotion
