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
// An open pull request is checked at intervals (strategy.Follower), and once when the targets
// run the revision of a request or a rollback. A check that finds no change writes nothing. The pull request is closed when its promotion is superseded,
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
// A settled promotion (internal/promotions) is not reconciled, and the cache has it stripped.
// Nothing that was read of it there is written. An hour after its end its managed fields are
// removed, one promotion per second.
//
// Old Promotions are deleted after the retention time, or when more than Options.Keep have
// finished. Two Promotions of an environment are always kept: the newest, which the numbering
// needs, and the newest succeeded one. The latter shows whether a state was promoted or
// changed outside the pipeline. One timer for all of them starts a pass over the ledgers.
//
// If the receiver of an action has a higher number than any Promotion, an older state of the
// management cluster was restored. The promotion then continues under a number above it.
//
// The calls of strategies for the Promotions of one namespace have a part of the workers only
// (perTenant), so that servers of one namespace that hang or are slow do not delay the others.
// A Promotion that has to wait for a place has no worker and no claim.
//
// An error of a strategy has a patience: how often and how long it is repeated before it
// ends the promotion. status.failure counts it, over attempts and checks. A failed promotion
// is tried again every hour if its error says so, in the phase Failed: it leaves the phase
// only when a try succeeds, when its pull request ends, or when its environment runs the
// revision.
//
// A promotion that failed because of its credentials starts again when the Secret
// changes, and one that waits for its next attempt is tried at once: the metadata of that
// one Secret is watched while a promotion waits for it.
//
// # Locking
//
// One worker at a time reconciles a Promotion. The times of the next checks (follows), the
// waits after the clock was put back (waits), the names of the ledgers, the watches of Secrets
// (internal/secretwatch) and the places of namespaces (tenants) have a mutex each. No call
// that waits is made under them.
//
// # Trade-offs
//
// The facts come from Pipeline.status, not from the index of observations. A promotion
// advances one status write later, and decides from the state that users see.
package promotion
