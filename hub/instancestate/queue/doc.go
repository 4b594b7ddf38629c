// Package queue reads one queue of SQS: it hands out what the messages say and deletes
// them when they are done with.
//
// Purpose: nothing is lost and nothing is done for nothing, whatever SQS, the network or
// the reader do: that is one job, and it knows no Kubernetes.
//
// Contract: a Handler gets every message that can be decoded, as a Delivery, and calls
// exactly one of Ack, Retry and Release, at any time and from any goroutine. A message is
// deleted only after Ack. Until then it is kept invisible, however long that takes; after
// Retry it comes again, later from time to time; after Release too, at once at first. A
// message outlives three hours of either before twenty receives are used up, however
// often it is tried. A message that cannot be decoded is
// dead-lettered, and no other ever is: by the queue's redrive policy, if it has one;
// else into the configured queue; else it is deleted, and shown to the Observer. A
// Handler that panics has asked for a Retry.
//
// The same message may be handed out more than once: SQS does so by itself, and a delete
// that does not reach it is one more reason. When Run ends, what was acknowledged is
// deleted and everything else is made visible to other readers at once, both within
// stopTimeout; what is missed then comes again by itself. After that, Ack does nothing.
//
// Errors of calls are told apart by Class and repeated with a bounded backoff, without
// end: a queue that is created, or a permission that is given, heals the Consumer.
//
// Locking: Consumer.mu guards the window (what was received and is not yet settled) and
// the status; each batcher has a lock of its own. No call and no Handler is under one.
//
// Trade-offs: at least once, not exactly once: SQS cannot. The window's bound on bytes is
// looked at before a receive, so it may be exceeded by one receive of each poller.
package queue
