// Package promotion carries Promotions through their life.
//
// Contract: the life is the table of hub/pipeline/decision; this package gathers
// the facts that the table asks for, writes what it answers, and calls a strategy
// while the phase is Promoting. A pull request that is open is followed
// (strategy.Follower) by looks that write nothing unless they see something, and is
// withdrawn when its promotion is superseded, succeeds without it (the environment was
// brought there by hand), or failed and would be superseded by now. It
// never calls a workload cluster: what an environment runs, and what its source
// agreed on, stand in Pipeline.status; but not before this process has looked at
// the Pipeline (Options.Looked), since what another one saw there may be hours old.
//
// Exactly once: before each outside step the Promotion, its Pipeline and all
// Promotions of the Pipeline are read uncached, and the table is asked again; then
// the attempt is written into the status with the resourceVersion that was read,
// so that of two hubs one goes on; then the strategy acts under the Promotion's
// identity; then the outcome is written. An attempt holds the place until its
// deadline has passed, so that a second hub, or this one after a crash, waits
// rather than acts beside the first.
//
// Old Promotions are deleted after the retention time, but never the newest of an
// environment, on which numbering rests, nor its newest succeeded one, which
// tells a promoted state from one made by hand.
//
// A promotion that failed for its credentials begins again when the Secret is another:
// the metadata of that one Secret is watched for as long as a promotion waits for it.
//
// Locking: one worker at a time has a Promotion. The times of the next looks (follows)
// and the watches of Secrets (internal/secretwatch) have a mutex each, under which nothing is
// called that waits.
package promotion
