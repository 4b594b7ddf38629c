// Package cli holds the commands of capstan. The root command runs the hub, so
// that flags follow the program's name as in other controllers; each further
// command is a file.
//
// Contract: Main returns the process's exit code: 0 after a command that did what
// it was asked to (a hub that was told to stop included), 1 after anything else,
// with the reason on standard error. Flags are checked before anything is
// contacted, all of them at once, so that one start shows every mistake.
//
// Trade-offs: the flags are the only configuration, but for the two variables that
// every Kubernetes program honours: KUBECONFIG, and RUNTIME_NAMESPACE as Flux's
// controllers do. A file of settings would be a second place to look in.
package cli
