// Package promotions lists the Promotions of one Pipeline.
//
// # Purpose
//
// The Promotions of a Pipeline are its ledger: they are numbered, and the numbers
// decide who may act. The hub, the strategies and the command line select them by the
// same rule, which stands here once: by the UID of the Pipeline, never by its name, so
// that a new Pipeline does not inherit the ledger of a deleted one of the same name.
//
// # Contract
//
// OfPipeline reads from the reader that it is given, and from nothing else. A reader of
// the hub's cache may be older than the API server. Slot numbers, and the checks before
// each step outside the cluster, need the API server's own answer: pass an uncached
// reader there (manager.GetAPIReader).
//
// # Locking
//
// None: the package has no state.
//
// # Trade-offs
//
// The selection is by label, because a label selector has the same meaning for the cache
// and for the API server. A field index would be faster in the cache, but the API server
// would reject its selector, so there would be two rules. The cache compares the labels
// of one namespace without copying objects, which takes about 0.1 µs for each Promotion.
package promotions
