// Package outbox publishes events about the hub's own objects. After a restart it publishes
// again every event that no record shows as settled.
//
// Purpose: Promotions, ClusterConnections and EventingBackends are the only journal. The
// events of an object are derived from the object, and every process derives the same ids
// (package event). One annotation of the object, RecordAnnotation, records which backends
// have settled which events.
//
// # Contract
//
// An Outbox acts while its process leads. Start reads the objects, makes the publisher
// walk every queue once, and publishes each edge that the watch delivers. On a standby,
// Pending returns no events.
//
// Pending returns, for one backend, the events of all objects that are not recorded as
// settled there, the oldest first. It omits events from before the EventingBackend was
// created, so that a new backend does not get the past. 10 seconds are added for clocks
// that differ. It also omits events that are older than Options.Horizon. Events of one
// object keep the order of the object, whatever their times are.
//
// An event of a kind that a backend does not select is noted. The note is recorded together
// with the next event that the backend settles of the object. If the backend selects more
// kinds later, it does not get old events after newer ones.
//
// Settled notes that a backend is done with an event. The record is written later, after
// Options.RecordDelay, in one patch for all events of the object. In a burst, the records of
// Promotions are written within about a minute, because each write costs the API server as
// much as the edge itself. An event that was published but not recorded when the process
// died is published again under the same id.
//
// States (of a cluster's connection, of a backend) are published when they change. The
// record holds the state that was published last, and it is written before the event is
// published. A hub that dies between Unreachable and Ready therefore publishes a recovery after
// its restart. While the record cannot be written, the event waits, with a metric; the newest
// state replaces it.
//
// # Why an annotation
//
// A cursor for each backend would cost fewer writes. But a cursor needs times that only
// increase, and these times come from the clocks of several machines: an event that appears
// behind the cursor is lost. A record on the object says of each event whether it was
// settled. Only the outbox writes it, and the owners of the status do not touch it in their
// patches. If a write is lost, or an earlier leader overwrites it, an event is published
// twice; it is never lost. The record is deleted with its object.
//
// # Locking
//
// Outbox.mu guards all data about the objects; nothing is called while it is held.
// Outbox.publishing keeps new events behind pending ones. It is held over the publisher's
// Publish and Resync, which do not block, and is taken before mu.
// Metrics are collected under mu. The recorder's workers and the check for expiring credentials
// end with Start.
//
// # Trade-offs
//
// If an object is deleted, its unpublished events are lost, except those in the publisher's
// queues. A Promotion shows only the events of its current run: events of an earlier run
// that no backend got in time are not published any more. A change of a state costs two writes
// of the record and waits for the first, a few milliseconds. If a cluster flaps within one second
// while the hub dies, one event may have the id of an earlier one, and receivers that remember ids
// ignore it. If the first expiry of a cluster's credentials is not recorded yet, a rotation that
// happens while no hub runs has no event.
package outbox
