// Package conformance runs the whole hub with real API servers. Its tests prove two things:
// the hub behaves like weaveworks pipeline-controller, and an invalid object does not
// affect other objects.
//
// One hub serves all tests, as one hub serves all teams. So a test that affects another
// fails.
//
// Scenarios of pipeline-controller's own tests are numbered C1 to C31, and the comment of a
// test names those that it covers:
//
//   - C1 to C9, clusters, applications and promotions: conformance_test.go and weave_test.go
//   - C10, the end of watches: watchers
//   - C11 to C24, the promotion hook: hook_test.go, hook_approval_test.go, hub/serving
//   - C25, retries: hub/promotion
//   - C26 to C31, strategies and Git services: weave_test.go (the Event), strategy/...
//
// Where the hub differs on purpose, the test expects what
// docs/migrating-from-pipeline-controller.md says.
package conformance
