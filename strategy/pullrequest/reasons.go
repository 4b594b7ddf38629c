package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// Reasons why a promotion cannot be carried out until somebody changes something.
const (
	// ReasonInvalidSpec: the URL is not one of a repository of that service, or
	// leads where the hub does not go.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonSecretNotFound: the Secret does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonInvalidCredentials: the Secret holds nothing that can be used.
	ReasonInvalidCredentials = "InvalidCredentials"
	// ReasonUnauthorized: the credentials are wrong or have expired.
	ReasonUnauthorized = "Unauthorized"
	// ReasonForbidden: the credentials lack a right.
	ReasonForbidden = "Forbidden"
	// ReasonUntrusted: the server's certificate is not signed by a trusted CA.
	ReasonUntrusted = "Untrusted"
	// ReasonRepositoryNotFound: no such repository, or none that may be seen.
	ReasonRepositoryNotFound = "RepositoryNotFound"
	// ReasonBaseBranchMissing: the repository has no such branch.
	ReasonBaseBranchMissing = "BaseBranchMissing"
	// ReasonRepositoryTooLarge: a clone would be over the limits.
	ReasonRepositoryTooLarge = "RepositoryTooLarge"
	// ReasonFileTooLarge: a marker stands in a file over the limit.
	ReasonFileTooLarge = "FileTooLarge"
	// ReasonNoMarker: no file of the base branch has the marker.
	ReasonNoMarker = "NoMarker"
	// ReasonMarkerUnparsable: a file with the marker is not YAML.
	ReasonMarkerUnparsable = "MarkerUnparsable"
	// ReasonTwoMarkers: two markers stand where one is expected.
	ReasonTwoMarkers = "TwoMarkers"
	// ReasonMarkerNotScalar: the marker stands at something that is not a scalar.
	ReasonMarkerNotScalar = "MarkerNotScalar"
	// ReasonUnwritableRevision: the revision cannot be written as a scalar.
	ReasonUnwritableRevision = "UnwritableRevision"
	// ReasonBranchProtected: a rule of the service stands against the push.
	ReasonBranchProtected = "BranchProtected"
	// ReasonBranchModified: commits that are not the hub's are on the branch.
	ReasonBranchModified = "BranchModified"
	// ReasonBranchTaken: another Pipeline of the same name uses the branch.
	ReasonBranchTaken = "BranchTaken"
	// ReasonPullRequestRefused: the service will not have the pull request.
	ReasonPullRequestRefused = "PullRequestRefused"
)

// failure is a terminal error with its reason, before it is known which Secret may
// heal it.
type failure struct {
	reason string
	// credentials may heal it.
	credentials bool
	err         error
}

// Error implements error.
func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.err }

func fail(reason, format string, args ...any) error {
	return &failure{reason: reason, err: fmt.Errorf(format, args...)}
}

// explain makes what the hub understands of an error: terminal with a reason, to be
// retried after a time, or to be retried.
func explain(err error, secret capstanv1.SecretVersion) error {
	if err == nil {
		return nil
	}
	var known *failure
	if !errors.As(err, &known) {
		known = judge(err)
	}
	if known != nil {
		terminal := &strategy.TerminalError{Reason: known.reason, Err: err}
		if known.credentials {
			terminal.Secret = &secret
		}
		return terminal
	}
	if after := retryAfter(err); after > 0 {
		var later *strategy.RetryAfterError
		return &strategy.RetryAfterError{After: after, Untried: errors.As(err, &later) && later.Untried, Err: err}
	}
	return err
}

// judge an error of Git, of a service or of an edit; nil when repetition may heal it.
func judge(err error) *failure {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	var service *provider.Error
	if errors.As(err, &service) {
		return judgeService(service)
	}
	var git *gitrepo.Error
	if errors.As(err, &git) {
		return judgeGit(git)
	}
	for cause, reason := range map[error]string{
		manifest.ErrNoMarker:   ReasonNoMarker,
		manifest.ErrUnparsable: ReasonMarkerUnparsable,
		manifest.ErrTwoMarkers: ReasonTwoMarkers,
		manifest.ErrNotScalar:  ReasonMarkerNotScalar,
		manifest.ErrValue:      ReasonUnwritableRevision,
		manifest.ErrTooLarge:   ReasonFileTooLarge,
	} {
		if errors.Is(err, cause) {
			return &failure{reason: reason, err: err}
		}
	}
	return nil
}

func judgeService(e *provider.Error) *failure {
	switch e.Class {
	case provider.Invalid:
		return &failure{reason: ReasonInvalidSpec, credentials: true, err: e}
	case provider.NotFound:
		return &failure{reason: ReasonRepositoryNotFound, credentials: true, err: e}
	case provider.Unauthorized:
		return &failure{reason: ReasonUnauthorized, credentials: true, err: e}
	case provider.Forbidden:
		return &failure{reason: ReasonForbidden, credentials: true, err: e}
	case provider.Untrusted:
		return &failure{reason: ReasonUntrusted, credentials: true, err: e}
	case provider.Validation, provider.Unsupported:
		return &failure{reason: ReasonPullRequestRefused, err: e}
	case provider.AlreadyExists, provider.HeadMoved, provider.Conflict, provider.NotMergeable, provider.RateLimited, provider.Transient:
		return nil
	}
	return nil
}

func judgeGit(e *gitrepo.Error) *failure {
	switch e.Class {
	case gitrepo.Invalid:
		return &failure{reason: ReasonInvalidSpec, err: e}
	case gitrepo.NotFound:
		return &failure{reason: ReasonRepositoryNotFound, credentials: true, err: e}
	case gitrepo.Empty:
		return &failure{reason: ReasonBaseBranchMissing, err: e}
	case gitrepo.Unauthorized:
		return &failure{reason: ReasonUnauthorized, credentials: true, err: e}
	case gitrepo.Forbidden:
		return &failure{reason: ReasonForbidden, credentials: true, err: e}
	case gitrepo.Untrusted:
		return &failure{reason: ReasonUntrusted, credentials: true, err: e}
	case gitrepo.TooLarge:
		return &failure{reason: ReasonRepositoryTooLarge, err: e}
	case gitrepo.Refused:
		return &failure{reason: ReasonBranchProtected, credentials: true, err: e}
	case gitrepo.Moved, gitrepo.RateLimited, gitrepo.Transient:
		return nil
	}
	return nil
}

// retryAfter is how long a service asked to wait; 0 when it did not.
func retryAfter(err error) time.Duration {
	var service *provider.Error
	var git *gitrepo.Error
	var later *strategy.RetryAfterError
	switch {
	case errors.As(err, &later):
		return later.After
	case errors.As(err, &service):
		return service.RetryAfter
	case errors.As(err, &git):
		return git.RetryAfter
	default:
		return 0
	}
}
