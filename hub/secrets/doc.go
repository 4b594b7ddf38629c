// Package secrets wakes reconcilers when a Secret that they wait for changes.
//
// Purpose: a person mends or rotates a Secret, and whoever needs it looks again at once.
//
// Contract: Watches is a source of one controller. Of a Secret only the metadata are
// watched, by its name, and only while somebody wants it: the right to watch can be given
// by name, and no byte of it comes through. Whatever is seen only says that it is time to
// look: who is woken reads the Secret. A Secret that cannot be watched is logged, and
// tried again for as long as it is wanted.
//
// # Locking
//
// Watches.mu guards everything that changes. Watches are started and stopped under it,
// which begins or cancels a goroutine and waits for none; they end with the controller's
// context.
//
// # Trade-offs
//
// One watch for each Secret: there are dozens at most, and a watch of all would need the
// right to list them.
package secrets
