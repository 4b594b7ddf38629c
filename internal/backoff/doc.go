// Package backoff computes how long to wait before a repetition.
//
// Purpose: connections, watches, deliveries, promotions and queues repeat failed calls.
// They share one rule: waits double from a first to a longest one, and a random share is
// subtracted, so that callers that failed at the same time do not repeat at the same
// time. They also share one parser of the header Retry-After.
//
// Contract: a Policy without Jitter is a pure function: waits never decrease and
// are at most Max. Jitter only shortens a wait, so Max bounds every wait. No number
// of failures overflows. A random number comes from the Policy's Rand or from
// math/rand/v2. RetryAfter reads seconds and HTTP dates and bounds the result by
// MaxRetryAfter. Nothing here waits; callers wait with their own clock.
//
// Locking: none. Policy is a value. Sequence belongs to one goroutine, or its owner
// guards it.
//
// Trade-offs: k8s.io/apimachinery/pkg/util/wait.Backoff adds jitter on top, so waits
// exceed its Cap; it counts steps down, so a wait cannot be computed from a number
// of failures that is kept in a status; its random source cannot be set; and pure
// packages would import it. client-go's flowcontrol.Backoff keeps a map of ids and
// its own clock. Loops of API writes that only need a few repetitions keep
// wait.Backoff with client-go's retry, and calls to AWS keep the SDK's retryer.
package backoff
