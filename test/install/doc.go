// Package install proves that what a platform team applies is what the hub needs: the
// chart and the kustomization are rendered by Helm and kustomize themselves, held
// against each other, and applied to a real API server; then the hub runs through the
// whole story of the playground with the rights that the chart gave its ServiceAccount,
// and no others.
//
// The API server's own audit log is the witness: nothing that the hub asked for was
// denied, and every right in the rules was used, or a comment beside the rule says what
// it is for ("Not in the story: VERB RESOURCE, ...").
//
// `make e2e` runs the story (CAPSTAN_E2E). Without it, as in `make test`, the story is
// left out: it takes two minutes and a gigabyte and a half.
package install
