// Package allowedhosts judges to which hosts the credentials of a Secret may be sent: those of its annotation
// capstan.dev/allowed-hosts.
//
// Purpose: who names a Secret in a Pipeline or an EventingBackend names the address too. The annotation lets the owner
// of the Secret limit the addresses. Pull requests and event backends have the same rule.
//
// Contract: a Rule is made from the annotations of a Secret, and is comparable: a changed annotation is another Rule.
// Check is pure.
//
// Locking: none.
//
// Trade-offs: one element that is not a pattern refuses all hosts, because the owner meant to limit them.
package allowedhosts
