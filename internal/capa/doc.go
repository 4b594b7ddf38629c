// Package capa holds the rules about objects of Cluster API and of Cluster API Provider
// AWS (CAPA) that more than one package needs.
//
// Purpose: groups and kinds (kinds.go), fields, references, owners and the pause
// (object.go), the region and the identity of a cluster (place.go), and the IAM role that
// an identity allows, with the
// roles by which it is assumed (identity.go). hub/annotator, hub/instancestate, hub/dashboard and
// clusters use it. docs/decisions/0016 gives the reasons for the rules.
//
// # Contract
//
// The functions read objects through the client.Reader of the caller and keep nothing.
// They accept every served version of an object: a missing field, or a field of another
// type, counts as empty.
//
// An error of the reader is returned as it is, except that the object does not exist or
// that its kind is not installed (Absent). A temporary error never counts as absence: it
// could lead to the region of another object.
//
// # Locking
//
// The package has no state.
//
// # Trade-offs
//
// Objects stay unstructured (docs/decisions/0017). Names of Cluster API come from the
// constants of its API package. The names of CAPA are constants here, because the CAPA
// module is not a dependency.
package capa
