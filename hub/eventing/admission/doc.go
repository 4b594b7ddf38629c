// Package admission serves the two webhooks for EventingBackends: validation, and
// defaults of required keys.
//
// Purpose: a client that applies an EventingBackend gets its errors in the answer, before
// any reconcile.
//
// Contract: both webhooks use only hub/eventing/schema, so that their errors equal those
// in the status. Validation warns or denies. An object whose spec does not change, or
// that is being deleted, is always admitted: changes of finalizers and labels must not
// fail because a schema became stricter. Defaulting adds the label of EventingBackends
// and the required keys that have a default. Other defaults are effective values and are
// not written. An update that does not change the spec adds no defaults.
//
// The hub works without the webhooks: their configurations have failurePolicy Ignore, and
// the reconciler validates again.
//
// # Certificates
//
// The certificate comes from files that another program renews (cert-manager), or from a
// Secret. Each replica reads the Secret. A replica that finds the certificate missing, or
// valid for less than renewBefore, creates another one with a new authority (client-go's
// util/cert; the authority's key is discarded). It writes it with the resourceVersion
// that it read; after a conflict it reads again. Certificates are served from memory.
// Each replica adds the authority of the Secret to the webhook configurations, and keeps
// the previous one there, because other replicas may serve it for another checkEvery.
//
// # Locking
//
// Keeper.certificate is swapped atomically. Only the goroutine of Start uses the other
// fields.
//
// # Trade-offs
//
// The Secret is polled, not watched: that is one read per minute, and needs only the
// right to get one Secret by name.
package admission
