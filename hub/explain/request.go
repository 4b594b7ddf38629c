package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// outOfTurn returns whether a promotion is a rollback or by request.
func outOfTurn(p *capstanv1.Promotion) bool {
	return p.Spec.RollbackOf != nil || p.Spec.Request != nil
}

// called returns what to call a promotion: "the promotion of 1.1.0" or "the rollback from 1.1.0 to 1.0.0".
func (f *Facts) called(p *capstanv1.Promotion) string {
	if p.Spec.RollbackOf == nil {
		return "the promotion of " + p.Spec.Revision
	}
	return fmt.Sprintf("the rollback from %s to %s", f.rolledBack(p), p.Spec.Revision)
}

// rolledBack returns the revision that a rollback replaces. If the promotion of it was deleted, it is what the
// environment ran.
func (f *Facts) rolledBack(p *capstanv1.Promotion) string {
	of := p.Spec.RollbackOf
	i := slices.IndexFunc(f.Promotions, func(other capstanv1.Promotion) bool { return other.Name == of.Name })
	switch {
	case i >= 0:
		return f.Promotions[i].Spec.Revision
	case p.Spec.From != nil && strings.Join(p.Spec.From.Revisions, "") != "":
		return strings.Join(p.Spec.From.Revisions, ", ")
	}
	return fmt.Sprintf("promotion %d", of.Number)
}

// cause returns a clause about what caused a promotion; empty if its source did.
func cause(p *capstanv1.Promotion) string {
	switch by := p.Spec.Request; {
	case by != nil && by.By == "":
		return fmt.Sprintf(", requested by PromotionRequest %s,", by.Name)
	case by != nil:
		return fmt.Sprintf(", requested by %s (%s),", by.By, trim(by.Reason))
	case p.Spec.RollbackOf != nil:
		return fmt.Sprintf(", made because Promotion %s failed,", p.Spec.RollbackOf.Name)
	}
	return ""
}

// held explains an environment that a rollback or a request holds. runs is whether it runs the candidate.
func (f *Facts) held(i int, q decision.Question, newest *capstanv1.Promotion, runs bool) (string, []string) {
	candidate := q.Source.Agreed.Revision
	until := fmt.Sprintf("%s is not promoted until %q agrees on another revision, or a PromotionRequest for %s is created", candidate, q.Source.Name, candidate)
	again := f.command("promote", f.Pipeline.Spec.Environments[i].Name, "--revision="+candidate, "--reason=WHY")
	if newest != nil && outOfTurn(newest) && (newest.Status.Phase == capstanv1.PhaseFailed || newest.Status.Phase == capstanv1.PhaseRejected) {
		why, commands := f.ended(i, newest)
		if runs {
			return why, commands
		}
		return fmt.Sprintf("%s %s.", why, until), append(commands, again)
	}
	if runs {
		return upToDate(q), nil
	}
	by := "a rollback or a request"
	if p := f.holds(i, q); p != nil {
		by = strings.TrimSuffix(f.called(p)+cause(p), ",")
	}
	return fmt.Sprintf("%s: the environment has been held since %s.", until, by) + f.unready(i), []string{again}
}

// holds returns the newest promotion that holds an environment; nil if its Promotion was deleted.
func (f *Facts) holds(i int, q decision.Question) *capstanv1.Promotion {
	var newest *capstanv1.Promotion
	for j := range f.Promotions {
		p := &f.Promotions[j]
		e := decision.EntryOf(p)
		if p.Spec.Pipeline.UID == f.Pipeline.UID && p.Spec.Environment == f.Pipeline.Spec.Environments[i].Name && outOfTurn(p) &&
			e.Source == q.Source.Name && e.Holds() && e.Hold >= q.Source.Agreed.Sequence && (newest == nil || p.Spec.Number > newest.Spec.Number) {
			newest = p
		}
	}
	return newest
}

// plain matches words that a shell takes as they are.
var plain = regexp.MustCompile(`^[A-Za-z0-9._:@/+=-]+$`)

// command returns a command of capstan about the Pipeline, with arguments that a shell takes as single words.
func (f *Facts) command(verb string, arguments ...string) string {
	words := []string{"capstan", verb, f.Pipeline.Namespace + "/" + f.Pipeline.Name}
	for _, argument := range arguments {
		if !plain.MatchString(argument) {
			argument = "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
		}
		words = append(words, argument)
	}
	return strings.Join(words, " ")
}

// unnamedChecks returns a sentence about the checks of a verification that have not passed, and that the
// message does not name; empty if there is none.
func unnamedChecks(p *capstanv1.Promotion) string {
	var names []string
	for i := range p.Status.Checks {
		c := &p.Status.Checks[i]
		if quoted := strconv.Quote(c.Name); (!c.Done || c.Verdict != capstanv1.CheckPass) && !strings.Contains(p.Status.Message, "check "+quoted) {
			names = append(names, quoted)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(" Check %s has not passed yet.", names[0])
	}
	return fmt.Sprintf(" Checks that have not passed yet: %s.", strings.Join(names, ", "))
}
