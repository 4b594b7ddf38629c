// Package event says what the hub tells: one constructor for each kind of news, from
// the object that it is of to a CloudEvent 1.0.
//
// Purpose: the names, attributes and data of all events stand in one place. The
// catalogue (kind.go) is printed to docs/events.md, and the JSON schemas of the data
// are made from the Go types.
//
// # Contract
//
// All is pure: an event is a function of the object's UID and of the transition that it
// tells of. Who makes it again, after a restart or on another replica, gets the same id,
// time and data, so that a receiver that remembers ids takes it once:
//
//	id = hex(sha256(hub UID, object UID, kind, transition, attempt))
//
// Each part goes in with its length before it, so that no two lists of parts are read
// as one. Times are whole seconds in UTC, as the API server keeps them: an object in
// memory and the same object read back give one id.
//
// The time of an event is that of the transition, not that of sending. The subject names
// the object ("pipelines/shop/web"); events of one subject are told in order. The
// extension partitionkey is the cluster's or Pipeline's name, for brokers that spread
// load; severity is info, warning or error.
//
// Kinds are written without prefix ("promotion.succeeded.v1"). An event bears
// DefaultPrefix before that, and Prefixed gives it another. Within a version, data only
// gains optional fields: the schemas allow fields that they do not name.
//
// Data never holds bytes of a Secret. Messages are cut to maxMessage.
//
// Locking: there is none; nothing here changes.
//
// # Trade-offs
//
// A ClusterConnection shows its present state only. What it was before, and so whether
// Ready is a recovery, is for the caller to remember; the id does not depend on it.
// A state that came and went between two looks is not told of.
package event
