// Package sqs is SQS for playground/aws: standard queues over the AWS JSON 1.0
// protocol, to the real SDK.
//
// Purpose: a consumer of queues is tried against what makes SQS hard, on demand: late,
// repeated, lost and reordered messages, batches of which a part fails, dead letters.
//
// Contract: what is answered, limits and error codes included, is as AWS documents it
// for standard queues; FIFO queues are refused. Time (visibility, delays, long polls,
// retention) is the Clock's: with a fake one nothing happens until it steps. A queue
// belongs to a region of the account. Faults (Service.SetFaults) change one queue;
// calls that fail as a whole (throttled, denied, expired) are Rules of the aws.Server,
// or Faults.Refuse for one queue alone. Randomness comes from a seed.
//
// Locking: Service.mu guards the queues and what is in them. It is never held while a
// poll waits or bytes are written.
//
// Trade-offs: a receive looks at the whole queue, where AWS asks a sample of its
// servers: that a short poll may return nothing is not shown. Deleting and creating a
// queue again takes no 60 seconds. Messages and bytes of a queue are bounded
// (OverLimit), where AWS' are not.
package sqs
