// Package e2e tests the whole flow: a new chart version in dev is promoted to staging and
// prod by pull requests that are merged at a real Git provider, and runs there.
//
// Real: the control planes of a management and three workload clusters, Flux's
// helm-controller in each workload cluster, Gitea with the fleet's repository, and the
// hub: the released program in its own process, with the permissions of config/rbac.
// Simulated: in TestEndToEnd, kustomize-controller and source-controller (playground/flux), and
// the users who merge.
//
// The second part kills the hub (SIGKILL) at random times, 3 times, or 30 with
// CAPSTAN_SOAK. It compares all pull requests with the expected ones: none twice, none
// missing. CAPSTAN_SEED repeats the times.
//
// The third part promotes to a fleet in two waves: clusters that are selected by labels, each with a manifest and a
// marker of its own.
//
// The fourth part promotes through HTTP proxies: only they resolve the names of Gitea and of the clusters.
//
// TestKustomizations has two workload clusters of its own, in which Flux's source-controller and
// kustomize-controller apply a repository of Gitea as `flux bootstrap` configures them; nothing of
// Flux is simulated. It promotes Kustomizations by the commit, the tag and the digest of their
// revision. The commit is one of the repository that the hub writes to: each merge gives dev another
// one, and the test fails if that is promoted. A registry in the process has the OCI artifacts.
//
// TestTheImage promotes with the hub of a release's archive. `make release-test` makes the release
// and runs it; it is skipped where CAPSTAN_RELEASE names no release.
//
// `make e2e` runs the others. Without CAPSTAN_E2E or CAPSTAN_SOAK, as in `make test`, it is
// only compiled: it takes four minutes and a gigabyte and a half.
package e2e
