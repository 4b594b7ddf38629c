// Package goaws holds tests against goaws, an SQS by other people: what
// playground/aws/sqs simulates and what hub/instancestate/queue does with a queue are
// the same there, less what goaws lacks.
package goaws
