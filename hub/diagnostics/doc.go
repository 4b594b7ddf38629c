// Package diagnostics serves what a developer needs to examine a running hub: profiles, the log
// level, and the state of connections, informers and queues.
//
// Purpose: a hub is measured in the fleet in which it is slow or large, because most fleets cannot
// be built again elsewhere.
//
// Contract: the server listens on a loopback address only and has no sign-in; in a pod it is
// reached by kubectl port-forward, which needs the right to pods/portforward. It answers requests
// only under a loopback name, so that a web page cannot reach it by DNS rebinding, and refuses
// requests of other sites. It returns names, states, messages and counts, and nothing of a Secret.
// A profile contains function names and no values. It runs on every replica, and is off by
// default.
//
// Locking: the Server has no state.
//
// Trade-offs: /state copies the state of all connections and informers for each request, about 1
// KiB for each informer. A CPU profile slows the hub by some percent while it is taken.
package diagnostics
