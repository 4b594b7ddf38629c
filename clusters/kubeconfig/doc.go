// Package kubeconfig reads the kubeconfigs of workload clusters, which are input
// of strangers.
//
// Purpose: a kubeconfig is a program. It may name a binary to run, files to read
// and hosts to call. Whoever may write a Secret in the management cluster would
// do all that with the hub's rights. So nothing of client-go's loading is used
// beyond decoding: Parse copies the few fields of an allow-list into a Config and
// refuses the rest by name.
//
// Contract: Parse has no side effects, never reads a file or a network, and its
// error is always a *Refusal, whose message names the field and the mend and
// never holds a byte of a token, key or certificate, nor of any value that could
// be one. A Config never prints its secrets, whatever verb is used. Fingerprint
// tells what changed between two kubeconfigs without keeping either.
//
// Trade-offs: a host is checked here as it is written; what a name resolves to is
// checked by package transport when it dials, with the same CheckAddress. Only
// the context that is current is judged: what another one holds is never used.
package kubeconfig
