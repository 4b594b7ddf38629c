// Package e2e tests the whole flow: a new chart version in dev is promoted to staging and
// prod by pull requests that are merged at a real Git provider, and runs there.
//
// Real: the control planes of a management and three workload clusters, Flux's
// helm-controller in each workload cluster, Gitea with the fleet's repository, and the
// hub: the released program in its own process, with the permissions of config/rbac.
// Simulated: kustomize-controller and source-controller (playground/flux), and the users
// who merge.
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
// `make e2e` runs it. Without CAPSTAN_E2E or CAPSTAN_SOAK, as in `make test`, it is
// only compiled: it takes a minute and a gigabyte and a half.
package e2e
