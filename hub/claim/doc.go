// Package claim keeps two hubs of one management cluster from serving one namespace.
//
// # Purpose
//
// A named hub serves a list of namespaces. Each of them has a Lease, the claim, which names the hub. Lock is the lock
// of leader election of such a hub: a replica leads only while its hub has all its claims. Hubs reads the claims, so
// that each dashboard can link the others.
//
// # Contract
//
// A claim holds as long as a replica of its hub leads; it is written at each election and not renewed. So the cost of a
// renewal does not depend on the number of namespaces. Another hub may take the claim when the Lease of the first one
// has not changed for its duration, by the clock of the observer: by then its leader has ended. That a Lease was
// released is not enough: a standby of the same hub is about to take it. A hub that does not serve a namespace any more
// deletes its claim.
//
// Of two hubs that want one namespace at the same time, one gets it:
//
//  1. each writes its own Lease before it writes claims, and writes every claim at each election, also one that it has;
//  2. each judges the hub that holds a claim by its Lease as it was when the claim was read, or later, and replaces the claim
//     only at the version that it read. One list of all Leases reads both as they were at one moment.
//
// If a hub is elected before it was judged, it is found alive. If it is elected later, its write of the claim makes the
// other one's fail, or comes after it and finds a claim of a hub that is alive.
//
// A hub without a name may serve all namespaces. It has no claims, no object and no right more than without this
// package. A named hub gives way to it: it reads its Lease, in the same list, before its own election and, while it leads, at the first renewal
// after CheckEvery. A leader that finds a conflict ends at once (Options.Lost).
//
// No other Lease than the hub's own is read by its name: the rights of the chart name the hubs of the present list only, and a
// claim may be of one that was removed.
//
// A namespace that a hub does not serve any more is released at its next election: no replica with the former list
// leads then.
//
// # Locking
//
// Leader election calls a Lock from one goroutine; a Lock has no mutex.
//
// # Trade-offs
//
// Claims are in the namespace of the hubs' Leases, not in the claimed ones, so that the deletion of a namespace does not
// end a hub that serves fifty others. Hubs whose Leases are in different namespaces do not see each other's claims.
package claim
