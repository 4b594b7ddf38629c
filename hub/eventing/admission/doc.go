// Package admission answers the API server about EventingBackends: what is wrong with
// one, and which keys it lacks that have a default.
//
// Purpose: whoever applies an EventingBackend reads its mistakes in the answer, before
// anything is reconciled.
//
// Contract: both webhooks ask hub/eventing/schema and nothing else, so that they say what
// the status would. Validation warns or denies. An object whose spec does not change, or
// that is being deleted, passes, whatever stands in it: finalizers and labels must not
// depend on a schema that became stricter. Defaulting adds the label of EventingBackends
// and the required keys that have a default; other defaults are effective values and are
// not written. What an update does not change, it does not default either.
//
// The hub works without them: their configurations say failurePolicy Ignore, and the
// reconciler validates again.
//
// # Certificates
//
// Either files that somebody else keeps fresh (cert-manager), or a Secret: each replica
// looks at it, and whoever finds that its certificate is missing or ends within
// renewBefore makes another one, with an authority of its own (client-go's util/cert; the
// authority's key is thrown away), and writes it on the version that it read; who loses
// that race reads again. Certificates are served from memory. Each replica sees to it that
// the webhook configurations trust the authority of the Secret, and the one before it,
// which other replicas may serve for lookEvery yet.
//
// # Locking
//
// Keeper.certificate is swapped atomically. Everything else belongs to the goroutine of
// Start.
//
// # Trade-offs
//
// The Secret is asked for, not watched: it is one read in a minute, and the right to read
// one Secret by its name suffices.
package admission
