// Package eventnote bounds the notes of Events.
//
// Purpose: an API server refuses an Event whose note is longer than 1,024 bytes, and the
// client drops it without a retry. Notes contain messages of clusters, Git services and AWS,
// which have no bound.
//
// Contract: a Recorder made here records each Event, with a note of at most Max bytes of
// valid UTF-8. All recorders of the program are made here (hub.newManager).
//
// Locking: none.
//
// Trade-offs: the note is formatted once more than without the package.
package eventnote
