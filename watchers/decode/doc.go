// Package decode reads the objects of lists and watches as JSON, and of each object only the fields
// that the caller keeps.
//
// Contract: the input may come from a server that is no API server. What is held at a time is
// bounded (MaxObject and what is read ahead), and so are the identities of objects. How many objects
// a list may have, and what is stored of them, is decided by the caller, which gets one object after
// the other.
//
// client-go's decoder reads each event about eight times (to find its end and its kind, and those of
// the object in it, each with a check of the whole). This takes most of the time of a cold start of
// a thousand clusters. This one reads each event twice: an API server ends each event with a
// newline, and begins it with its type. It checks the syntax of all bytes, also of fields that it
// skips.
//
// Locking: there is none. A watch is read by one goroutine.
package decode
