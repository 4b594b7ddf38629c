// Package netguardtest holds the addresses that every user of netguard must refuse.
//
// Purpose: connections to clusters, Git services and event backends prove the same
// policy. Their tests run over one table, so a package that stops using the policy
// fails for every address.
//
// Contract: Forbidden holds each kind of address of the policy at least once, in
// each form in which it can be written. Test code alone imports this package.
//
// Locking: none; the tables are never written.
//
// Trade-offs: the table lists addresses by hand. A table that netguard computed
// from its own rules would prove nothing.
package netguardtest
