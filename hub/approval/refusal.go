package approval

import (
	"fmt"
	"net/http"
	"time"
)

// reason of a refusal, in one word, for metric and log.
type reason string

const (
	reasonRateLimited reason = "RateLimited"
	reasonBusy        reason = "Busy"
	reasonMethod      reason = "Method"
	reasonPath        reason = "Path"
	reasonBody        reason = "Body"
	reasonTooLarge    reason = "TooLarge"
	reasonNoPipeline  reason = "NoPipeline"
	reasonNoSecret    reason = "NoSecret"
	reasonSignature   reason = "Signature"
	reasonReplayed    reason = "Replayed"
	reasonNotWaiting  reason = "NotWaiting"
	reasonMismatch    reason = "Mismatch"
	reasonNoStrategy  reason = "NoStrategy"
	reasonFailed      reason = "Failed"
	reasonSuperseded  reason = "Superseded"
	reasonError       reason = "Error"
)

// verbosity of the line of log that tells of a refusal: what anybody on the network
// can cause without end is no news.
func verbosity(r reason) int {
	switch r {
	case reasonRateLimited, reasonBusy, reasonMethod, reasonPath, reasonNoPipeline:
		return 1
	case reasonBody, reasonTooLarge, reasonNoSecret, reasonSignature, reasonReplayed, reasonNotWaiting, reasonMismatch,
		reasonNoStrategy, reasonFailed, reasonSuperseded, reasonError:
	}
	return 0
}

// What weave answers; callers may look for these words.
const (
	weaveFailed      = "error promoting application, please consult the promotion server's logs"
	weaveNotApproved = "failed approving promotion"
	weaveNoRevision  = "event has no 'revision' in the metadata field."
	weaveMismatch    = "involved object does not match Pipeline definition"
)

// refusal is a call that is not answered with 201 or 204.
type refusal struct {
	code   int
	reason reason
	// body is what the caller is told.
	body string
	// retryAfter is the value of that header; none when empty.
	retryAfter string
	// cause is what only the log is told.
	cause error
}

// Error implements error.
func (r *refusal) Error() string {
	if r.cause != nil {
		return r.cause.Error()
	}
	return r.body
}

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.cause }

func refuse(code int, why reason, format string, args ...any) *refusal {
	return &refusal{code: code, reason: why, body: fmt.Sprintf(format, args...)}
}

// unauthorized tells the caller nothing more, whatever is amiss.
func unauthorized(why reason, cause error) *refusal {
	return &refusal{code: http.StatusUnauthorized, reason: why, cause: cause}
}

// notApproved is weave's answer to an approval of what does not wait for one.
func notApproved(why reason, format string, args ...any) *refusal {
	return refuse(http.StatusUnprocessableEntity, why, weaveNotApproved+": "+format, args...)
}

// rateLimited tells when the next call may come.
func rateLimited(at time.Time) *refusal {
	return &refusal{code: http.StatusTooManyRequests, reason: reasonRateLimited, retryAfter: at.UTC().Format(http.TimeFormat)}
}

// failed is trouble of the hub's own, or of its API server: nothing that the caller
// can mend.
func failed(cause error) *refusal {
	return &refusal{code: http.StatusInternalServerError, reason: reasonError, cause: cause,
		body: "the hub could not ask its API server; its log says why. Try again"}
}
