// Package promotions lists the Promotions of one Pipeline.
//
// # Purpose
//
// The Promotions of a Pipeline have numbers, and only the one with the highest number of an
// environment is executed. The hub, the strategies and the command line select them by the
// same rule, which this package defines: by the UID of the Pipeline, never by its name. So
// a new Pipeline does not get the Promotions of a deleted one with the same name.
//
// # Contract
//
// OfPipeline only reads from the given reader. The hub's cache may be older than the API
// server. Numbers of new Promotions, and the checks before each step outside the cluster,
// need the present objects: pass an uncached reader there (manager.GetAPIReader).
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
