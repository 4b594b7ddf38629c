// Package backend reconciles EventingBackends. It opens a connection for each valid
// configuration, gives it to the publisher, and writes the object's status.
//
// Purpose: the status shows, key by key, which mistakes an EventingBackend has, whether
// the broker answers, and whether events reach it.
//
// # Contract
//
// The reconciler runs on every replica, because every replica publishes events: the
// leader those of objects, and each replica those of the AWS instances whose messages it
// reads. On the leader, the reconciler is the only writer of the status of every
// EventingBackend, of its finalizer, and of Events about it. The status therefore shows
// the state of the leader. hub/instancestate reads queues (type sqs, role source); the
// reconciler gets their state from Options.Reading.
//
// A configuration is used when the schema allows it and its Secret can be read and
// parsed. The publisher gets the first one at once, so that events queue from then on. It
// gets each later one when its broker has answered. Until then, and while the newest
// configuration is wrong, the previous one stays in use. The queue is kept when the
// configuration changes. The status is written before the change: eventingReady is never
// true while one configuration replaces another, nor for one that is not in use.
//
// Each reconcile reads the Secret. Its metadata are watched, so that a change triggers a
// reconcile at once. Only the sink keeps the content of a Secret; this package keeps a
// digest.
//
// Pure functions derive the conditions from facts (status.go). Messages do not change
// while a fault lasts, so that the status is written, and an Event created, on
// transitions only. A new leader does not change the status until it has pinged the
// broker itself.
//
// A finalizer keeps a deleted EventingBackend while the leader's queue empties, for
// Timings.DrainGrace at most. Then an Event reports how many events were dropped.
//
// # Goroutines and locking
//
// Each connection has one goroutine that pings (connection.go). It ends when the
// connection is replaced, or with Start. One worker at a time processes an
// EventingBackend. Reconciler.mu guards those fields of its entry that callbacks also
// use. No lock is held during a call to another component.
//
// # Trade-offs
//
// The last good configuration is in the memory of each replica. When all replicas have
// restarted while the object is wrong, nothing is published to it. It is used also after its
// Secret was deleted, but not after the annotation of its Secret excluded its host: then events wait.
//
// A broker that refuses pings but would accept events does not get the changed
// configuration; the status says why. The status remembers keys that cannot be changed
// (fixedConfig). An object that is restored without its status can change them once.
package backend
