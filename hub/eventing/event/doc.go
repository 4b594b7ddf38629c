// Package event makes the CloudEvents 1.0 of the hub. It has one constructor for each
// kind of object.
//
// Purpose: the names, attributes and data of all events are defined in one place.
// docs/events.md is generated from the catalogue (kind.go), and the JSON schemas of the
// data from the Go types.
//
// # Contract
//
// All functions are pure: an event is a function of the object's UID and of one
// transition of the object. The same event made again, after a restart or on another
// replica, has the same id, time and data. A receiver that remembers ids therefore
// processes it once:
//
//	id = hex(sha256(hub UID, object UID, kind, transition, attempt))
//
// Each part is hashed with its length before it, so that different lists of parts have
// different ids. Times are whole seconds in UTC, as the API server stores them: an object
// in memory and the same object read back result in one id.
//
// The time of an event is that of the transition, not that of sending. The subject names
// the object ("pipelines/shop/web"); events of one subject are published in order. The
// extension partitionkey is the name of the cluster or Pipeline, for brokers with
// partitions. The extension severity is info, warning or error.
//
// Kinds have no prefix ("promotion.succeeded.v1"). The type of an event is DefaultPrefix
// and the kind; Prefixed replaces the prefix. Within a version, only optional fields are
// added to the data: the schemas allow additional fields.
//
// Data never contains content of a Secret. Messages are cut to maxMessage.
//
// Locking: none; all values are immutable.
//
// # Trade-offs
//
// A ClusterConnection has only its present state. The caller remembers the previous
// state, which decides whether Ready is a recovery; the id does not depend on it. A state
// that started and ended between two reconciles is not published.
package event
