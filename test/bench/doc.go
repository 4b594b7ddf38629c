// Package bench measures a whole hub against the budgets of the design.
//
// Purpose: figures, each next to its budget, for docs/benchmarks.md. `make bench` uses the
// full counts. The tests of this package use small ones, and check only that the
// measurements work: no test asserts how long something takes.
//
// Contract: the hub is a separate process, cmd/capstan with the flags of the chart, so that
// its memory is measured alone. The program floor, a process too, does the least that is
// needed for the same; its figures show which budgets the machine allows. The management
// cluster is a real API server. The workload clusters are those of
// playground/simulated, in the measuring process. All share the machine, so times are
// those of a machine that does four things at once.
//
// Trade-offs: the cost of a cluster is the slope between two fleets, so that fixed costs do
// not count. It includes the Pipelines' own objects in the hub's cache, because every
// cluster has Pipelines.
package bench
