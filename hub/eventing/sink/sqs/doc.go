// Package sqs publishes to a queue of Amazon SQS: backends of type sqs with role sink.
//
// Contract: an event is one message: structured CloudEvents JSON, with the attributes
// ce-type and ce-source beside it, so that a subscriber can choose without reading. In a
// FIFO queue its id is the deduplication id (SQS remembers it for five minutes) and its
// partition key the message group, unless messageGroupId is set. A message that is
// larger than maxMessageBytes, attributes included, is not sent.
//
// The SDK does not retry here: the publisher does. Credentials, region and endpoint are
// those of hub/awsconfig and of the keys; without region that of queueUrl is used.
//
// An error names AWS' code and not its message, which may quote what was signed.
//
// Locking: none; the URL of a queueName is asked for once and kept in one atomic value.
package sqs
