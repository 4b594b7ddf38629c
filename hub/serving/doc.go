// Package serving runs the hub's HTTP servers.
//
// Purpose: the promotion hook, the dashboard, discovery and the webhooks listen, limit
// their clients and stop in the same way. A Limiter limits the rate of calls of one
// client. Loopback and OwnHost are the rules of servers without sign-in.
//
// Contract: Run serves until its context ends. Running calls may then finish within
// StopGrace; that context does not cancel them. The other functions of a server run next
// to it and end with it. The first error ends all.
//
// # Locking
//
// Run owns its goroutines and waits for them. A Limiter has a mutex, which is held only
// for memory access.
//
// # Trade-offs
//
// controller-runtime's own server has no limit of connections, and its only timeout for
// running calls is that of the manager.
package serving
