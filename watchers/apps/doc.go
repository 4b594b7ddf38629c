// Package apps says what the revision and the health of an application are, for
// each kind of application.
//
// Contract: pure functions. Whatever JSON a workload cluster sends, the answer is
// an observation and never a panic or an error: what cannot be read is not ready,
// with a message that says so. Foreign texts are cut and hold no control
// characters.
//
// HelmRelease v2 has no lastAppliedRevision any more: the revision is the chart
// version of the newest deployed snapshot of status.history (helm-controller
// api/v2 Snapshot). Older versions, Kustomization, and any other kind with a Ready
// condition are read by status.lastAppliedRevision.
//
// A suspended application is as ready as it was when the suspension came, but any
// later change of its spec (and the suspension is one) is not reconciled, so that
// it counts as not ready until it is resumed.
//
// Trade-off: of a followed object only App is stored, under a kilobyte in place of
// eight: the object itself can be had from its cluster.
package apps
