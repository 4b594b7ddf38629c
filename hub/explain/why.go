package explain

import (
	"fmt"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/strategy"
)

// first explains the first environment, where new revisions appear.
func (f *Facts) first(fleet quorum.Fleet) string {
	if f.invalid() {
		return "nothing is promoted from it until the spec is fixed."
	}
	if revision, ok := fleet.Agree(); ok {
		return fmt.Sprintf("%s runs %s, which is the revision to promote.", f.everyTarget(0), revision)
	}
	why := f.differ(0)
	if why == f.fleetMessage(0) { // It follows.
		return "there is no revision to promote."
	}
	return fmt.Sprintf("there is no revision to promote: %s.", why)
}

// inFlight explains what a promotion under way waits for, what caused one that is by request or a rollback,
// and what waits for it.
func (f *Facts) inFlight(i int, p *capstanv1.Promotion) (string, []string) {
	why, commands := f.waitsFor(i, p)
	if outOfTurn(p) {
		why = fmt.Sprintf("%s is in flight: %s", strings.Replace(f.called(p), "the ", "a ", 1)+cause(p), why)
	}
	return why + f.behind(i, p), commands
}

// behind returns a sentence about a revision of the source that waits until a promotion under way has ended;
// empty if none does.
func (f *Facts) behind(i int, p *capstanv1.Promotion) string {
	q := f.question(i)
	agreed := q.Source.Agreed
	if decision.Decide(q).Reason != decision.Busy || agreed == nil || revision.Same(agreed.Revision, p.Spec.Revision) ||
		agreed.Sequence <= q.Into.Ledger.Hold(q.Source.Name) {
		return ""
	}
	return fmt.Sprintf(" Until it has ended, %s of environment %q waits.", agreed.Revision, q.Source.Name)
}

// waitsFor explains what a promotion under way waits for.
func (f *Facts) waitsFor(i int, p *capstanv1.Promotion) (string, []string) {
	switch p.Status.Phase {
	case capstanv1.PhaseAwaitingGates:
		why := gate.For(f.Pipeline, i).Of(p).Forecast(gate.FactsOf(f.Pipeline, p, f.Now), p.Spec.Environment, p.WaitsForApproval())
		if why == "" {
			return fmt.Sprintf("all gates of %s are open; the hub continues next.", p.Spec.Revision), nil
		}
		if p.WaitsForApproval() {
			return why + ", which you can give already" + f.byHTTP(i) + ".", f.approve(i, p)
		}
		return why + ".", nil
	case capstanv1.PhaseAwaitingApproval:
		return fmt.Sprintf("%s has waited %s for an approval: approve it (you need the ClusterRole capstan-approver)%s.",
			p.Spec.Revision, f.ago(p.Status.StartTime), f.byHTTP(i)), f.approve(i, p)
	case capstanv1.PhasePromoting:
		if f.Pipeline.Spec.Suspend {
			return fmt.Sprintf("%s is blocked while the Pipeline is suspended.", p.Spec.Revision), nil
		}
		return fmt.Sprintf("%s has been under way for %s: %s.", p.Spec.Revision, f.ago(p.Status.StartTime), trim(p.Status.Message)), nil
	case capstanv1.PhaseAwaitingMerge:
		if closed := gate.FirstClosed(gate.For(f.Pipeline, i).Of(p).Judge(gate.FactsOf(f.Pipeline, p, f.Now))); closed != nil {
			return fmt.Sprintf("the pull request of %s is open, and must not be merged yet: %s: %s", p.Spec.Revision, closed.Message, p.Status.URL), nil
		}
		return fmt.Sprintf("%s has waited %s for its pull request to be merged: %s", p.Spec.Revision, f.ago(p.Status.StartTime), p.Status.URL), nil
	case capstanv1.PhaseAwaitingRollout:
		if runs, agrees := quorum.FleetOf(f.Pipeline, i).Agree(); agrees && revision.Same(runs, p.Spec.Revision) {
			return fmt.Sprintf("%s runs %s; the hub records this next.", f.everyTarget(i), p.Spec.Revision), nil
		}
		return fmt.Sprintf("waiting for %s to run %s%s.", f.everyTarget(i), p.Spec.Revision, f.blocked(i, p.Spec.Revision)), nil
	case capstanv1.PhaseVerifying:
		return fmt.Sprintf("%s is being verified: %s.", p.Spec.Revision, trim(p.Status.Message)) + unnamedChecks(p), nil
	case "", capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded:
	}
	return fmt.Sprintf("the promotion of %s was created %s ago and starts next; if this stays, check that the hub runs.", p.Spec.Revision, f.ago(&p.CreationTimestamp)), nil
}

