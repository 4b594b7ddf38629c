// Package conformance runs the whole hub with real API servers. Its tests prove two things:
// the hub behaves like weaveworks pipeline-controller, and an invalid object does not
// affect other objects.
//
// One hub serves all tests, as one hub serves all teams. So a test that affects another
// fails.
package conformance
