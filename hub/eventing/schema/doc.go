// Package schema defines the keys of spec.config of an EventingBackend: one Schema for
// each backend type.
//
// Purpose: validation, defaults, the errors of status.validationErrors, the answers of
// GET /backend and the tables of docs/eventing.md all come from the same Keys. They
// cannot contradict each other.
//
// Contract: all functions are pure functions of the schema and the configured list.
// Resolve is the only validator. In a Config, every value is allowed by the schema, and
// every key that has a default has a value. There is at most one error for a key. Errors
// are in the order of spec.config, then missing keys by name. An error never contains a
// value that may be a credential. The texts of the errors are those of the design
// proposal; they are part of the API.
//
// Locking: a Registry is immutable. Several goroutines may call all methods.
//
// Trade-offs: spec.config is a list of free keys, as in the design proposal, so that the
// API server cannot check them. There are few data types, with the syntax of Go and
// Kubernetes (durations such as 30s, quantities such as 256Mi).
package schema
