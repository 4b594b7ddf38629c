// Package simulated simulates many Kubernetes API servers in one process.
//
// Purpose: a thousand clusters on one machine, and clusters that fail on demand. A
// real API server with its etcd takes 280 MB, and answers 429 to nobody who asks
// nicely.
//
// Contract: each Cluster has a listener, a CA and a serving certificate of its own,
// or clients would share a connection and every figure would lie. It serves what
// the hub asks of a workload cluster: /readyz, /version, the namespace kube-system,
// discovery of HelmRelease and Kustomization of Flux, and get, list, watch, streamed
// initial lists and bookmarks of these, in all namespaces or one, with resource
// versions that end (410) as a real server's do. It speaks JSON, HTTP/2 and TLS.
// Set has it fail in a Mode; the credentials it accepts can be rotated; Counts says
// what was asked of it. That it answers as a real API server does is tested against
// one.
//
// Locking: Cluster.mu guards lockedState; nothing is written to a connection under
// it. Each server has the goroutines of net/http, and one that accepts. Watches wait
// on a channel that each change closes and replaces.
//
// Trade-offs: an object is a few words and is written out when it is sent, from one
// filler that all share, so that a thousand servers cost the measured process's
// machine little. Field and label selectors, writes and other kinds are not served.
package simulated
