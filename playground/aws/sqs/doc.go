// Package sqs simulates SQS for playground/aws: standard queues over the AWS JSON 1.0
// protocol, for the real SDK.
//
// Purpose: tests of a queue consumer can produce the difficult cases of SQS: late,
// repeated, lost and reordered messages, batches that fail in part, and dead letters.
//
// Contract: responses, including limits and error codes, are those of the AWS
// documentation for standard queues; FIFO queues are rejected. All times (visibility,
// delays, long polls, retention) use the Clock: with a fake one nothing happens until it
// steps. A queue belongs to an account and a region. Faults (Service.SetFaults) change one
// queue. Calls that fail as a whole (throttled, denied, expired) are Rules of the
// aws.Server, or Faults.Refuse for one queue. Options.Seed determines all random choices.
//
// Locking: Service.mu protects the queues and their messages. It is never locked while a
// poll waits or bytes are written.
//
// Trade-offs: a receive reads the whole queue. AWS reads a sample of its servers, so a
// short poll may return nothing; this is not simulated. A deleted queue can be created
// again at once, without AWS' 60 seconds. The policy of a queue is checked when it is set,
// and applies to senders that are services of AWS (package events), but not to callers.
// The number and bytes of messages in a queue are limited (OverLimit); with AWS they are
// not.
package sqs