// idle explains why no promotion into an environment is under way, from the row of the
// hub's decision table.
func (f *Facts) idle(i int, newest *capstanv1.Promotion) (string, []string) {
	env, source := &f.Pipeline.Spec.Environments[i], f.Pipeline.Spec.Environments[i-1].Name
	if f.invalid() {
		return "nothing is promoted until the spec is fixed.", nil
	}
	also := func(why string) string { return why + f.unready(i) }
	if promotion := f.Pipeline.PromotionFor(env); promotion != nil {
		if wrong := strategy.Check(promotion.Strategy); wrong != "" {
			return also(fmt.Sprintf("nothing can be promoted into it: in promotion.strategy, %s.", wrong)), nil
		}
	}
	q := f.question(i)
	verdict := decision.Decide(q)
	if coming := f.coming(i); coming != "" && !verdict.Create && verdict.Reason != decision.Suspended && q.Source.Agreed != nil && runsCandidate(q) {
		return also(fmt.Sprintf("%s follows when %q runs it: the waves follow each other.", coming, source)), nil
	}
	switch verdict.Reason {
	case decision.Suspended:
		return also(suspended(q)), nil
	case decision.NoPromotion:
		return also("nothing is promoted into it: neither the promotion of the environment nor spec.promotion is set."), nil
	case decision.SourceNotAgreed:
		return fmt.Sprintf("waiting until %s the same revision: %s.", f.allTargets(i-1), f.differ(i-1)), nil
	case decision.SourceMadeByHand:
		if runsCandidate(q) {
			return upToDate(q), nil
		}
		if q.Into.ApprovedBefore {
			return also(fmt.Sprintf("%s is not promoted: it did not come into %q with the approval that is for all waves, or %q was changed outside the pipeline.",
				q.Source.Agreed.Revision, f.Pipeline.Spec.Environments[decision.FirstStage(f.Pipeline, i)].Name, source)), nil
		}
		return also(fmt.Sprintf("%s is not promoted: environment %q was changed outside the pipeline, and got it neither from %q nor by a promotion.",
			q.Source.Agreed.Revision, source, f.Pipeline.Spec.Environments[0].Name)), nil
	case decision.SourceNotVerified:
		if runsCandidate(q) {
			return upToDate(q), nil
		}
		return also(fmt.Sprintf("%s is not promoted: it is not verified in %q, from which it comes.", q.Source.Agreed.Revision, source)), nil
	case decision.SourceHeld:
		if runsCandidate(q) {
			return upToDate(q), nil
		}
		if q.Source.Ledger.RollsBack(q.Source.Agreed.Revision) {
			return also(fmt.Sprintf("%s is not promoted: environment %q is being rolled back from it.", q.Source.Agreed.Revision, source)), nil
		}
		return also(fmt.Sprintf("%s is not promoted: environment %q got it by a rollback or by request. It is promoted when environment %q runs it too, or by a PromotionRequest.",
			q.Source.Agreed.Revision, source, f.Pipeline.Spec.Environments[0].Name)), nil
	case decision.FailedInAWave:
		if runsCandidate(q) {
			return upToDate(q), nil
		}
		return also(fmt.Sprintf("%s is not promoted: it failed in %q, or was taken out of it, or the clusters of that wave left before they had verified it. Release another revision, or create a PromotionRequest for %s.",
			q.Source.Agreed.Revision, q.FailedInWave, q.Source.Agreed.Revision)), nil
	case decision.ClustersNotKnown:
		return fmt.Sprintf("nothing is promoted into it: it is not known which clusters environment %q selects.", env.Base()), nil
	case decision.Held:
		return f.held(i, q, newest, runsCandidate(q))
	case decision.Requested: // Requests are not explained: their own status says what became of them.
	case decision.RolledBack:
		return fmt.Sprintf("it is rolled back from %s to %s next, because Promotion %s failed (%s); if this stays, check that the hub runs.",
			q.Into.Ledger.Newest().Revision, verdict.Revision, q.Into.Ledger.Newest().Name, q.Into.Ledger.Newest().Reason), nil
	case decision.Busy: // The promotion is in flight, and is explained instead.
		return "the promotion in flight must end first.", nil
	case decision.NoTargets:
		return "nothing can be promoted into it: it has no targets.", nil
	case decision.EnvironmentNotFresh:
		return fmt.Sprintf("%s is not promoted because it is unknown what this environment runs%s.", q.Source.Agreed.Revision, f.blocked(i, "")), nil
	case decision.UpToDate:
		if newest != nil && decision.FailedInEnvironment(newest.Status.Phase, newest.Status.Reason) {
			return f.ended(i, newest)
		}
		return upToDate(q), nil
	case decision.KeepsQualified: // The promotion that it keeps is in flight, and is explained instead.
		return fmt.Sprintf("%s soaks in %q.", q.Source.Agreed.Revision, source), nil
	case decision.EnvironmentAtWork:
		return also(fmt.Sprintf("it shows %s, as environment %q does, and is not ready yet: nothing is promoted while its controller is at work.", q.Source.Agreed.Revision, source)), nil
	case decision.EnvironmentAhead:
		return also(fmt.Sprintf("%s is not promoted: a later revision was promoted into the environment before %q became its source. When %q gets another revision, that is promoted.",
			q.Source.Agreed.Revision, source, source)), nil
	case decision.AlreadyDecided:
		if newest == nil {
			former := q.Into.Ledger.Newest()
			return also(fmt.Sprintf("%s is not promoted again: the promotion %d of a former Pipeline of this name ended with %s. To promote it again, delete that Promotion.",
				former.Revision, former.Number, former.Phase)), nil
		}
		return f.ended(i, newest)
	case decision.CandidateRejected:
		return also(fmt.Sprintf("%s is not promoted: it is in spec.reject of the Pipeline. Take it off the list to promote it.", q.Source.Agreed.Revision)), nil
	case decision.TargetsJoined:
		return fmt.Sprintf("%s is promoted next to the clusters that joined the wave; if this stays, check that the hub runs.", verdict.Revision), nil
	case decision.Reissued:
		return fmt.Sprintf("%s is promoted next, with the strategy that was edited; if this stays, check that the hub runs.", verdict.Revision), nil
	case decision.NotVerified:
		return fmt.Sprintf("%s runs there and is verified next; if this stays, check that the hub runs.", verdict.Revision), nil
	case decision.IntentChanged, decision.PromotionRestored, decision.NewRevision:
		return fmt.Sprintf("%s is promoted next; if this stays, check that the hub runs.", verdict.Revision), nil
	}
	return "", nil
}

