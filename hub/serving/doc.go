// Package serving runs the hub's HTTP servers.
//
// Purpose: the promotion hook, the dashboard, discovery and the webhooks open a port,
// bound what a caller may take, and end, all in one way. A Limiter bounds how often one
// client calls.
//
// Contract: Run serves until its context ends. Calls under way are then let end, for
// StopGrace at most; what they do is not cut short by that context. Whatever else a
// server needs runs beside it, and ends with it; the first error ends all.
//
// # Locking
//
// Goroutines belong to Run, which waits for them. A Limiter has a mutex, held for the
// access of memory only.
//
// # Trade-offs
//
// controller-runtime's own server has neither a bound on connections, nor a limit for
// calls under way other than the manager's.
package serving
