package promotion

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/check"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/promotion/measure"
)

// Measurer measures queries. It is a measure.Measurer.
type Measurer interface {
	// Knows returns why a namespace may not use an endpoint; nil if it may.
	Knows(endpoint, namespace string) error
	// Measure measures a query without blocking, and calls done with the result. A result that
	// began after notBefore, for another promotion, is used.
	Measure(q measure.Query, notBefore time.Time, done func(measure.Measurement))
}

// checks have the results of the checks of promotions. They are not stored: a new process measures
// again. It is a source of the controller: a result reconciles the promotion.
//
// Locking: one worker at a time uses the tallies of a promotion, and results of queries are noted meanwhile.
type checks struct {
	// queue of the controller; nil until it starts.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	// mu guards lockedOf, for field access only.
	mu       sync.Mutex
	lockedOf map[types.UID]*tallies
}

// tallies are the results of one promotion. Those of another run, and of gates when it is verified, do not
// count.
type tallies struct {
	retry     int64
	verifying bool
	// begun is when the first of them was asked for: an older result does not count.
	begun time.Time
	of    map[string]check.Tally
	// asked are the checks that are being measured.
	asked map[string]bool
}

var _ source.Source = &checks{}

func newChecks() *checks { return &checks{lockedOf: map[types.UID]*tallies{}} }

// Start implements source.Source.
func (c *checks) Start(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.queue = q
	return nil
}

// ofLocked returns the tallies of a promotion in its run and phase.
func (c *checks) ofLocked(p *capstanv1.Promotion, now time.Time) *tallies {
	verifying := p.Status.Phase == capstanv1.PhaseVerifying
	t := c.lockedOf[p.UID]
	if t == nil || t.retry != p.Status.Retry || t.verifying != verifying {
		t = &tallies{retry: p.Status.Retry, verifying: verifying, begun: now, of: map[string]check.Tally{}, asked: map[string]bool{}}
		c.lockedOf[p.UID] = t
	}
	return t
}

// statuses returns what is known of checks of a promotion in its phase.
func (c *checks) statuses(p *capstanv1.Promotion, all []check.Check, now time.Time) []capstanv1.CheckStatus {
	if len(all) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.ofLocked(p, now)
	var known []capstanv1.CheckStatus
	for _, one := range all {
		if s, is := t.of[one.Identity()].Status(one, now, t.verifying); is {
			known = append(known, s)
		}
	}
	return known
}

// note adds the result of a measurement that began at an instant, unless it is about another run or phase.
func (c *checks) note(p *capstanv1.Promotion, one check.Check, at time.Time, r check.Result) {
	c.mu.Lock()
	t := c.lockedOf[p.UID]
	current := t != nil && t.retry == p.Status.Retry && t.verifying == (p.Status.Phase == capstanv1.PhaseVerifying)
	if current {
		delete(t.asked, one.Identity())
		t.of[one.Identity()] = t.of[one.Identity()].Note(one, at, r)
	}
	c.mu.Unlock()
	if current && c.queue != nil {
		c.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
	}
}

func (c *checks) forget(p types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lockedOf, p)
}

// ask returns the time until a check has to be measured; if it is due, the instant from which on a result
// counts, and true. The caller then measures it.
func (c *checks) ask(p *capstanv1.Promotion, one check.Check, now time.Time) (notBefore time.Time, left time.Duration, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.ofLocked(p, now)
	if t.asked[one.Identity()] {
		return notBefore, 0, false
	}
	tally := t.of[one.Identity()]
	if left = tally.Due(one, now); left > 0 {
		return notBefore, left, false
	}
	t.asked[one.Identity()] = true
	// A result that began a short time ago, for another promotion, is shared. Each counts once.
	notBefore = now.Add(-one.Interval / 2)
	if t.begun.After(notBefore) {
		notBefore = t.begun
	}
	if began := tally.Began(); !began.Before(notBefore) {
		notBefore = began.Add(1)
	}
	return notBefore, 0, true
}

// measured returns the gates with what is known of their checks.
func (r *Reconciler) measured(p *capstanv1.Promotion, rules gate.Rules) gate.Rules {
	return rules.Measured(r.checks.statuses(p, rules.Queries(), r.Clock.Now()))
}