func runsCandidate(q decision.Question) bool {
	runs, ok := q.Into.Agree()
	return ok && revision.Same(runs, q.Source.Agreed.Revision)
}

func upToDate(q decision.Question) string {
	return fmt.Sprintf("nothing to promote: it runs %s, as environment %q does.", q.Source.Agreed.Revision, q.Source.Name)
}

// coming returns the revision that the first wave of the environment runs and wave i does not get yet, because the wave before it
// does not run it; empty if there is none.
func (f *Facts) coming(i int) string {
	environments := f.Pipeline.Spec.Environments
	if s := environments[i].Stage; s == nil || s.First {
		return ""
	}
	first := i
	for !environments[first].Stage.First {
		first--
	}
	agreed := func(i int) string {
		if s := f.Pipeline.Status.Environments[environments[i].Name]; s != nil && s.Agreed != nil {
			return s.Agreed.Revision
		}
		return ""
	}
	if coming := agreed(first); coming != "" && !revision.Same(coming, agreed(i-1)) {
		return coming
	}
	return ""
}

// suspended explains an environment of a suspended Pipeline: it says what is promoted when
// the Pipeline is not suspended any more.
func suspended(q decision.Question) string {
	q.Suspended = false
	verdict := decision.Decide(q)
	switch {
	case !verdict.Create:
		return "nothing is promoted while the Pipeline is suspended, and nothing is due."
	case verdict.Reason == decision.RolledBack:
		return fmt.Sprintf("the Pipeline is suspended; when spec.suspend is false, it is rolled back to %s, because Promotion %s failed (%s).",
			verdict.Revision, q.Into.Ledger.Newest().Name, q.Into.Ledger.Newest().Reason)
	case verdict.Reason == decision.NotVerified:
		return fmt.Sprintf("the Pipeline is suspended; when spec.suspend is false, %s, which runs there, is verified.", verdict.Revision)
	case q.Into.Intent.Manual:
		return fmt.Sprintf("the Pipeline is suspended; when spec.suspend is false, %s waits for an approval to be promoted into it.", verdict.Revision)
	}
	return fmt.Sprintf("the Pipeline is suspended; when spec.suspend is false, %s is promoted into it at once.", verdict.Revision)
}

