package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Result is the outcome of a call of a strategy.
type Result struct {
	// State of the action.
	State State
	// URL of the pull request, if there is one.
	URL string
	// PullRequest is stored in the Promotion's status, if there is one.
	PullRequest *capstanv1.PullRequestStatus
	// Message for users: one sentence that says what was done.
	Message string
}

// State of an action.
type State string

// States of an action.
const (
	// Done: the strategy has nothing left to do.
	Done State = "Done"
	// Unchanged: the revision differs from the one that is there only in what promotions wrote.
	// Nothing was done, and nothing is left to do.
	Unchanged State = "Unchanged"
	// Open: a pull request waits for a user; Follow reads its state.
	Open State = "Open"
	// Due: only from Follow; Promote must be called again.
	Due State = "Due"
	// Merged: the pull request was merged.
	Merged State = "Merged"
	// Closed: a user closed the pull request without merging it.
	Closed State = "Closed"
)

// Step of a promotion that has an effect outside of the management cluster.
type Step string

// Steps.
const (
	// StepNotify sends a notification.
	StepNotify Step = "notify"
	// StepPush pushes a branch.
	StepPush Step = "push"
	// StepOpen opens a pull request, or takes over or reopens one.
	StepOpen Step = "open"
	// StepMerge merges a pull request.
	StepMerge Step = "merge"
)

// Permit returns nil if a step may be taken now, a HeldError if it has to wait, and any other error
// if that cannot be found out.
type Permit func(context.Context, Step) error

// HeldError is the error of a step that must not be taken now. It is no failure.
type HeldError struct {
	// Step that is held.
	Step Step
	// Reason in one word, and a message for users.
	Reason, Message string
}

// Error implements error.
func (e *HeldError) Error() string { return fmt.Sprintf("%s is held: %s", e.Step, e.Message) }

// Strategy executes promotions.
type Strategy interface {
	// Name of the strategy, as in the Pipeline's spec.
	Name() string

	// Handles returns whether the spec selects this strategy.
	Handles(pipelinesv1.Strategy) bool

	// Deadline bounds one call of Promote. Until it has passed, no other replica calls Promote.
	Deadline() time.Duration

	// Promote executes the promotion, or reads how far it has advanced. A TerminalError stops
	// the promotion after its Patience; every other error is retried. Promote is also called
	// for a failed promotion that is tried again.
	//
	// permit is called before each step that has an effect outside. Its error ends the call
	// before the step; if that is a HeldError, a merge that is held is no error: the pull
	// request is Open.
	Promote(ctx context.Context, promotion *capstanv1.Promotion, permit Permit) (Result, error)
}

// Follower is a Strategy whose action continues after Promote: a pull request waits for a
// user, and stays open when its promotion is superseded.
type Follower interface {
	Strategy

	// Follow reads the state of an action that is Open. It changes nothing outside, so that
	// any number of hubs may call it at any time.
	Follow(ctx context.Context, promotion *capstanv1.Promotion) (Result, error)

	// Withdraw closes what a promotion left open, with the reason for users, and deletes the
	// branch unless the spec keeps it. The promotion was superseded, succeeded, was rejected,
	// or failed and is not needed any more. Withdraw does not change what another promotion
	// has taken over. It is no error if nothing is left.
	//
	// What a promotion left open that succeeded stays open as long as its target, such as the
	// base branch, does not have the revision: stillNeeded then says so, for users. It is empty
	// when nothing is open any more.
	Withdraw(ctx context.Context, promotion *capstanv1.Promotion, why string) (stillNeeded string, err error)
}

// GatesStatus is the name under which users see whether the gates of a promotion are open.
const GatesStatus = "capstan/gates"

// GateReport says whether the gates of a promotion are open.
type GateReport struct {
	// SHA is the commit at the head of the pull request.
	SHA string
	// Open is whether all gates are open.
	Open bool
	// Message for users: which gate is closed, and until when.
	Message string
}

// GateReporter is a Follower that shows at what is open, such as a pull request, whether the gates are
// open.
type GateReporter interface {
	Follower

	// ReportGates shows a report. It is for users and for the rules of the service: the permit
	// of each step does not depend on it.
	ReportGates(ctx context.Context, promotion *capstanv1.Promotion, report GateReport) error
}

// Identity returns the identity of the action for Git and for receivers of events. It is the
// same for every repetition. It changes when spec.retry is raised and the promotion starts
// again: status.retry follows spec.retry only then, so that raising it does not change an
// action in progress.
func Identity(p *capstanv1.Promotion) string {
	return fmt.Sprintf("%s.%d", p.UID, p.Status.Retry)
}

// TerminalError is an error that ends the promotion: at once, or after it was repeated for
// its Patience.
type TerminalError struct {
	// Reason for the Promotion's status, in CamelCase.
	Reason string
	// Patience is how long the error is retried before it ends the promotion.
	Patience Patience
	// TryAgain is set if users can fix the cause where the hub does not observe it. The
	// failed promotion is then tried again every TryAgainEvery.
	TryAgain bool
	// Secret whose change may fix it; nil for none.
	Secret *capstanv1.SecretVersion
	Err    error
}

// Error implements error.
func (e *TerminalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TerminalError) Unwrap() error { return e.Err }

// Terminal marks an error as one that ends the promotion at once, with a reason.
func Terminal(reason string, err error) error { return &TerminalError{Reason: reason, Err: err} }

// RetryAfterError is an error with a delay: the service requests to wait before the next call.
type RetryAfterError struct {
	// After is the minimum delay before the next call.
	After time.Duration
	// Untried is set if the service was not called at all, because it has requested a delay
	// before: this is no failure of the action.
	Untried bool
	Err     error
}

// Error implements error.
func (e *RetryAfterError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// OutrankedError is returned if the receiver has the action of a promotion with a higher
// number into the same environment. Nothing was changed. The hub supersedes the promotion, or,
// if it has no promotion with such a number (an older state of the management cluster was
// restored), continues under a number above it.
type OutrankedError struct {
	// Number is the highest that the receiver has.
	Number int64
}

// Error implements error.
func (e *OutrankedError) Error() string {
	return fmt.Sprintf("the promotion with the higher number %d has this branch or pull request", e.Number)
}

// Problem is a reason why no strategy can execute a spec.
type Problem string

// Problems of a spec.
const (
	NoStrategy    Problem = "neither pull-request nor notification is set; set one of them"
	TwoStrategies Problem = "pull-request and notification are both set; keep one of them"
)

// ErrUnknown is the cause of the terminal error for a strategy that this build does not have.
var ErrUnknown = errors.New("this build has no strategy for its spec")

// Check returns the problem of a strategy's spec, empty for none. The CRD accepts a spec with
// both strategies, as weave's CRD did.
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

// Registry lists the strategies of the hub.
type Registry []Strategy

// For returns the strategy that a Promotion selects, or a terminal error.
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
