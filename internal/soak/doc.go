// Package soak sums how long an environment has run a revision and was healthy.
//
// Contract: everything is a pure function of its arguments; there is no clock. The caller gives
// instants of one process, whose differences Go takes from the monotonic clock, so that a changed
// wall clock neither lengthens nor shortens a soak. Only the sum survives the process.
//
//   - Time counts while all is Ready.
//   - Unready time pauses the soak as long as it is short (tolerate), and restarts it when it is longer.
//     It is added up until all is Ready again.
//   - A controller that reconciles what it has applied before is Progressing: kustomize-controller sets
//     that at every interval. It pauses the soak, whatever time it takes, and is Unready from its start
//     if it ends Unready.
//   - What is not observed, because a cluster does not answer or no hub runs, neither counts nor restarts.
//   - Another revision, digest or sequence is another soak.
//
// A restart of the process never makes a soak longer than it would have been: what it does not know,
// it takes as unready. It loses what was counted since the sum was stored.
//
// A Trial sums the same verdicts for a roll-out and its verification, which have deadlines. A restart
// of the process never makes one fail earlier.
//
// # Locking
//
// None: a Soak and a Trial are values.
//
// # Trade-offs
//
// A hub that restarts while an environment is unready does not know for how long. If the environment
// is still unready when it is observed again, the soak restarts, although the pause may have been within
// what is tolerated.
package soak
