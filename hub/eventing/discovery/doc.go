// Package discovery answers which event backends there are, what they take, and what
// events look like.
//
//	GET /backend          the types: ["nats","beb","sqs","http"]
//	GET /backend/{type}   {"type": ..., "config": [...]}: the keys of one type
//	GET /schemas/{kind}   the JSON schema of the data of a kind of event
//
// Contract: what is answered is what hub/eventing/schema and hub/eventing/event hold:
// the same that validates, defaults and is printed to the docs. It holds no secret and
// nothing of the fleet, so anybody may ask. Any other path is 404, any method but GET and
// HEAD 405; both answers are JSON objects with the field error, as all answers here are
// JSON.
//
// Locking: none; answers are made from what does not change.
package discovery
