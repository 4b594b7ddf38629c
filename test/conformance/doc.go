// Package conformance runs the whole hub against real API servers and holds it to
// what weaveworks pipeline-controller did for its users, and to what a bad object
// must not do.
//
// One hub serves all tests, as it would serve all teams: a test that upset another
// would show.
package conformance
