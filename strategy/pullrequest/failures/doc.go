// Package failures is the table of the failures of Git services, of Git and of the edited
// files: what is observed, how fast the hub retries, when the promotion is Failed, and what
// fixes it.
//
// Purpose: one place decides what an error means. The strategy asks Of for the class of an
// error; docs/git-failures.md is printed from the same rows.
//
// Contract: every provider.Class and every gitrepo.Class is in exactly one row, so that a
// new one cannot be forgotten. A context's end is Transient.
//
// Locking: none; the table is constant.
//
// Trade-offs: an error that is retried before it ends the promotion is shown late as
// Failed. Until then the promotion's message names it, and when it ends the promotion.
package failures
