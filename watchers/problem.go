package watchers

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/clusters/transport"
	"github.com/capstan-hub/capstan/internal/truncate"
	"github.com/capstan-hub/capstan/watchers/decode"
)

// Reasons why a kind or a namespace is not fresh.
const (
	ReasonConnecting   = "Connecting"
	ReasonUnreachable  = "Unreachable"
	ReasonAuthFailed   = "AuthFailed"
	ReasonRemoved      = "Removed"
	ReasonNotSynced    = clusters.ReasonSyncing
	ReasonSlow         = "ListSlow"
	ReasonNotInstalled = "CRDNotInstalled"
	ReasonNotServed    = "VersionNotServed"
	ReasonForbidden    = "Forbidden"
	ReasonThrottled    = "TooManyRequests"
	ReasonTooMany      = "TooManyObjects"
	ReasonTooLarge     = "TooLarge"
	ReasonUnreadable   = "Unreadable"
	ReasonSilent       = "Silent"
	ReasonResuming     = "Resuming"
	ReasonConfirming   = "Confirming"
)

var (
	// errNotInstalled: the cluster does not serve the kind.
	errNotInstalled = errors.New("is not installed")
	// errNotServed: it serves no version that the hub reads.
	errNotServed = errors.New("is served in no version that the hub reads")
	// errReplan: the demand needs more than what is stored; start again at once.
	errReplan = errors.New("the stored objects do not cover the demand")
	// errRestored: the resourceVersions of the cluster went back; start again, at once if that
	// is rare.
	errRestored = errors.New("its resourceVersions went back, as after a restore")
	// errReplaced: another connection took over.
	errReplaced = errors.New("the connection was replaced")
)

// problem is why a kind cannot be read.
type problem struct{ reason, message string }

// text returns reason and message; empty for no problem.
func (p problem) text() string {
	if p.reason == "" {
		return ""
	}
	return p.reason + ": " + p.message
}

// place is where a problem occurs: one kind of one cluster, in a namespace or in the
// whole cluster.
type place struct {
	kind Kind
	// cluster is its name in messages; local is the management cluster.
	cluster string
	local   bool
	// namespace; "" for the whole cluster.
	namespace string
	limits    limits
}

// String is the place in messages.
func (p place) String() string {
	if p.namespace != "" {
		return fmt.Sprintf("namespace %s of %s", p.namespace, p.cluster)
	}
	return p.cluster
}

// maxProblem is how much of an error is kept in a message, in bytes.
const maxProblem = 256

// problemOf describes an error to a user.
func problemOf(err error, at place) problem {
	kind, where := at.kind.GroupKind.String(), at.String()
	verbs := "get, list and watch"
	switch {
	case errors.Is(err, errNotInstalled), apierrors.IsNotFound(err):
		return problem{ReasonNotInstalled, fmt.Sprintf("%s is not installed in %s: install its CRD there", kind, where)}
	case errors.Is(err, errNotServed):
		return problem{ReasonNotServed, fmt.Sprintf("%s serves %s in none of the versions %v", where, kind, at.kind.Versions)}
	case errors.Is(err, errTooMany):
		return problem{ReasonTooMany, fmt.Sprintf("%s holds more than %d objects of %s: remove some, or %s", where, at.limits.objects, kind, at.fewer())}
	case errors.Is(err, errStored):
		return problem{ReasonTooLarge, fmt.Sprintf("the hub stores at most %d MiB of %s of %s: remove some, or %s", at.limits.stored>>20, kind, where, at.fewer())}
	case errors.Is(err, errListed), errors.Is(err, transport.ErrTooLarge):
		return problem{ReasonTooLarge, fmt.Sprintf("a list of %s in %s is larger than %d MiB, or one object is larger than %d MiB: remove some, or %s",
			kind, where, at.limits.listed>>20, decode.MaxObject>>20, at.fewer())}
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return problem{ReasonForbidden, fmt.Sprintf("the credentials for %s may not %s %s: grant it (%s)", where, verbs, kind, at.rights())}
	case apierrors.IsTooManyRequests(err):
		return problem{ReasonThrottled, fmt.Sprintf("%s rejects the list of %s: too many requests; the hub tries again", where, kind)}
	}
	message := truncate.Bytes(lasting(err), maxProblem)
	return problem{ReasonUnreadable, fmt.Sprintf("%s cannot be read in %s: %s", kind, where, message)}
}

// lasting returns the message of an error without the parts that change from try to try:
// the query of a watch, with its random timeout, and ports. Each new message wakes
// Pipelines. A cluster may determine the text, so control characters are removed.
func lasting(err error) string {
	var request *url.Error
	var operation *net.OpError
	switch {
	case errors.As(err, &operation) && operation.Err != nil:
		err = fmt.Errorf("%s: %w", operation.Op, operation.Err)
	case errors.As(err, &request):
		err = request.Err
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, err.Error())
}

// unquoted returns an error without the answer that client-go quotes if it is no Status of
// an API server. A server that echoes requests would answer with the token.
func unquoted(err error) error {
	var answer apierrors.APIStatus
	if !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || !errors.As(err, &answer) {
		return err
	}
	status := answer.Status()
	status.Message = fmt.Sprintf("the server answers %d, but not as an API server answers", status.Code)
	status.Details = status.Details.DeepCopy()
	status.Details.Causes = nil
	return &apierrors.StatusError{ErrStatus: status}
}

// needsUser returns whether a user has to fix something before another try can succeed.
func needsUser(err error) bool {
	return errors.Is(err, errNotInstalled) || errors.Is(err, errNotServed) || exceeds(err) ||
		apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

// rights returns which rights the hub needs in the cluster.
func (p place) rights() string {
	if p.local {
		return "config/rbac"
	}
	return "config/rbac/workload"
}

// fewer returns what a user can do so that the hub reads fewer objects of the kind.
func (p place) fewer() string {
	if p.local {
		return "raise --" + MaxLocalObjectsFlag + ", or restrict the program to one namespace (--namespace)"
	}
	return "use credentials of fewer namespaces"
}
