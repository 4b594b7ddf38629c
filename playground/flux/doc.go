// Package flux plays Flux's helm-controller for HelmReleases of the playground
// and of tests: it installs nothing, and writes the status that helm-controller
// 1.6 writes, step by step.
//
// Contract: a Release declares what a team's commit would declare (Declare), and
// plays the controller until the release is deployed (Deploy) or has failed
// (Fail). An Agent does the latter by itself for every HelmRelease of a cluster
// whose spec changed. Use either of the two on one HelmRelease, not both: the
// real controller is one.
//
// Each step is one patch of the status, as in the real one, so that a watcher
// sees what it would see there: the new generation with the old status, Ready
// Unknown while Helm works, the new snapshot before observedGeneration, a failed
// snapshot on top of the deployed one. The message texts are the real ones.
//
// Trade-offs: no chart is fetched, so the version of the spec is taken as it
// stands (ranges are refused) and the digests of snapshots are made up, though
// stable. No finalizer is set, so that a HelmRelease can be deleted while nobody
// plays its controller. Tests, rollbacks and drift are not played.
package flux
