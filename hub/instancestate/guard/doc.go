// Package guard decides whether a fact changes a label: it is what is remembered
// beside the label, and how facts are merged into it.
//
// Purpose: AWS delivers in any order, more than once, and after a restart again. The
// label must come out the same.
//
// Contract: merging is commutative, associative and idempotent: what a State says
// depends on the set of facts that were merged, never on their order or number. So a
// label moves forward only, redelivery changes nothing, and two replicas that merge
// different halves agree once each has seen both. All is pure; the State is stored as
// an annotation in the same patch as the label, under the object's resourceVersion.
//
// All of it is of one instance: an object that gets another begins anew with that one's
// first fact, and one that is moved or restored with its instance keeps what is known.
// Which instance an object stands for, and so whose facts are merged, its caller knows.
//
// The rules of an instance: the newest state wins, by time and, in one second, by
// rank; terminated is the last word; a notice counts until a newer state; of notices
// that count the gravest is shown. A group shows its newest event.
//
// Trade-offs: the single mark (time, rank) of the last event would not do: where a spot
// notice hides a newer recommendation to rebalance, and an older state then comes in
// between, the label would depend on the order. Hence the newest state and, of each kind
// of notice, the newest that is newer than it: five records at most.
package guard
