// Package instancestate labels AWSMachines, AWSMachinePools, AWSManagedMachinePools and
// ROSAMachinePools with the state of their instances, as the events of AWS report it.
//
// Purpose: when AWS is about to terminate a node, its objects show it within a second.
// This works for every cluster, account and region, for any order of delivery, and when
// replicas restart. The events come through SQS queues (package queue), which
// EventingBackends of type sqs with role source declare. Package message decodes events
// to facts, package owner finds their objects, and package guard merges them into what
// is known. One patch writes the label and the annotations.
//
// # Contract
//
// I1: a message is deleted only when the API server has acknowledged each of its facts,
// or the fact changes nothing, and every handler has reported: those registered in this process, and
// those in other processes that the source declares (declared.go), for a limited time. SQS keeps the
// message while one of those is awaited; this package holds nothing for it.
// I2: a label only moves forward, in the order of package guard. A scheduled change that is over
// no longer counts: the label goes back to what else is known, or is removed.
// I3: a message that is delivered again changes nothing.
// I4: a panic on one message affects only that message.
// I5: a message that is not acknowledged when the process stops stays in the queue.
//
// The names are those of the decision record of Cluster API Provider AWS:
// AWSInstanceStateReconciler, EventBridgeEvent, processMessage, GetEventFromSQS (the
// newest event behind an object's label) and IsEventProcessed (every handler has
// reported). A handler (Handle) is called when the event behind a label changes, and
// reports when it has acted; one in another process reports by an annotation of the object. The Labeler owns all parts. An AWSInstanceStateReconciler
// keeps its index current for one kind.
//
// All of it runs on every replica: the guard and the resourceVersion in each patch make
// that safe, and a label does not wait for a leader election. Only the leader reads
// self-managed clusters; a standby releases events of objects that it does not know.
// Only the leader repairs labels (drift.go), and records test events (testevent.go). The reconciler of EventingBackends reads
// Source and writes the status.
//
// Explain (explain.go) says why an object has its label, from Kubernetes objects only, and what the
// merge of an event would change. It uses the functions of the Labeler, and has no rule of its own.
//
// This package only calls SQS, no other service of AWS. It annotates Machines for
// remediation, in the cluster that has them. In self-managed clusters it writes only labels
// and annotations: the transport of a connection rejects any other patch.
//
// # Locking
//
// lanes, handlers, writer, drift, unread and sources have one mutex each. It only protects access
// to maps. No goroutine holds two of them, except that the writer's is taken under that of the
// handlers, to order the states that watches deliver and those that workers write. The manager
// owns the workers; sources owns the consumers and waits for them when the manager stops.
//
// # Trade-offs
//
// Facts of one object are merged while the object is in work or waits for a worker. No
// fact is delayed to collect others. While a queue has many messages, the package reads
// before it patches, for up to a second (lanes.go): a notice may be among the last ones.
//
// A Kubernetes Event is a second write for each label, and users read only a few: beyond
// a rate limit they are counted and not written.
package instancestate
