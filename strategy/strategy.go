package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Result is what a strategy has reached.
type Result struct {
	// State of the act.
	State State
	// URL of the pull request, if there is one.
	URL string
	// PullRequest to be kept in the Promotion's status, if there is one.
	PullRequest *capstanv1.PullRequestStatus
	// Message for people: one sentence on what was done.
	Message string
}

// State of an act.
type State string

// States of an act.
const (
	// Done: there is nothing left for the strategy to do.
	Done State = "Done"
	// Open: a pull request waits for people; Follow looks what becomes of it.
	Open State = "Open"
	// Due: of Follow alone; the act is to be made again, by Promote.
	Due State = "Due"
	// Merged: the pull request was merged.
	Merged State = "Merged"
	// Closed: a person closed the pull request unmerged.
	Closed State = "Closed"
)

// Strategy carries promotions out.
type Strategy interface {
	// Name of the strategy, as in the Pipeline's spec.
	Name() string

	// Handles tells whether the spec asks for this strategy.
	Handles(pipelinesv1.Strategy) bool

	// Deadline bounds one call of Promote. Until it has passed nobody else tries.
	Deadline() time.Duration

	// Promote carries the promotion out, or looks how far it has come.
	// An error that Terminal made stops the promotion; every other is retried.
	Promote(ctx context.Context, promotion *capstanv1.Promotion) (Result, error)
}

// Follower is a Strategy whose act goes on after Promote: a pull request waits for
// people, and stays open when its promotion is superseded.
type Follower interface {
	Strategy

	// Follow looks how far an act that is Open has come. It changes nothing outside,
	// so that any number of hubs may call it at any time.
	Follow(ctx context.Context, promotion *capstanv1.Promotion) (Result, error)

	// Withdraw takes back what a promotion left open that was superseded, succeeded
	// without it, or failed and is wanted no more, and says why to people. What another promotion has made
	// its own is left alone. There may be nothing to take back; that is no error. It is
	// called until it succeeds.
	Withdraw(ctx context.Context, promotion *capstanv1.Promotion, why string) error
}

// Identity is the identity of the act towards Git and receivers of events: it is
// the same however often the act is repeated, and another after spec.retry was
// raised and the promotion begun anew (status.retry follows it then, so that
// raising it under way does not change what is under way).
func Identity(p *capstanv1.Promotion) string {
	return fmt.Sprintf("%s.%d", p.UID, p.Status.Retry)
}

// TerminalError is an error that no repetition heals.
type TerminalError struct {
	// Reason in one word, for the Promotion's status.
	Reason string
	// Secret whose change may heal it after all; nil when none does.
	Secret *capstanv1.SecretVersion
	Err    error
}

// Error implements error.
func (e *TerminalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TerminalError) Unwrap() error { return e.Err }

// Terminal marks an error as one that no repetition heals, with a reason.
func Terminal(reason string, err error) error { return &TerminalError{Reason: reason, Err: err} }

// RetryAfterError is an error of which it is known when to come back: a service said so.
type RetryAfterError struct {
	// After is how long to wait at least.
	After time.Duration
	// Untried is set when the service was not asked at all, since it is known not to
	// want that now: no failure of this act.
	Untried bool
	Err     error
}

// Error implements error.
func (e *RetryAfterError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// Problem is a reason why a spec cannot be carried out by any strategy.
type Problem string

// Problems of a spec.
const (
	NoStrategy    Problem = "neither pull-request nor notification is set; set one of them"
	TwoStrategies Problem = "pull-request and notification are both set; keep one of them"
)

// ErrUnknown is the cause of the terminal error for a strategy that no part of
// this build carries out.
var ErrUnknown = errors.New("no strategy of this build carries it out")

// Check returns what is wrong with a strategy's spec; empty when nothing is. The
// CRD admits both, as weave's did.
func Check(s pipelinesv1.Strategy) Problem {
	switch {
	case s.PullRequest == nil && s.Notification == nil:
		return NoStrategy
	case s.PullRequest != nil && s.Notification != nil:
		return TwoStrategies
	default:
		return ""
	}
}

// Registry is the strategies that the hub was wired with.
type Registry []Strategy

// For returns the strategy that a Promotion asks for, or a terminal error.
func (r Registry) For(p *capstanv1.Promotion) (Strategy, error) {
	if problem := Check(p.Spec.Strategy); problem != "" {
		return nil, Terminal("InvalidSpec", fmt.Errorf("promotion %s/%s: %s", p.Namespace, p.Name, problem))
	}
	for _, s := range r {
		if s.Handles(p.Spec.Strategy) {
			return s, nil
		}
	}
	return nil, Terminal("UnknownStrategy", fmt.Errorf("promotion %s/%s: %w; use strategy.pull-request or strategy.notification", p.Namespace, p.Name, ErrUnknown))
}
