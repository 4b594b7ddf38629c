// Package e2e proves the whole way: a new chart version in dev travels to staging and
// prod by pull requests that are merged at a real Git provider, and runs there.
//
// What is real: the control planes of a management and three workload clusters,
// Flux's helm-controller in each workload cluster, Gitea with the fleet's repository,
// and the hub, as the program that is shipped, in a process of its own, with the
// rights of config/rbac. What is played: kustomize-controller and source-controller
// (playground/flux), and the people who merge.
//
// The second part kills the hub (SIGKILL) at random moments on the way, 3 times, or
// 30 with CAPSTAN_SOAK, and holds all pull requests there ever were against those
// there should be: none doubled, none lost. CAPSTAN_SEED repeats its moments.
//
// `make e2e` runs it. Without CAPSTAN_E2E or CAPSTAN_SOAK, as in `make test`, it is
// only compiled: it takes a minute and a gigabyte and a half.
package e2e
