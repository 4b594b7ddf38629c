// Package events simulates the default event buses of EventBridge for playground/aws: rules
// with SQS targets, over the AWS JSON 1.1 protocol, for the real SDK.
//
// Purpose: an event of an instance passes the rules, roles and policies of Capstan's
// templates on its way to the queue. A wrong one fails a test as it fails in AWS.
//
// Contract: a rule belongs to an account and a region. PutEvents accepts events of
// applications; Service.Publish puts an event of AWS itself (source aws.*). Each event is
// compared with all enabled rules of its account and region, and delivered once to each
// target. A target without a role needs a queue whose policy allows events.amazonaws.com. A
// target with a role needs a role of the rule's account that trusts events.amazonaws.com and
// that may send; a queue of another account must also allow the role. An event that cannot
// be delivered is sent to the target's dead-letter queue, with the reason in the attribute
// ERROR_CODE, or dropped. Service.Stats counts both. A pattern has lists of texts only, for
// source, detail-type, account, region, resources and the fields of detail; another form is
// an InvalidEventPatternException. Unknown parameters of a call are a ValidationException.
//
// Locking: Service.mu protects the rules, organizations and statistics. It is not locked
// while another service is called.
//
// Trade-offs: delivery ends before PutEvents responds and has no retries, so that a test
// need not wait for a day. Only the default bus exists, and only queues are targets. The key
// policies of KMS are not simulated: a queue with the key alias/aws/sqs does not allow
// EventBridge, as in AWS, and a queue with another key does.
package events