// measureChecks measures the checks that are due: those of the gates when the other gates are open or soon
// will be, and those of the verification. It returns the time until the next one is due; 0 if none will be.
func (r *Reconciler) measureChecks(p *capstanv1.Promotion, v view) time.Duration {
	now := r.Clock.Now()
	var all []check.Check
	switch {
	case v.pipeline == nil || v.pruned() || v.pipeline.Spec.AppRef != p.Spec.App: // Nothing that is known is about it.
	case p.Status.Phase == capstanv1.PhaseVerifying:
		all = v.verification.Checks()
	case v.judges(p):
		all = v.rules.Queries()
		if len(all) == 0 {
			break
		}
		at := v.rules.MeasureAt(gate.FactsOf(v.pipeline, p, v.now))
		if at.IsZero() {
			return 0 // Another gate changes first, and that is an event.
		}
		if left := at.Sub(v.now); left > 0 {
			return left
		}
	}
	var next time.Duration
	for _, one := range all {
		notBefore, left, due := r.checks.ask(p, one, now)
		switch {
		case due && one.IsQuery():
			r.query(p.DeepCopy(), one, notBefore)
		case due:
			result := one.Observe(check.Observe(v.pipeline, p))
			r.metrics.measured(check.KindCEL, result)
			r.checks.note(p, one, now, result)
		case left > 0 && (next == 0 || left < next):
			next = left
		}
	}
	return next
}

// query measures a check at its endpoint.
func (r *Reconciler) query(p *capstanv1.Promotion, one check.Check, notBefore time.Time) {
	note := func(at time.Time, result check.Result) {
		r.metrics.measured(check.KindPrometheus, result)
		r.checks.note(p, one, at, result)
	}
	if r.Measurer == nil {
		note(r.Clock.Now(), check.Result{Verdict: capstanv1.CheckError, Message: "the hub has no endpoints for checks"})
		return
	}
	if err := r.Measurer.Knows(one.Endpoint, p.Namespace); err != nil {
		note(r.Clock.Now(), check.Result{Verdict: capstanv1.CheckError, Message: err.Error()})
		return
	}
	r.Measurer.Measure(measure.Query{Endpoint: one.Endpoint, Query: one.Query}, notBefore, func(m measure.Measurement) {
		note(m.Started, resultOf(one, m))
	})
}

func resultOf(one check.Check, m measure.Measurement) check.Result {
	switch m.Verdict {
	case measure.HasValue:
		return one.Judge(m.Value)
	case measure.NoData:
		return check.Result{Verdict: capstanv1.CheckNoData, Message: m.Message}
	case measure.Error:
	}
	return check.Result{Verdict: capstanv1.CheckError, Message: m.Message}
}

// noteChecks puts what is known of the checks of a verification into the status.
func (r *Reconciler) noteChecks(p *capstanv1.Promotion, v view) {
	if p.Status.Phase != capstanv1.PhaseVerifying || v.pipeline == nil || v.pruned() || v.verification.Err() != nil || v.pipeline.Spec.AppRef != p.Spec.App {
		return
	}
	all := v.verification.Checks()
	known := r.checks.statuses(p, all, r.Clock.Now())
	for _, one := range all {
		if !slices.ContainsFunc(known, func(s capstanv1.CheckStatus) bool { return s.Name == one.Name }) {
			known = append(known, capstanv1.CheckStatus{Name: one.Name})
		}
	}
	p.Status.Checks = keepChecks(p.Status.Checks, known, metav1.NewTime(r.Clock.Now()))
}

// keepChecks returns states of checks for a status: those that are there as long as they say the same.
func keepChecks(before, now []capstanv1.CheckStatus, at metav1.Time) []capstanv1.CheckStatus {
	var all []capstanv1.CheckStatus
	for _, s := range now {
		if s = check.Keep(before, s); s.LastTransitionTime == nil {
			s.LastTransitionTime = &at
		}
		s.Message = cut(s.Message)
		all = append(all, s)
	}
	return all
}
