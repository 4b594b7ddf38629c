// Package flux simulates Flux's helm-controller for HelmReleases of the playground and of
// tests. It installs nothing, and writes the status of helm-controller 1.6 step by step.
//
// Contract: a Release declares what a team's commit would declare (Declare), and simulates
// the controller until the release is deployed (Deploy) or has failed (Fail). An Agent
// simulates the controller for every HelmRelease of a cluster whose spec changed. Use only
// one of the two on one HelmRelease, because there is only one real controller.
//
// The real controllers are processes: StartHelmController, StartKustomizeController,
// StartSourceController and StartNotificationController run the programs that make builds into bin/.
//
// Each step is one patch of the status, as in the real controller, so that a watcher
// observes the same states: the new generation with the old status, Ready Unknown during
// the Helm action, the new snapshot before observedGeneration, a failed snapshot on top of
// the deployed one. The message texts are the real ones.
//
// Trade-offs: no chart is fetched, so the version of the spec is used literally (ranges are
// refused). The digests of snapshots are invented, but stable. No finalizer is set, so that
// a HelmRelease can be deleted while no controller is simulated. Tests, rollbacks and drift
// are not simulated.
package flux
