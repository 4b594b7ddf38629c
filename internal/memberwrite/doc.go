// Package memberwrite sends metadata patches to the management cluster and to member
// clusters, which are self-managed clusters that hold their own Cluster API objects.
//
// Purpose: clients and deadlines (writer.go), and the share of workers that one member
// cluster may use and its rest after a call without an answer (lane.go). hub/annotator and
// hub/instancestate use it.
//
// # Contract
//
// Each call has the deadline Timeout. A member cluster uses at most its share of the
// workers. A member cluster that does not answer rests, twice as long after each further
// call without an answer. After a rest one call tries for all. An unreachable cluster never
// blocks the others.
//
// Calls to a member cluster pass the transport of its connection. The transport lets merge
// patches of a few kinds through and nothing else.
//
// # Locking
//
// Lanes has a mutex, which is held for access to a map only. Lane has none: its owner locks.
// Writer has no state that changes.
//
// # Trade-offs
//
// The first calls to a cluster that has just become unreachable each wait for Timeout. Many
// clusters that become unreachable at the same moment can hold all workers for one Timeout,
// once.
package memberwrite