// unready returns a sentence about targets of an environment that are not ready, if its
// explanation has another subject.
func (f *Facts) unready(i int) string {
	if o := f.obstacles(i, ""); o != "" {
		return " Not ready: " + o + "."
	}
	return ""
}

// ended explains why a promotion that ended does not start again automatically.
func (f *Facts) ended(i int, p *capstanv1.Promotion) (string, []string) {
	retry := []string{f.command("retry", p.Spec.Environment)}
	switch p.Status.Phase {
	case capstanv1.PhaseFailed:
		if decision.FailedInEnvironment(p.Status.Phase, p.Status.Reason) {
			why := fmt.Sprintf("%s failed %s ago (%s: %s); fix the application, then release another revision or start the promotion again.",
				f.called(p)+cause(p), f.ago(p.Status.FinishTime), p.Status.Reason, trim(p.Status.Message))
			if s := f.Pipeline.Status.Environments[p.Spec.Environment]; s != nil && s.RollbackAdvice != "" {
				why += " " + strings.ToUpper(s.RollbackAdvice[:1]) + s.RollbackAdvice[1:] + "."
				if to, _ := decision.Rollback(f.question(i)); to != nil {
					retry = append(retry, f.command("rollback", f.Pipeline.Spec.Environments[i].Name, "--reason=WHY"))
				}
			}
			return why + f.unready(i), retry
		}
		return fmt.Sprintf("%s failed %s ago (%s: %s); fix this, then edit the Pipeline or start the promotion again.",
			f.called(p)+cause(p), f.ago(p.Status.FinishTime), p.Status.Reason, trim(p.Status.Message)) + f.unready(i), retry
	case capstanv1.PhaseRejected:
		if p.Status.Reason == string(decision.RejectedByUser) {
			return fmt.Sprintf("%s was rejected %s ago (%s); it is not promoted until there is another revision, or you start the promotion again.",
				f.called(p)+cause(p), f.ago(p.Status.FinishTime), trim(p.Status.Message)) + f.unready(i), retry
		}
		return fmt.Sprintf("the pull request of %s was closed unmerged %s ago (%s); it stays closed until there is another revision, or you start the promotion again.",
			p.Spec.Revision, f.ago(p.Status.FinishTime), p.Status.URL) + f.unready(i), retry
	case capstanv1.PhaseSuperseded:
		return fmt.Sprintf("%s was superseded %s ago (%s: %s).",
			f.called(p)+cause(p), f.ago(p.Status.FinishTime), p.Status.Reason, trim(p.Status.Message)) + f.unready(i), retry
	case capstanv1.PhaseSucceeded:
		if quorum.FleetOf(f.Pipeline, i).Shown(p.Spec.Revision) {
			return fmt.Sprintf("%s was promoted %s ago, and %s shows it; nothing is promoted while controllers are at work%s.",
				p.Spec.Revision, f.ago(p.Status.FinishTime), f.everyTarget(i), f.blocked(i, p.Spec.Revision)), nil
		}
		return fmt.Sprintf("%s was promoted %s ago; not every target runs it now, and Capstan will not promote it again on its own%s.",
			p.Spec.Revision, f.ago(p.Status.FinishTime), f.blocked(i, p.Spec.Revision)), retry
	case "", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
	}
	return "", nil
}

// approve returns the commands that approve a promotion: by Kubernetes, and by HTTP if there
// is a key.
func (f *Facts) approve(i int, p *capstanv1.Promotion) []string {
	commands := []string{f.command("approve", p.Spec.Environment, "--revision="+p.Spec.Revision)}
	if f.signed(i) {
		commands = append(commands, fmt.Sprintf("capstan sign \"$HOOK\"'%s' --key-file=KEY --output=curl", pathOf(p)))
	}
	return commands
}

// byHTTP returns a clause about the second way to approve, if there is one.
func (f *Facts) byHTTP(i int) string {
	if f.signed(i) {
		return ", or with the HTTP call that capstan sign prints for the hub's address $HOOK"
	}
	return ""
}

// signed returns whether approvals by HTTP can be signed: the environment or the Pipeline
// names a key.
func (f *Facts) signed(i int) bool {
	named := func(p *pipelinesv1.Promotion) bool { return p != nil && p.Strategy.SecretRef != nil }
	return named(f.Pipeline.Spec.Environments[i].Promotion) || named(f.Pipeline.Spec.Promotion)
}
