// Package verify judges what is observed of an environment after a promotion was rolled out there:
// whether the revision is verified, has failed, or took too long.
//
// # Purpose
//
// A revision that breaks an environment must not be promoted further. The promotion succeeds only when
// the environment has been healthy with it for as long as spec.verification requires.
//
// # Contract
//
// All functions are pure: no clock, no client, no state. They judge the sums in Promotion.status, so
// every reader has the same verdict and it survives the process that counted. A verification whose spec
// is invalid gives no verdict until it is corrected.
//
// # Locking
//
// None: Rules are a value.
//
// # Trade-offs
//
// What was not observed is not held against a revision. So a cluster that cannot be reached delays the
// verdict for as long as that lasts, also beyond every deadline.
package verify
