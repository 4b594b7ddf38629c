// Package dryrun is the gate between a hub in dry run and the API server of the management cluster.
//
// # Purpose
//
// A hub in dry run must change nothing but what it shows. Gate wraps the transport of the one rest.Config from which the
// hub makes all its clients, so that a write that is not in the table of writes.go never leaves the process,
// whatever part of the hub attempts it, and with whatever rights it runs.
//
// # Contract
//
// Gate lets every read pass, and these writes: status.dryRun of Pipelines, ClusterConnections, Events, the leases of the hub,
// and reviews of tokens and of access, which store nothing. Every other request fails with a *RefusedError, which
// is logged and counted: it is a fault of the hub, because parts that write are not started in dry run.
//
// # Locking
//
// None: a gate has no state.
//
// # Trade-offs
//
// The gate reads the body of a patch of a Pipeline's status, because another controller owns the other fields of
// that status. All other bodies pass unread.
package dryrun
