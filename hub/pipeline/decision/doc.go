// Package decision decides, and nothing else: whether a Promotion is due
// (Decide), what a promotion's life does next (Next), and what an environment
// agrees on (Agree, Record).
//
// Purpose: everything that could promote twice, lose a revision or carry a
// hand-made state is in two tables that a person can read in one sitting; they
// are printed as docs/promotion-life.md by a test of this package.
//
// Contract: pure functions of their arguments: no clock, no client, no state.
// The first row of a table that fits wins. What the functions are given may be
// old; whoever acts on the result looks again, uncached, first.
//
// Trade-offs: one promotion per environment is in flight, and the newest wins.
// A queue that carries every revision in turn would starve a slow environment
// under a fast one.
package decision
