// Package promotions has the rules about the Promotions of a Pipeline that several packages
// need: how they are selected, named, indexed and cached, and when nothing is left to do.
//
// # Purpose
//
// The Promotions of a Pipeline have numbers, and only the one with the highest number of an
// environment is executed. The hub, the strategies and the command line select them by the
// same rule: by the UID of the Pipeline, never by its name alone. So a new Pipeline does not
// get the Promotions of a deleted one with the same name, unless the caller requests them
// (OfName).
//
// # Contract
//
// OfPipeline, OfName and Outranked only read from the given reader. The hub's cache may be
// older than the API server. Numbers of new Promotions, and the checks before each step
// outside the cluster, need the present objects: pass an uncached reader there
// (manager.GetAPIReader).
//
// A settled Promotion (Settled) is stripped and packed in the cache (Stripper): it has what
// the decision tables, the dashboard, events and metrics read, and no conditions. What was read
// of it is never written; ClearManagedFields makes the stored one smaller, and Unchanged
// recognizes that update. A cache that is made with Stripper.Informer strips Promotions while it
// lists them. A Promotion whose spec changed is not settled, and is cached whole. Readers of the
// cache get Promotions; handlers of its events call Whole, PipelineOf or SettledTime.
//
// # Locking
//
// Stripper.mu guards the last Promotion of each series, whose values the next one shares, the
// texts that are known, and the memory in which the next Promotion is packed. It is held while
// one Promotion is packed. What Promotions share is not changed any more.
//
// # Trade-offs
//
// The API server selects by label, because it has no index on fields of a Promotion. A
// cache selects by its index on the Pipeline's name and compares the label: IndexedReader
// and IndexedClient mark such a reader. One index serves the lists by UID and by name, and
// each further one would need about 100 bytes for each Promotion. The other two have no entry
// for a settled one.
package promotions
