// Package secretwatch wakes the users of Secrets when a Secret changes.
//
// Purpose: after a user fixes or rotates a Secret, the code that needs it reads it at once.
//
// # Contract
//
// A waiter is the thing that is woken: a cluster, or an object of a controller. It has at most
// one Secret, which Want sets and Drop removes. Only the metadata of Secrets are watched:
// no byte of a Secret's data is received. A Secret is watched only while a waiter wants
// it. A wake only means that something may have changed: the waiter reads the Secret.
//
// ByNamespace watches each namespace that has a wanted Secret, once. It needs list and
// watch on the Secrets of that namespace, and no right outside it. ByName watches each
// wanted Secret by its name, so that the rights can be restricted by resourceNames.
//
// A watch that fails, for example with 403, is logged with its namespace and tried again
// while a waiter wants it. It does not affect the others. Its waiters are not woken, and
// Version is not known.
//
// Watches with a nil client watch nothing and wake no waiter.
//
// # Locking
//
// Watches.mu guards which Secrets are wanted and which watches exist. Want and Drop start
// and cancel goroutines under it, which never waits; the informer is read, and waiters
// are woken, without it. The goroutines end with the context of Start, or when no waiter
// wants their Secrets; Wait waits for them.
//
// # Trade-offs
//
// ByNamespace keeps the name and resourceVersion of every Secret of a namespace in
// memory, about half a kilobyte each. ByName takes one watch for each Secret.
package secretwatch
