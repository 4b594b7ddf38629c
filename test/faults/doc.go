// Package faults holds a whole hub against workload clusters that fail.
//
// Purpose: what a platform team fears in a hub (a dead cluster that stalls the
// others, a rotated credential that blinds it, a restart that finds half the fleet
// away) as scenarios, each a test with the invariants it keeps: no revision is
// missed, none is promoted twice, healthy clusters notice nothing, goroutines
// return.
//
// Contract: the management cluster is a real API server. The workload clusters are
// those of test/bench/simulated, simulated API servers whose every answer can be
// directed; that they answer as real ones do is that package's own test. Each test
// has a hub of its own, restricted to a namespace of its own.
//
// Trade-offs: times of the hub are shortened, so that an outage is seconds. Nothing
// here asserts how long something takes; test/bench measures it.
package faults
