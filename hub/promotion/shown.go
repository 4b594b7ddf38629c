package promotion

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/internal/backoff"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// showTimeout bounds one call that shows gates at a pull request.
	showTimeout = time.Minute

	// maxShowBackoff bounds the time between two such calls that fail.
	maxShowBackoff = 5 * time.Minute
)

// ReasonGatesNotShown is the reason of an Event when the condition GatesNotShown becomes True.
const ReasonGatesNotShown = "GatesNotShown"

// gateReport returns what the pull request of a promotion must show of its gates; nil for nothing: it is
// not open, or the promotion has no gates, and none were shown.
func gateReport(p *capstanv1.Promotion) *strategy.GateReport {
	s := &p.Status
	if s.PullRequest == nil || s.Withdrawn || !gatesMatter(p) || len(s.Gates) == 0 && s.GatesShown == nil {
		return nil
	}
	report := &strategy.GateReport{SHA: s.PullRequest.HeadSHA, Open: true, Message: "all gates are open"}
	if s.PullRequest.ForeignSHA != "" {
		report.SHA = s.PullRequest.ForeignSHA
	}
	for _, g := range s.Gates {
		if isClosed(g) {
			report.Open, report.Message = false, g.Message
			if g.Type == capstanv1.SoakGate && g.State == capstanv1.GateClosed { // It is paused whenever a target is reconciled.
				report.Message = fmt.Sprintf("environment %q has not been healthy with %s for long enough", p.Spec.Source.Environment, p.Spec.Revision)
			}
			break
		}
	}
	if report.SHA == "" {
		return nil
	}
	return report
}

// showGatesOutside shows the gates at the open pull request, if they changed since this process did so
// last. It returns the time until another try; 0 if none is needed. The pull request and its
// promotion continue whether that works or not. It is a notice and no step of the promotion, so it is
// also made while the Pipeline is suspended.
func (r *Reconciler) showGatesOutside(ctx context.Context, p *capstanv1.Promotion) (again time.Duration, err error) {
	way, err := r.Strategies.For(p)
	if err != nil {
		return 0, nil //nolint:nilerr // An attempt says so.
	}
	reporter, ok := way.(strategy.GateReporter)
	report := gateReport(p)
	if !ok || report == nil {
		return 0, nil
	}
	if left, due := r.shown.due(p.UID, *report); !due {
		return left, nil
	}
	leave, ok := r.tenants.enter(client.ObjectKeyFromObject(p))
	if !ok {
		return placeDelay, nil
	}
	cause := show(ctx, reporter, p, *report, leave)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	again = r.shown.noted(p.UID, *report, cause)
	before := p.DeepCopy()
	switch failed := terminal(cause); {
	case cause == nil:
		p.Status.GatesShown = &capstanv1.GatesShown{SHA: report.SHA, Open: report.Open}
		meta.RemoveStatusCondition(&p.Status.Conditions, capstanv1.GatesNotShownCondition)
		log.FromContext(ctx).V(1).Info("the pull request shows the gates", "open", report.Open, "sha", report.SHA)
	case failed != nil && p.Status.Phase != capstanv1.PhaseFailed: // That has a reason of its own.
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
			Type: capstanv1.GatesNotShownCondition, Status: metav1.ConditionTrue, Reason: failed.Reason,
			Message: fmt.Sprintf("the commit status %s cannot be set at %s: grant the right to set commit statuses to the credentials of the pull request; the hub tries again: %s",
				strategy.GatesStatus, p.Status.URL, cut(cause.Error())),
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	default:
		log.FromContext(ctx).Info("the gates cannot be shown at the pull request, another try follows", "in", again, "error", cut(cause.Error()))
	}
	if err := r.write(ctx, before, p); err != nil {
		r.shown.forget(p.UID) // What was shown is not recorded: it is shown again.
		return again, err
	}
	return again, nil
}

// show calls the strategy, and leaves its place also if that panics.
func show(ctx context.Context, reporter strategy.GateReporter, p *capstanv1.Promotion, report strategy.GateReport, leave func()) error {
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	return reporter.ReportGates(ctx, p.DeepCopy(), report)
}

// shown holds what this process has shown at pull requests. A new process shows all again: others can
// change what a pull request shows.
type shown struct {
	clock clock.PassiveClock

	// mu guards lockedLast.
	mu         sync.Mutex
	lockedLast map[types.UID]shownLast
}

// shownLast is the last call for a promotion.
type shownLast struct {
	report   strategy.GateReport
	done     bool
	failures int64
	// next is when another call may be made.
	next time.Time
	// limited is whether the service, or the rate of the hub, requires that wait.
	limited bool
}

func newShown(c clock.PassiveClock) *shown {
	return &shown{clock: c, lockedLast: map[types.UID]shownLast{}}
}

// due returns whether a report must be sent now; else the time until then, 0 if it was sent.
func (s *shown) due(p types.UID, report strategy.GateReport) (left time.Duration, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.lockedLast[p]
	switch {
	case known && last.done && last.report == report:
		return 0, false
	case last.report != report && !last.limited: // Another state is not kept waiting for the failures of the last one.
		return 0, true
	}
	left = last.next.Sub(s.clock.Now())
	return left, left <= 0
}

// noted notes the result of a call, and returns the time until another try.
func (s *shown) noted(p types.UID, report strategy.GateReport, cause error) (again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := shownLast{report: report, done: cause == nil}
	if cause == nil {
		s.lockedLast[p] = last
		return 0
	}
	if was := s.lockedLast[p]; was.report == report {
		last.failures = was.failures
	}
	var after *strategy.RetryAfterError
	if last.limited = errors.As(cause, &after); last.limited {
		again = after.After + after.After/4 // Not earlier than required, whatever the spread.
	} else {
		last.failures++
		again = doubled(last.failures, maxShowBackoff)
	}
	again = max(backoff.Spread(again, followJitter, nil), time.Second)
	last.next = s.clock.Now().Add(again)
	s.lockedLast[p] = last
	return again
}

func (s *shown) forget(p types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lockedLast, p)
}
