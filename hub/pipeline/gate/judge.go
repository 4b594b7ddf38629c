package gate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/period"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/window"
)

// Reasons of gates. Those of closed and invalid gates are also reasons of the phase AwaitingGates.
const (
	// ReasonSoaked: the soak is done.
	ReasonSoaked = "Soaked"
	// ReasonSoaking: the soak counts.
	ReasonSoaking = "Soaking"
	// ReasonSoakPaused: the soak does not count at present, and was not restarted.
	ReasonSoakPaused = "SoakPaused"
	// ReasonSourceUnready: a target of the source is not ready. The soak restarts if that lasts.
	ReasonSourceUnready = "SourceUnready"
	// ReasonSourceRunsAnother: the source does not run the revision, and it has not soaked there.
	ReasonSourceRunsAnother = "SourceRunsAnother"
	// ReasonAllowed: no window keeps promotions from beginning.
	ReasonAllowed = "Allowed"
	// ReasonFrozen: a window of type Deny is active.
	ReasonFrozen = "Frozen"
	// ReasonOutsideWindow: no window of type Allow is active.
	ReasonOutsideWindow = "OutsideWindow"
	// ReasonChecksPassed: all checks pass.
	ReasonChecksPassed = "ChecksPassed"
	// ReasonCheckPending: a check was not measured often enough yet.
	ReasonCheckPending = "CheckPending"
	// ReasonCheckFailed: a check fails.
	ReasonCheckFailed = "CheckFailed"
	// ReasonCheckNoData: a check has no data to judge.
	ReasonCheckNoData = "CheckNoData"
	// ReasonCheckError: a check cannot be measured.
	ReasonCheckError = "CheckError"
	// ReasonInvalidGate: the spec of the gate is invalid.
	ReasonInvalidGate = "InvalidGate"
	// ReasonOverridden: the gate is open because of spec.overrides of the promotion.
	ReasonOverridden = capstanv1.GateOverridden
)

// Facts are what gates are judged by.
type Facts struct {
	// Now is the wall clock, for windows.
	Now time.Time
	// Source is the name of the environment that the revision comes from.
	Source string
	// Revision that is promoted.
	Revision string
	// Agreed is the agreement of the source as the status has it; nil if there is none.
	Agreed *pipelinesv1.AgreedRevision
	// Soaked is how long the revision soaked before the source left it (PromotionStatus.SoakedSeconds).
	Soaked time.Duration
	// Promotion whose gates are judged: its overrides, and what its status says about
	// PromotionWindows and checks to those who do not know them.
	Promotion *capstanv1.Promotion
	// Pipeline of the promotion, for checks of its targets; nil if it was deleted.
	Pipeline *pipelinesv1.Pipeline
}

// FactsOf returns what the gates of a promotion are judged by. p is its Pipeline; nil if it was deleted.
func FactsOf(p *pipelinesv1.Pipeline, promotion *capstanv1.Promotion, now time.Time) Facts {
	f := Facts{
		Now: now, Source: promotion.Spec.Source.Environment, Revision: promotion.Spec.Revision,
		Soaked: time.Duration(promotion.Status.SoakedSeconds) * time.Second, Promotion: promotion, Pipeline: p,
	}
	if p == nil {
		return f
	}
	if status := p.Status.Environments[f.Source]; status != nil {
		f.Agreed = status.Agreed
	}
	return f
}

// Result is the judgement of one gate.
type Result struct {
	Name    string
	Type    capstanv1.GateType
	State   capstanv1.GateState
	Reason  string
	Message string
	// Change is when State changes next if nothing else does; zero if that is not known.
	Change time.Time
}

// Open returns whether a promotion may continue.
func (r Result) Open() bool { return r.State == capstanv1.GateOpen }

// Judge returns the results of all gates, the soak first.
func (r Rules) Judge(f Facts) []Result {
	var all []Result
	if r.wrongReject != nil {
		all = append(all, invalid(capstanv1.GateReject, capstanv1.RejectGate, "correct the Pipeline", r.wrongReject))
	}
	switch {
	case r.wrongSoak != nil:
		all = append(all, invalid(capstanv1.GateSoak, capstanv1.SoakGate, "correct the Pipeline", r.wrongSoak))
	case r.soak != nil:
		all = append(all, r.soak.judge(f))
	}
	switch {
	case r.wrongWindows != nil:
		all = append(all, invalid(capstanv1.GateWindows, capstanv1.WindowGate, "correct the Pipeline", r.wrongWindows))
	case len(r.windows) > 0:
		all = append(all, r.judgeWindows(f.Now))
	}
	if g := r.judgeCluster(f); g != nil {
		all = append(all, *g)
	}
	switch {
	case r.wrongChecks != nil:
		all = append(all, invalid(capstanv1.GateChecks, capstanv1.CheckGate, "correct the Pipeline", r.wrongChecks))
	case len(r.checks) > 0:
		all = append(all, r.judgeChecks(f))
	}
	for i := range all {
		all[i] = f.overridden(all[i])
	}
	return all
}

