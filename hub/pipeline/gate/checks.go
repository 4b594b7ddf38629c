package gate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/check"
)

// Queries returns the checks that are measured at an endpoint.
func (r Rules) Queries() []check.Check {
	var all []check.Check
	for _, c := range r.checks {
		if c.IsQuery() {
			all = append(all, c)
		}
	}
	return all
}

// Measured returns the rules with what this process has measured of the Queries. A query that is not in
// known was not measured yet.
func (r Rules) Measured(known []capstanv1.CheckStatus) Rules {
	r.measured, r.knowsMeasured, r.judged = known, true, &verdicts{}
	return r
}

// MeasureAt returns when to begin to measure the Queries, so that their results are known when the other
// gates are open; zero if that is not known, or if no result matters.
func (r Rules) MeasureAt(f Facts) time.Time {
	if f.has(capstanv1.GateChecks) {
		return time.Time{}
	}
	at := r.expectedOthers(f)
	if at.IsZero() {
		return at
	}
	var lead time.Duration
	for _, c := range r.Queries() {
		lead = max(lead, time.Duration(c.Passes)*c.Interval)
	}
	return at.Add(-lead)
}

// Checks returns the states of the checks, as the status of the promotion keeps them: one for each.
func (r Rules) Checks(f Facts) []capstanv1.CheckStatus {
	if len(r.checks) == 0 || r.wrongChecks != nil {
		return nil
	}
	all := make([]capstanv1.CheckStatus, len(r.checks))
	var observed *check.Observed
	for i, c := range r.checks {
		all[i] = capstanv1.CheckStatus{Name: c.Name}
		switch {
		case c.IsQuery():
			if j := slices.IndexFunc(r.measured, func(s capstanv1.CheckStatus) bool { return s.Name == c.Name }); j >= 0 {
				all[i] = r.measured[j]
			}
		case f.Pipeline != nil && f.Promotion != nil:
			if observed == nil {
				o := check.Observe(f.Pipeline, f.Promotion)
				observed = &o
			}
			result := c.Observe(*observed)
			all[i] = result.Status(c)
			all[i].Done = result.Verdict == capstanv1.CheckPass
		}
		if f.Promotion != nil {
			all[i] = check.Keep(f.Promotion.Status.Checks, all[i])
		}
	}
	return all
}

// statuses returns the states of the checks at an instant, which are judged once.
func (r Rules) statuses(f Facts) []capstanv1.CheckStatus {
	known := r.judged.of(f.Now)
	if known.checks == nil {
		known.checks = r.Checks(f)
	}
	return known.checks
}

// judgeChecks returns the result for the checks. Of one that is not known here it is what the status of
// the promotion says.
func (r Rules) judgeChecks(f Facts) Result {
	g := Result{Name: capstanv1.GateChecks, Type: capstanv1.CheckGate, State: capstanv1.GateClosed}
	if !r.knowsMeasured && len(r.Queries()) > 0 {
		if recorded := f.recorded(capstanv1.GateChecks); recorded != nil {
			g.State, g.Reason, g.Message = recorded.State, recorded.Reason, recorded.Message
			return g
		}
	}
	for i, s := range r.statuses(f) {
		if check.Passed(&s) {
			continue
		}
		c := r.checks[i]
		switch s.Verdict {
		case capstanv1.CheckPass:
			g.Reason, g.Message = ReasonCheckPending, fmt.Sprintf("check %q must pass %d times in sequence", c.Name, c.Passes)
		case capstanv1.CheckFail:
			g.Reason, g.Message = ReasonCheckFailed, fmt.Sprintf("check %q fails: %s", c.Name, s.Message)
		case capstanv1.CheckNoData:
			g.Reason, g.Message = ReasonCheckNoData, fmt.Sprintf("check %q has no result: %s", c.Name, s.Message)
		case capstanv1.CheckError:
			g.Reason, g.Message = ReasonCheckError, fmt.Sprintf("check %q cannot be measured: %s", c.Name, s.Message)
		default:
			g.Reason, g.Message = ReasonCheckPending, fmt.Sprintf("check %q was not measured yet; it is when the other gates are open, or soon will be", c.Name)
		}
		return g
	}
	g.State, g.Reason, g.Message = capstanv1.GateOpen, ReasonChecksPassed, "all checks pass"
	return g
}

// forecastChecks returns which checks must still pass; empty if the first closed gate says it, or if none must.
func (r Rules) forecastChecks(f Facts, closed *Result) string {
	var names []string
	switch {
	case closed == nil || r.wrongChecks != nil || f.has(capstanv1.GateChecks):
		return ""
	case closed.Type != capstanv1.CheckGate: // They are judged again when it opens.
		for _, c := range r.checks {
			names = append(names, strconv.Quote(c.Name))
		}
	default:
		if names = r.unpassed(f); len(names) > 1 {
			return "checks that have not passed yet: " + strings.Join(names, ", ")
		}
		return ""
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "check " + names[0] + " must pass"
	}
	return "checks " + strings.Join(names, ", ") + " must pass"
}

// unpassed returns the quoted names of the checks that have not passed. Of a query that is not known here it
// uses what the status of the promotion says.
func (r Rules) unpassed(f Facts) []string {
	var names []string
	for i, s := range r.statuses(f) {
		if r.checks[i].IsQuery() && !r.knowsMeasured && f.Promotion != nil {
			if j := slices.IndexFunc(f.Promotion.Status.Checks, func(known capstanv1.CheckStatus) bool { return known.Name == s.Name }); j >= 0 {
				s = f.Promotion.Status.Checks[j]
			}
		}
		if !check.Passed(&s) {
			names = append(names, strconv.Quote(s.Name))
		}
	}
	return names
}

// checksMayPass returns whether no check is known not to pass: those that were not measured often enough
// may pass in time.
func (r Rules) checksMayPass(f Facts) bool {
	if r.wrongChecks != nil {
		return false
	}
	if g := r.judgeChecks(f); !g.Open() && g.Reason != ReasonCheckPending {
		return false
	}
	return !slices.ContainsFunc(r.statuses(f), func(s capstanv1.CheckStatus) bool {
		return s.Verdict != "" && s.Verdict != capstanv1.CheckPass
	})
}
