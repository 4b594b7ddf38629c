// Package strategy is how a promotion is carried out: one interface, one package
// beside it for each way, and the classes of errors by which the hub tells what
// heals by itself from what does not.
//
// Contract: a strategy knows no cluster and no Pipeline object. All that it needs
// stands in the Promotion, whose intent cannot change. Promote may be called
// again under the same identity at any time, also by another process after a
// crash: the act must be idempotent under Identity, or be at least once with a
// stable id where the receiver cannot be asked.
package strategy