// overridden returns a result with the effect of an override: the gate is open, also while it would be
// open without it. So one override is one transition, however often the gate would close.
func (f Facts) overridden(g Result) Result {
	if f.Promotion == nil {
		return g
	}
	if by := f.Promotion.OverrideOf(g.Name); by != nil {
		g.State, g.Reason, g.Message = capstanv1.GateOpen, ReasonOverridden, fmt.Sprintf("%s overrides it (%s): %s", by.By, by.Reason, g.Message)
	}
	return g
}

// has returns whether an override opens a gate.
func (f Facts) has(gate string) bool {
	return f.Promotion != nil && f.Promotion.OverrideOf(gate) != nil
}

// FirstClosed returns the first gate that is not open; nil if all are open.
func FirstClosed(all []Result) *Result {
	for i := range all {
		if !all[i].Open() {
			return &all[i]
		}
	}
	return nil
}

// invalid returns the result of a gate that cannot be judged; what says what to do.
func invalid(name string, kind capstanv1.GateType, what string, err error) Result {
	return Result{
		Name: name, Type: kind, State: capstanv1.GateInvalid, Reason: ReasonInvalidGate,
		Message: what + ": " + strings.ReplaceAll(err.Error(), "\n", "; "),
	}
}

// Soaked returns how long a revision has soaked in its source, and whether it counts at present.
func (f Facts) soaked() (counted time.Duration, status *pipelinesv1.SoakStatus) {
	if f.Agreed == nil || !revision.Same(f.Agreed.Revision, f.Revision) {
		return f.Soaked, nil
	}
	if f.Agreed.Soak == nil {
		return 0, nil
	}
	return time.Duration(f.Agreed.Soak.Seconds) * time.Second, f.Agreed.Soak
}

// Done returns whether the soak is done.
func (s *Soak) Done(f Facts) bool {
	counted, _ := f.soaked()
	return s == nil || counted >= s.For
}

func (s *Soak) judge(f Facts) Result {
	counted, status := f.soaked()
	g := Result{Name: capstanv1.GateSoak, Type: capstanv1.SoakGate, State: capstanv1.GateClosed}
	needs := fmt.Sprintf("environment %q must be healthy with %s for %s", f.Source, f.Revision, period.Text(s.For))
	runs := f.Agreed != nil && revision.Same(f.Agreed.Revision, f.Revision)
	switch {
	case counted >= s.For:
		g.State, g.Reason = capstanv1.GateOpen, ReasonSoaked
		g.Message = fmt.Sprintf("environment %q was healthy with %s for %s", f.Source, f.Revision, period.Text(s.For))
	case !runs:
		g.Reason, g.Message = ReasonSourceRunsAnother, needs+", and does not run it"
	case status == nil:
		g.Reason, g.Message = ReasonSoakPaused, needs+"; it was not observed yet"
	case status.CountedTime != nil:
		g.Reason, g.Message, g.Change = ReasonSoaking, needs, status.CountedTime.Add(s.For-counted)
	case status.State == pipelinesv1.SoakUnready:
		g.Reason, g.Message = ReasonSourceUnready, fmt.Sprintf("%s, and is not ready; after %s the time starts again", needs, period.Text(s.Tolerate))
	default:
		g.Reason, g.Message = ReasonSoakPaused, needs+"; the time does not count while a target is reconciled or cannot be observed"
	}
	return g
}

func (r Rules) judgeWindows(now time.Time) Result {
	v := once(&r.judged.of(now).own, now, r.windows)
	g := Result{Name: capstanv1.GateWindows, Type: capstanv1.WindowGate, State: capstanv1.GateOpen, Reason: ReasonAllowed, Message: "promotions are allowed at this time", Change: v.Change}
	if !v.Open {
		g.close(r.named[v.By], r.windows[v.By].Type(), "window")
	}
	return g
}

// close makes the result that of a window that closes the gate.
func (r *Result) close(by named, kind window.Type, called string) {
	r.State = capstanv1.GateClosed
	what := fmt.Sprintf("%s %q", called, by.name)
	if by.reason != "" {
		what += fmt.Sprintf(" (%s)", by.reason)
	}
	if kind == window.Deny {
		r.Reason, r.Message = ReasonFrozen, what+" denies promotions"
	} else {
		r.Reason, r.Message = ReasonOutsideWindow, what+" is closed"
	}
	if r.Change.IsZero() {
		r.Message += "; no time is known at which promotions are allowed again"
	} else {
		r.Message += fmt.Sprintf("; promotions are allowed again from %s", in(r.Change, by.zone))
	}
}

