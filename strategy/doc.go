// Package strategy defines how a promotion is executed: one interface, and the classes of
// errors that decide whether the hub retries. Each strategy is a package below this one.
//
// Contract: a strategy uses no cluster and no Pipeline object. All its input is in the
// Promotion, whose spec does not change. Promote may be called again under the same identity
// at any time, also by another process after a crash. So its action must be idempotent under
// Identity. If the state of the receiver cannot be read, the action happens at least once with
// a stable id.
package strategy
