// Package process runs programs as child processes of the playground: Gitea,
// helm-controller, and the hub in tests that kill it.
//
// Contract: Start returns when the program runs. Ended is closed when it has ended, for any
// reason. Stop sends SIGTERM, and SIGKILL if the program does not end. Kill sends SIGKILL at
// once, like a power cut. Both wait, and also end the program's own children, because a
// program is the leader of its own process group. So Ctrl-C in a terminal reaches only the
// playground, which ends its programs in its own order.
//
// Each process has one goroutine, which waits for its end. The output of a program goes to a
// file, so that no goroutine must read it while the program runs.
//
// Trade-offs: if the playground itself is killed, its programs continue to run, as with
// envtest. There is no portable way to prevent that.
package process