// Expected returns when all gates are open if nothing changes: the targets of the source stay
// healthy, checks that were not measured pass, and nothing is edited. It is zero if that is not known, and
// not after now if they are open.
func (r Rules) Expected(f Facts) time.Time {
	if !f.has(capstanv1.GateChecks) && !r.checksMayPass(f) {
		return time.Time{}
	}
	return r.expectedOthers(f)
}

// expectedOthers returns when all gates but the checks are open, as Expected does.
func (r Rules) expectedOthers(f Facts) time.Time {
	if r.wrongReject != nil || r.wrongSoak != nil && !f.has(capstanv1.GateSoak) || r.wrongWindows != nil && !f.has(capstanv1.GateWindows) {
		return time.Time{}
	}
	at := f.Now
	if r.soak != nil {
		switch g := f.overridden(r.soak.judge(f)); {
		case g.Open():
		case g.Change.IsZero():
			return time.Time{}
		case g.Change.After(at):
			at = g.Change
		}
	}
	var groups [][]*window.Window
	if len(r.windows) > 0 && !f.has(capstanv1.GateWindows) {
		groups = append(groups, r.windows)
	}
	switch overridden := f.has(capstanv1.GatePromotionWindows); {
	case overridden:
	case r.cluster != nil && len(r.cluster.windows) > 0:
		groups = append(groups, r.cluster.windows)
	case r.cluster == nil:
		recorded := f.recorded(capstanv1.GatePromotionWindows)
		if recorded != nil && recorded.State != capstanv1.GateOpen {
			if f.Promotion.Status.ExpectedTime == nil {
				return time.Time{}
			}
			if expected := f.Promotion.Status.ExpectedTime.Time; expected.After(at) {
				at = expected
			}
		}
	}
	var v window.Verdict
	switch {
	case len(groups) == 0:
		return at
	case len(groups) > 1 || !at.Equal(f.Now):
		v = window.Judge(at, groups...)
	case f.has(capstanv1.GateWindows) || len(r.windows) == 0:
		v = once(&r.judged.of(at).cluster, at, groups[0])
	default:
		v = once(&r.judged.of(at).own, at, groups[0])
	}
	if !v.Open {
		return v.Change
	}
	return at
}

// Forecast returns in one sentence when a promotion may continue, and what is uncertain about it, for
// users. approval is whether it also needs one. It is empty if all gates are open and no approval
// is needed.
func (r Rules) Forecast(f Facts, environment string, approval bool) string {
	closed := FirstClosed(r.Judge(f))
	if closed == nil && !approval {
		return ""
	}
	var parts []string
	if r.soak != nil && !r.soak.Done(f) {
		counted, status := f.soaked()
		if status != nil && status.CountedTime != nil {
			counted += max(0, f.Now.Sub(status.CountedTime.Time))
		}
		parts = append(parts, fmt.Sprintf("soaked %s of %s", period.Text(min(counted, r.soak.For)), period.Text(r.soak.For)))
	}
	if closed != nil && (closed.Type != capstanv1.SoakGate || closed.State == capstanv1.GateInvalid) {
		parts = append(parts, closed.Message)
	}
	if text := r.forecastChecks(f, closed); text != "" {
		parts = append(parts, text)
	}
	if approval {
		parts = append(parts, "needs an approval")
	}
	var when string
	switch at := r.Expected(f); {
	case closed == nil:
		when = fmt.Sprintf("%s may enter %q", f.Revision, environment)
	case closed.State == capstanv1.GateInvalid:
		when = fmt.Sprintf("%s cannot enter %q", f.Revision, environment)
	case at.IsZero():
		when = fmt.Sprintf("it is not known when %s may enter %q", f.Revision, environment)
		if closed.Type == capstanv1.SoakGate {
			parts = append([]string{closed.Message}, parts...)
		}
	default:
		when = fmt.Sprintf("%s may enter %q on %s", f.Revision, environment, in(at, r.zone()))
		if r.soak != nil && !r.soak.Done(f) {
			when += fmt.Sprintf(" if %q stays healthy", f.Source)
		}
	}
	return strings.Join(append([]string{when}, parts...), "; ")
}

// zone returns the zone in which the users of the rules think: that of the first window that has one.
func (r Rules) zone() string {
	all := r.named
	if r.cluster != nil {
		all = slices.Concat(all, r.cluster.named)
	}
	for _, n := range all {
		if n.zone != "" {
			return n.zone
		}
	}
	return "UTC"
}

// in returns an instant as text in a zone, to the minute.
func in(at time.Time, zone string) string {
	place, err := window.Zone(zone)
	if err != nil {
		zone, place = "UTC", time.UTC
	}
	return at.In(place).Format("Mon 2006-01-02 15:04") + " " + zone
}
