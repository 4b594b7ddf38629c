// Package instancestate labels AWSMachines and AWSMachinePools with what AWS says of
// their instances.
//
// Purpose: a node is about to be taken away; the objects say so in a second, for every
// cluster, account and region, whatever order AWS delivers in and whatever dies
// meanwhile. AWS' events come through queues of SQS (package queue), which are declared
// as EventingBackends of type sqs with role source; they become facts (message), find
// their objects (owner), are merged into what is known of them (guard) and written as
// one patch of label and annotations.
//
// # Contract
//
// I1: a message is deleted only when the API server has acknowledged every fact of it,
// or every fact was seen to change nothing, and every registered handler has reported.
// I2: a label moves forward only, in the order of guard. I3: a message that comes again
// changes nothing. I4: a panic on one message is that message's alone. I5: what is not
// acknowledged at the end stays in the queue.
//
// The words are those of the decision record that this grew from: EventBridgeEvent,
// processMessage, GetEventFromSQS (the newest event behind an object's label),
// IsEventProcessed (every handler has reported). A handler (Handle) is woken when the
// event behind a label changes, and reports when it has acted.
//
// All of it runs on every replica: the guard and the resourceVersion in each patch make
// that safe, and no lease stands between a notice and its label. Only the leader sees
// into self-managed clusters, so that what is unknown to a standby is left for it. The
// leader alone repairs labels (drift.go). The status of a source is written by the
// reconciler of EventingBackends, which asks Source.
//
// Nothing here asks AWS anything but for messages. Remediation concerns Machines of the
// management cluster alone: into self-managed clusters goes nothing but labels and their
// annotations, and the transport of a connection lets no patch of a Machine through.
//
// # Locking
//
// lanes, handlers, writer, drift and sources have a mutex each, held for access of maps
// only and never two at once. Workers are owned by the manager; consumers by sources,
// which waits for them when the manager stops.
//
// # Trade-offs
//
// Events are merged for an object that is at work or waits for a worker, not on purpose
// delayed: what is alone does not wait. Where a queue has much to be read, reading goes
// before patching for up to a second (lanes.go), for a notice may be behind it all.
//
// Events of Kubernetes are a second write for each label, and people read a few of
// them: beyond a bucket they are counted, not made.
package instancestate
