// Package decision contains the decisions about promotions as pure functions: whether a
// Promotion is due (Decide), the next phase of a promotion (Next), and the revision on
// which an environment agrees (Record).
//
// # Purpose
//
// A wrong rule could promote a revision twice, lose one, or promote a state that was
// changed outside the pipeline. All these rules are in two tables, which a person can
// read in one sitting. A test of this package prints them as docs/promotion-life.md.
//
// input.go makes the arguments of the tables from the hub's objects: QuestionOf,
// LedgerOf. The reconcilers and the explanations both use it, so an
// explanation cannot differ from the decision.
//
// # Contract
//
// All functions are pure: no clock, no client, no state. The first matching row of a
// table decides. The arguments may be stale; the caller reads them again, uncached,
// before it acts on the result.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// One promotion per environment is in flight, and the newest wins. A queue that promotes
// every revision in turn would starve a slow environment behind a fast one.
package decision
