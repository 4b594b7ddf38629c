// Package guard decides whether a fact changes a label. It defines the records that are
// stored with the label, and how facts are merged into them.
//
// Purpose: AWS delivers events in any order, more than once, and again after a restart.
// The label must always be the same.
//
// Contract: merging is commutative, associative and idempotent: an Instance or Group
// depends on the set of merged facts, never on their order or number. So a label only
// moves forward, redelivery changes nothing, and two replicas that merge different halves
// agree when each has merged both. All functions are pure. The caller stores the result as
// an annotation in the same patch as the label, with the object's resourceVersion.
//
// An Instance is about one instance. When an object gets another instance, the first fact
// of that instance replaces what was known. An object that is moved or restored with its
// instance keeps what is known. The caller decides which instance an object has, and so
// which facts are merged.
//
// The rules of an instance: the newest state wins, by time and, within one second, by
// rank; terminated is final; a notice is valid until a newer state; the label shows the
// valid notice of the highest rank. A scheduled change has facts of its own: of each one the
// newest counts, and one that is over hides only itself. A group shows its newest event that
// is not over. A label that must not exist is one that nothing is known for but ends.
//
// A group whose object does not name it keeps the newest ARN that facts of it have named (Learn).
//
// Trade-offs: the time and rank of the last event alone are not enough. When a spot
// notice hides a newer rebalance recommendation, and a state arrives that is between
// them, the label would depend on the order. So an Instance has the newest state and, of
// each kind of notice, the newest one that is newer than the state: at most four records, and at
// most 64 of scheduled changes.
package guard
