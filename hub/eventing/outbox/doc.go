// Package outbox tells the publisher what happens to the hub's own objects, and after a
// restart tells again what nobody is recorded to have got.
//
// Purpose: Promotions, ClusterConnections and EventingBackends are the only journal.
// What happened to an object is derived from it, under the same ids by every process
// (package event); who got it stands in one annotation of the object, ToldAnnotation.
//
// # Contract
//
// An Outbox acts while its process leads: Start sees the objects, has every queue of the
// publisher walked once, and tells of edges as the watch brings them. On a standby
// Pending names nothing.
//
// Pending names, for one backend, the events of all objects that are not recorded to be
// settled there, the oldest first. It leaves out what happened before the EventingBackend
// was created, so that a new backend is not told of the past (but for some seconds by
// which clocks may differ), and what is older than Options.Horizon. Events of one object
// keep its order, whatever their times.
//
// What a backend does not want is noted, and recorded with what else it settles of the
// object: when it wants more kinds one day, it does not get old events after newer ones.
//
// Settled notes what a backend is done with; the record is written a moment later, one
// patch for all that was settled of an object in between. In a burst those of Promotions
// are written at leisure, within a minute or so: each costs the API server as much as the
// edge that it is of. What was published and not recorded when the process died is
// published again, under the same id.
//
// States (of a cluster's connection, of a backend) are told when they change, and the
// record says which one was told last: a hub that dies between Unreachable and Ready
// tells of a recovery afterwards, not of a first contact.
//
// # Why an annotation
//
// A cursor for each backend would cost fewer writes, but it needs times that only grow,
// and these come from several machines' clocks: whatever is behind the cursor when it
// appears is lost. A record on the object says of each event whether it was settled. It
// is written beside the status' owners, whose patches do not touch it, and nobody else
// writes it; a write that is lost, or is overtaken by that of an earlier leader, makes an
// event come twice and never not at all. It goes with its object.
//
// # Locking
//
// Outbox.mu guards all that is known of the objects; nothing is called while it is held.
// Outbox.telling keeps news behind what is pending; it is held over the publisher's Tell
// and Ask, which do not block, and is taken before mu.
// The recorder's workers and the look at expiring credentials end with Start.
//
// # Trade-offs
//
// An object that is deleted takes what was not told of it along, but for what is in the
// publisher's queues. Of a Promotion the events of its present life are known: those of
// an earlier one that no backend got in time are not told any more. A cluster that
// flaps within one second while the hub dies may be told of once too few.
package outbox
