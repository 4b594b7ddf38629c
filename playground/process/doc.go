// Package process runs programs as child processes of the playground: Gitea and
// helm-controller, and the hub where a test kills it.
//
// Contract: Start returns when the program runs; Ended is closed when it has ended,
// by itself or not. Stop asks it to end (SIGTERM) and makes it so when it does not;
// Kill is what a power cut does (SIGKILL). Both wait, and take its own children
// along: a program is the leader of a process group of its own, so that Ctrl-C in a
// terminal reaches only the playground, which ends what it started in its own order.
//
// Each process has one goroutine, which waits for its end. What a program prints
// goes to a file, so that nothing here need read it while it runs.
//
// Trade-offs: a playground that is itself killed leaves its programs running, as
// envtest does; nothing portable prevents that.
package process
