// Package schema says what may stand in spec.config of an EventingBackend: one
// Schema for each backend type.
//
// Purpose: validation, defaults, the errors of status.validationErrors, the answers
// of GET /backend and the tables of docs/eventing.md all come from the same
// Keys, so that none of them can tell of another configuration than the rest.
//
// Contract: pure functions of the schema and the configured list. Resolve is the only
// validator: whoever has a Config knows that every value in it is one that the schema
// allows, and every key that has a default has a value. There is at most one error for
// a key; errors stand in the order of spec.config, then missing keys by name. An error
// never shows what may be a credential. The texts of the errors are those of the
// design proposal; they are part of the API.
//
// Locking: a Registry does not change after it was made; all methods may be called by
// several goroutines at a time.
//
// Trade-offs: spec.config is a list of free keys, as the proposal wants it, so that
// the API server itself can check none of them. Data types are few and their syntax is
// Go's and Kubernetes' own (durations such as 30s, quantities such as 256Mi).
package schema
