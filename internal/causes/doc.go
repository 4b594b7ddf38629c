// Package causes groups many objects that have a problem by its cause.
//
// Purpose: in a large fleet one cause affects many objects: 60 clusters whose Secrets the hub may not read
// are one problem. The dashboard and `capstan status` show one row for each cause, with the same rule.
//
// Contract: two items belong to one group if their keys are equal. The caller makes the key of what the
// problem is: a state, a reason and the Shape of a message. Groups are sorted: the worst first, then the
// oldest, then the one with the most items. The result depends only on the items, not on their order. All
// functions are pure.
//
// Locking: none.
//
// Trade-offs: Shape leaves out every word with a digit, also a status code. Messages that differ only in
// such words are the same cause; the reason, which is a part of the key, tells apart what must be.
package causes
