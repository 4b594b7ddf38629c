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

// Reasons why a promotion cannot be carried out until a user changes something.
const (
	// ReasonInvalidSpec: the URL is not that of a repository of the service, or it
	// leads to an address that the hub must not call.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonSecretNotFound: the Secret does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonInvalidCredentials: the Secret has no usable credentials.
	ReasonInvalidCredentials = "InvalidCredentials"
	// ReasonUnauthorized: the credentials are wrong or have expired.
	ReasonUnauthorized = "Unauthorized"
	// ReasonForbidden: the credentials lack a right.
	ReasonForbidden = "Forbidden"
	// ReasonUntrusted: the server's certificate is not signed by a trusted CA.
	ReasonUntrusted = "Untrusted"
	// ReasonRepositoryNotFound: the repository does not exist, or the credentials may not
	// read it.
	ReasonRepositoryNotFound = "RepositoryNotFound"
	// ReasonBaseBranchMissing: the repository has no such branch.
	ReasonBaseBranchMissing = "BaseBranchMissing"
	// ReasonRepositoryTooLarge: a clone would exceed the limits.
	ReasonRepositoryTooLarge = "RepositoryTooLarge"
	// ReasonFileTooLarge: a file over the limit has the marker.
	ReasonFileTooLarge = "FileTooLarge"
	// ReasonNoMarker: no file of the base branch has the marker.
	ReasonNoMarker = "NoMarker"
	// ReasonMarkerUnparsable: a file with the marker is not YAML.
	ReasonMarkerUnparsable = "MarkerUnparsable"
	// ReasonTwoMarkers: there are two markers where one is expected.
	ReasonTwoMarkers = "TwoMarkers"
	// ReasonMarkerNotScalar: the marked value is not a scalar.
	ReasonMarkerNotScalar = "MarkerNotScalar"
	// ReasonUnwritableRevision: the revision cannot be written as a scalar.
	ReasonUnwritableRevision = "UnwritableRevision"
	// ReasonBranchProtected: a rule of the service refuses the push.
	ReasonBranchProtected = "BranchProtected"
	// ReasonBranchModified: the branch has commits that the hub did not make.
	ReasonBranchModified = "BranchModified"
	// ReasonBranchTaken: another Pipeline of the same name uses the branch.
	ReasonBranchTaken = "BranchTaken"
	// ReasonPullRequestRefused: the service refuses the pull request.
	ReasonPullRequestRefused = "PullRequestRefused"
)

// failure is a terminal error with its reason, to which explain adds the version of the
// Secret.
type failure struct {
	reason string
	// credentials is set when other credentials may fix it.
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

// explain converts an error for the hub: terminal with a reason, retryable after a time, or
// retryable.
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

// judge classifies an error of Git, of a service or of an edit. It returns nil when a
// repetition may succeed.
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

// retryAfter returns how long a service asked to wait; 0 if it did not.
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
