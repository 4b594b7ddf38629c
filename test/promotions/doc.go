// Package promotions tests the promotion of a revision through the environments of a
// Pipeline, across the packages that take part in it.
//
// Purpose: the reconcilers of hub/pipeline and hub/promotion run together over a real
// API server, with the strategies notification and pull request, with killed hubs, and
// with two hubs at once. The tests use only the public API of these packages.
//
// Contract: each test has a namespace, an index, a clock and a Git repository of its
// own, so all tests run in parallel on one API server. The observations of workload
// clusters are written into the index by the test. Random tests print the seed that
// repeats them (CAPSTAN_SEED).
//
// Trade-offs: `make test` kills hubs at each distinct call and runs few random
// histories; `make soak` kills them at every call and runs many. docs/testing.md lists
// the counts.
package promotions
