package approval

import (
	"fmt"
	"net/http"
	"time"
)

// reason of a refusal in CamelCase, for the metric and the log.
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

// verbosity returns the log level of a refusal. Refusals that any client on the network can
// cause without a limit are logged at level 1.
func verbosity(r reason) int {
	switch r {
	case reasonRateLimited, reasonBusy, reasonMethod, reasonPath, reasonNoPipeline:
		return 1
	case reasonBody, reasonTooLarge, reasonNoSecret, reasonSignature, reasonReplayed, reasonNotWaiting, reasonMismatch,
		reasonNoStrategy, reasonFailed, reasonSuperseded, reasonError:
	}
	return 0
}

// Answers of weave. Clients may compare these texts.
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
	// body of the answer.
	body string
	// retryAfter is the value of the header Retry-After; no header if empty.
	retryAfter string
	// cause is only logged.
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

// unauthorizedBody is the body of every 401. It is the same whatever is wrong, so that the
// caller does not learn whether a key exists, or what differs.
const unauthorizedBody = "unauthorized: the hook accepts only calls that are signed with a key of the Pipeline. The key is " + SecretKey +
	" in the Secret that promotion.strategy.secretRef of the environment or of the Pipeline names; without a secretRef every call is refused." +
	" capstan sign makes the headers " + SignatureHeader + " and " + TimestampHeader + ". The hub's log (call refused) says what is wrong with this call"

// unauthorized answers with a body that does not depend on the cause.
func unauthorized(why reason, cause error) *refusal {
	return &refusal{code: http.StatusUnauthorized, reason: why, body: unauthorizedBody, cause: cause}
}

// notApproved is weave's answer if no promotion waits for the approval.
func notApproved(why reason, format string, args ...any) *refusal {
	return refuse(http.StatusUnprocessableEntity, why, weaveNotApproved+": "+format, args...)
}

// rateLimited answers with the time at which the next call is allowed.
func rateLimited(at time.Time) *refusal {
	return &refusal{code: http.StatusTooManyRequests, reason: reasonRateLimited, retryAfter: at.UTC().Format(http.TimeFormat)}
}

// failed is an error of the hub or its API server, which the caller cannot fix.
func failed(cause error) *refusal {
	return &refusal{code: http.StatusInternalServerError, reason: reasonError, cause: cause,
		body: "the hub could not call its API server; see the hub's log. Try again"}
}
