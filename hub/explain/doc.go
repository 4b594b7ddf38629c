// Package explain says of a Pipeline what each environment runs, what is in flight,
// and in one sentence why the next thing is not happening; and of all clusters and
// Pipelines which need looking at, the worst first (Fleet).
//
// Purpose: the question that is asked at three in the morning. The answer is put
// together from the hub's own objects (Pipeline, Promotions, ClusterConnections), so
// that it needs no right but to read them, and no cluster that answers.
//
// Contract: a pure function of those objects and a time. What is due is asked of
// hub/pipeline/decision, so that the explanation is of what the hub does, not of
// what this package takes it to do. Where something is to be typed, the commands are
// whole and can be copied. A Pipeline of any state has an explanation.
//
// Locking: none.
//
// Trade-offs: it explains what the objects say. Where the hub does not run, they are
// old; what can be told of that from them (an edit that was not seen) is told.
package explain
