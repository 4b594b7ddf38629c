// Package cli holds the commands of capstan. The root command runs the hub, so
// that flags follow the program's name as in other controllers; each further
// command is a file.
//
// Contract: Main returns the process's exit code: 0 after a command that succeeded
// (also after a hub that a signal stopped), 1 after any failure, with the reason on
// standard error. All flags are checked before the first connection is made, so that
// one start shows every mistake.
//
// Locking: none.
//
// Trade-offs: the flags are the only configuration, except for two environment
// variables: KUBECONFIG, which every Kubernetes program reads, and RUNTIME_NAMESPACE,
// which Flux's controllers read. A configuration file would be a second source.
package cli
