// Package bench measures a whole hub against the budgets of the design.
//
// Purpose: figures, each beside its budget, for docs/benchmarks.md. `make bench`
// takes the full counts; the tests of this package take small ones, and look only
// at whether the measurements work: nothing here asserts how long something takes.
//
// Contract: the hub is a process of its own (this test binary, started again), with
// the default options and garbage collection, so that its memory is its own. The
// management cluster is a real API server, the workload clusters are those of
// test/bench/simulated, in the measuring process. All share the machine, so times are
// those of a machine that does four things at once.
//
// Trade-offs: what a cluster costs is the slope between two fleets, so that what is
// there once does not count; it includes the Pipelines' own objects in the hub's
// cache, since there is no cluster without them.
package bench
