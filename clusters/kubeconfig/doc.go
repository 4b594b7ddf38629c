// Package kubeconfig reads the kubeconfigs of workload clusters, which are
// untrusted input.
//
// Purpose: a kubeconfig may name a binary to run, files to read and hosts to call. A
// user who may write a Secret in the management cluster could do all that with the
// hub's rights. So the hub uses client-go's loader only to decode. Parse copies the
// few fields of an allow-list into a Config and refuses each other field by its name.
//
// Contract: Parse has no side effects and never reads a file or a network. Its
// error is always a *Refusal, whose message names the field and what to do. The
// message never contains a byte of a token, key or certificate, or of any value that
// could be one. A Config never prints its secrets, with any verb of fmt. Classify
// compares two kubeconfigs by their Fingerprints, which contain no credentials.
//
// Locking: none.
//
// Trade-offs: Parse checks the server's host as it is written. Package transport
// checks what a name resolves to when it dials, by the same policy of
// internal/netguard. Parse only checks the current context; the hub never uses
// another one.
package kubeconfig
