// Package decision decides, and does nothing else: whether a Promotion is due (Decide),
// what the next phase of a promotion is (Next), and on which revision an environment
// agrees (Agree, Record).
//
// # Purpose
//
// Every rule that could promote twice, lose a revision or carry a state that was changed
// outside the pipeline is in two tables, which a person can read in one sitting. A test
// of this package prints them as docs/promotion-life.md.
//
// input.go makes the arguments of the tables from the hub's objects: QuestionOf,
// TargetsOf, LedgerOf. The reconcilers and the explanations both use it, so an
// explanation cannot differ from the decision.
//
// # Contract
//
// All functions are pure: no clock, no client, no state. The first row of a table that
// fits decides. The arguments may be old; the caller reads them again, uncached, before
// it acts on the result.
//
// # Locking
//
// None.
//
// # Trade-offs
//
// One promotion per environment is in flight, and the newest wins. A queue that carries
// every revision in turn would starve a slow environment under a fast one.
package decision
