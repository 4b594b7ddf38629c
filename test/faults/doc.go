// Package faults tests a whole hub with workload clusters that fail.
//
// Purpose: each test is a failure that platform teams know. An unreachable cluster blocks
// the others, a rotated credential stops the watches, or half of the fleet is unreachable
// at a restart. The invariants of each test are: no revision is missed, none is promoted
// twice, healthy clusters are not affected, and all goroutines end.
//
// Contract: the management cluster is a real API server. The workload clusters are the
// simulated API servers of playground/simulated. A test can control each of their
// responses. The tests of that package prove that they respond like real ones. Each test
// has its own hub, restricted to its own namespace.
//
// Trade-offs: times of the hub are shortened, so that an outage takes seconds. No test
// here asserts how long something takes; test/bench measures it.
package faults
