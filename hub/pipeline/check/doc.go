// Package check parses the checks of gates and verifications, and judges their measurements.
//
// # Purpose
//
// A check asks more than health: that the error rate is low, or that no target runs an old revision.
// This package says what a check is, which result a measurement has, and what a sequence of results
// decides. It measures nothing outside the hub: package hub/promotion/measure does.
//
// # Contract
//
// All functions are pure. A cel check is judged by Pipeline.status, so every reader has the same result.
// A target that is not fresh makes the result NoData, unless enough targets of a fleet are: a partition
// neither passes nor fails. Only Fail counts against a revision. A Tally counts results in sequence; every result other than Pass ends a
// sequence of passes, and only Pass ends one of failures. A result is valid for two intervals; passes
// before a longer break do not count.
//
// # Locking
//
// None: all types are values.
//
// # Trade-offs
//
// A Tally is not stored. A new process begins to count anew, so a restart makes nothing earlier, and
// costs at most as many intervals as a check requires.
package check
