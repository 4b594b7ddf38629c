// Package backend reconciles EventingBackends: what the object says becomes a connection
// that the publisher publishes through, and how that goes becomes the object's status.
//
// Purpose: an administrator who writes an EventingBackend sees key by key what is wrong
// with it, whether the broker answers, and whether events reach it.
//
// # Contract
//
// The reconciler runs on every replica, for each has something to tell: what the leader
// does, and what AWS says of instances, which whichever replica reads the message tells.
// On the leader it is the only writer of the status of every EventingBackend, of its
// finalizer, and of Events about it; so the status is how the leader fares. A queue that is read (type sqs, role source) is read by
// hub/instancestate; the reconciler asks it how that goes (Options.Reading).
//
// A configuration is used when the schema allows it and its Secret can be read and
// understood. The first one is given to the publisher at once, so that events queue from
// then on; each later one when its broker has answered, and until then the one before it
// stays in use: so it also does while the newest is wrong. The queue stays over the
// change. The status is written before: eventingReady is never true while a configuration
// takes the place of another, nor of one that is not in use.
//
// The Secret is read at each look, and its metadata are watched, so that a change is seen
// at once. What a Secret holds stays in the sink; here is only its digest.
//
// Conditions follow from facts by pure functions (status.go). Messages stay the same while
// a fault lasts, so that the status is written, and an Event made, on transitions only.
// A replica that takes over leaves the status as it is until it has asked itself.
//
// A deleted EventingBackend is held by a finalizer while the leader's queue empties
// itself, for drainGrace at most; an Event tells how many events were dropped then.
//
// # Goroutines and locking
//
// Each connection has one goroutine that pings (connection.go); it ends when the
// connection is replaced, or with Start. One worker at a time has an EventingBackend;
// what it keeps of it (entry) is guarded by Reconciler.mu where callbacks touch it, too.
// No lock is held over a call of anything.
//
// # Trade-offs
//
// The last good configuration is in the memory of each replica: when all have ended, and
// the object is still wrong, nothing is published to it.
//
// A broker that refuses to be pinged and would take events stays without the changed
// configuration; the status says why. Keys that cannot be changed are remembered in the
// status (fixedConfig): who restores an object without its status may change them once.
package backend
