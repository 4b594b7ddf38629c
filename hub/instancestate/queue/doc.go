// Package queue reads one SQS queue: it passes decoded messages to a Handler, and deletes
// them when the Handler has acknowledged them.
//
// Purpose: no message is lost when SQS, the network or the reader fails, and no call is
// made without need. The package does not depend on Kubernetes.
//
// Contract: a Handler gets every message that can be decoded, as a Delivery. It calls
// exactly one of Ack, Retry and Release, at any time and from any goroutine. The Consumer
// deletes a message only after Ack. Until then it keeps the message invisible, for any
// time. After Retry, SQS delivers the message again with a growing delay. After Release it
// does so too, at first without a delay or with the one that the Handler asks for. With either,
// twenty receives of a message take more than three hours. A Handler that panics causes a Retry.
//
// Only a message that cannot be decoded is dead-lettered by the Consumer: by the queue's
// redrive policy if it has one, else by a send to the configured queue. Without either, the
// Consumer deletes it and passes a sample to the Observer.
//
// A Handler may get the same message more than once: SQS delivers at least once, and a
// delete may fail. When Run ends, acknowledged messages are deleted and all others are made
// visible to other readers, within stopTimeout. A message for which that fails becomes
// visible when its timeout ends. After that, Ack has no effect.
//
// Errors of calls have a Class. Calls are retried with a bounded backoff, without a limit:
// when the queue is created, or a permission is granted, the Consumer recovers.
//
// Locking: Consumer.mu protects the window (messages that were received and are not yet
// settled) and the status. Each batcher has its own mutex. No call of SQS and no Handler
// runs under a mutex.
//
// Trade-offs: delivery is at least once, as SQS does not support exactly once. The limit of
// the window in bytes is checked before a receive, so each poller may exceed it by one receive.
package queue
