// Package apps reads the revision and the health of an application, for each kind of
// application.
//
// # Purpose
//
// HelmRelease v2 has no lastAppliedRevision any more: the revision is the chart version of
// the newest deployed snapshot of status.history (helm-controller api/v2 Snapshot). For
// older versions, Kustomization, and any other kind with a Ready condition, the revision is
// status.lastAppliedRevision. What the revisions of two applications have to have in common
// to be the same is in package internal/revision.
//
// An Application of Argo CD has neither: it is ready if it is Synced and Healthy and its last
// operation did not fail. Its revision is status.sync.revision while it is Synced, and else that
// of the newest entry of status.history, because status.sync then has what is to be deployed.
//
// # Contract
//
// All functions are pure. For any JSON of a workload cluster, the result is an observation,
// and never a panic or an error. An object that cannot be read is not ready, and the message
// says so. Texts of the cluster are truncated and have no control characters.
//
// A suspended application keeps its Ready condition. But a later change of its spec, such as
// the suspension itself, is not reconciled, so the application is not ready until it is
// resumed.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// Only App is stored of an observed object: less than 1 KiB instead of about 8 KiB. The full
// object can be read from its cluster.
package apps
