// Package publication publishes the state of the annotator's catalogue in a ConfigMap.
//
// Purpose: `capstan explain` says why a node group has no values of EC2 without a call to EC2 and
// without access to the hub's metrics. It reads the ConfigMap with the rights of its user.
//
// Contract: the leader compares the state with the one that it wrote last, every Interval, and
// writes only a difference. The first write of a leader replaces what its predecessor wrote. An
// empty state creates no ConfigMap. The value is bounded (catalogue.State) and has no credentials.
// A write that fails is tried again after Interval, and logged once.
//
// Locking: Publisher has one goroutine, and its state is local to it.
//
// Trade-offs: the ConfigMap is polled from memory instead of written by a callback, so a burst of
// changes is one write. The hub needs no right to read it: it updates it without a
// resourceVersion, because only the leader writes it.
package publication
