// Package install proves that the manifests have what the hub needs. Helm and kustomize
// render the chart and the kustomization. The tests compare the results and apply them to
// a real API server. Then the hub runs the whole story of the playground with only the
// permissions of the chart's ServiceAccount.
//
// The API server's audit log is the proof: no request of the hub was denied, and every
// permission in the rules was used, or a comment next to the rule says what it is for
// ("Not in the story: VERB RESOURCE, ...").
//
// `make e2e` runs the story (CAPSTAN_E2E). Otherwise, as in `make test`, the story is
// skipped: it takes two minutes and 1.5 GB.
package install
