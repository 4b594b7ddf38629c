package pullrequest

import (
	"errors"
	"fmt"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/failures"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// Reasons of failed promotions that this package finds itself. All reasons, and what
// follows from them, are in the table of package failures.
const (
	ReasonInvalidSpec        = failures.ReasonInvalidSpec
	ReasonSecretNotFound     = failures.ReasonSecretNotFound
	ReasonInvalidCredentials = failures.ReasonInvalidCredentials
	ReasonBaseBranchMissing  = failures.ReasonBaseBranchMissing
	ReasonFileTooLarge       = failures.ReasonFileTooLarge
	ReasonNoMarker           = failures.ReasonNoMarker
	ReasonBranchModified     = failures.ReasonBranchModified
	ReasonBranchTaken        = failures.ReasonBranchTaken
	ReasonHostNotAllowed     = failures.ReasonHostNotAllowed
	ReasonWaveNotSeparable   = failures.ReasonWaveNotSeparable
	ReasonUnwritableRevision = failures.ReasonUnwritableRevision
)

// failure is an error of a class that ends promotions.
type failure struct {
	reason string
	// credentials is set when other credentials may fix it, although the class does not say
	// so.
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
		terminal := &strategy.TerminalError{Reason: known.reason}
		class := failures.ByReason(known.reason)
		if class != nil {
			terminal = class.Terminal()
		}
		if known.credentials || class != nil && class.Secret {
			terminal.Secret = &secret
		}
		terminal.Err = err
		return terminal
	}
	if after := retryAfter(err); after > 0 {
		var later *strategy.RetryAfterError
		return &strategy.RetryAfterError{After: after, Untried: errors.As(err, &later) && later.Untried, Err: err}
	}
	return err
}

// judge returns an error of a class that ends promotions, and nil for every other error.
func judge(err error) *failure {
	class := failures.Of(err)
	if class == nil || class.Ends == failures.Never {
		return nil
	}
	return &failure{reason: class.Name, err: err}
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
