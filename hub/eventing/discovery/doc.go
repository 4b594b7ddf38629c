// Package discovery serves the types of event backends, their keys, and the schemas of
// events.
//
//	GET /backend          the types: ["nats","beb","sqs","http","flux","slack","msteams","commitstatus"]
//	GET /backend/{type}   {"type": ..., "config": [...]}: the keys of one type
//	GET /schemas/{kind}   the JSON schema of the data of a kind of event
//
// Purpose: tools find the supported types and keys without the documentation.
//
// Contract: the answers come from hub/eventing/schema and hub/eventing/event, which also
// validate, set defaults and generate the docs. They contain no secret and no data of the
// fleet, so that they need no authentication. Any other path is 404, and any method other
// than GET and HEAD is 405. Errors are JSON objects with the field error, because all
// answers are JSON.
//
// Locking: none; the answers are made from immutable values.
//
// Trade-offs: the server has a port of its own, so that a NetworkPolicy can allow it
// separately.
package discovery
