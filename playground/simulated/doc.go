// Package simulated simulates many Kubernetes API servers in one process.
//
// Purpose: a thousand clusters on one machine, and clusters that fail on demand. A
// real API server with its etcd takes 280 MB, and does not respond with 429 to a
// well-behaved client.
//
// Contract: each Cluster has a listener, a CA and a serving certificate of its own,
// or clients would share a connection and every figure would be wrong. It serves
// the requests of the hub to a workload cluster: /readyz, /version, the namespace kube-system,
// discovery of HelmRelease and Kustomization of Flux, and get, list, watch, streamed
// initial lists and bookmarks of these, in all namespaces or one, with resource
// versions that end (410) as a real server's do. It speaks JSON, HTTP/2 and TLS.
// Set makes it fail in a Mode. The accepted credentials can be rotated. Counts returns
// the numbers of requests. A test compares its responses with those of a real API
// server.
//
// Locking: Cluster.mu guards lockedState; nothing is written to a connection under
// it. Each server has the goroutines of net/http, and one that accepts. Watches wait
// on a channel that each change closes and replaces.
//
// Trade-offs: an object is a few words and is written out when it is sent, from one
// filler that all share, so that a thousand servers cost the measured process's
// machine little. Field and label selectors, writes and other kinds are not served.
package simulated
