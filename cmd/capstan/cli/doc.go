// Package cli holds the commands of capstan; each command is a file. The command hub runs
// the hub. Without a command, the program prints its help, and connects to nothing: a user
// who types its name must not start a controller with the current kubeconfig.
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
