// Package message decodes the messages that AWS sends to a queue into facts.
//
// Purpose: this is the only package that knows the formats of AWS' events. Inputs are
// EventBridge events, notifications that an Auto Scaling group sends to a queue directly,
// and both of them wrapped by SNS. All become the same Facts: the instance or group, the
// label value, the time and the rank.
//
// Contract: Decode is a pure function of the body and of the time at which SQS received
// it, so that a message that is delivered twice decodes to the same facts. A body is one of
// three things: facts to apply, a message to ignore, or malformed (ErrMalformed). Only
// malformed messages may be dead-lettered. Decode does not parse the ARNs of instances,
// which have several formats; the ARN of a group is used whole, as a key. Facts have valid
// label values. Free text of AWS is cut, and only used in Details.
//
// A test event of `capstan aws-eventing check` is a message to ignore, with an id.
//
// docs/instance-state.md describes the events and the meaning of each label value.
//
// The end of a scheduled change is a fact (Over), like its announcement.
//
// Trade-offs: an event of an unknown type is ignored. A spot notice with an unknown action
// is still a spot notice.
package message
