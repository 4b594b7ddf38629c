// Package sqs publishes to a queue of Amazon SQS: backends of type sqs with role sink.
//
// Contract: an event is one message: structured CloudEvents JSON, with the message
// attributes ce-type and ce-source, so that a subscriber can filter without parsing the body.
// In a FIFO queue its id is the deduplication id (SQS keeps it for five minutes). Its
// partition key is the message group, unless messageGroupId is set. A message that is larger
// than maxMessageBytes, attributes included, is not sent.
//
// The SDK does not retry here, because the publisher does. Credentials, region and endpoint
// come from hub/awsconfig and from the keys. Without region, the region of queueUrl is used.
//
// An error has the code of AWS but not the message, which may quote what was signed.
//
// Locking: none; the URL of a queueName is read once and kept in one atomic value.
package sqs
