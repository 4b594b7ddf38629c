package view

import (
	"fmt"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/revision"
)

// decided adds to the cells of a Pipeline what the hub decides about the newer revision of each, and which of their promotions
// are rollbacks or by request, and what these wait for. history are all promotions by the name of the Pipeline that the viewer may
// see; a viewer who may not see promotions sees only which newer revision runs in the environment before.
func (f *Facts) decided(p *pipelinesv1.Pipeline, cells []Cell, history []capstanv1.Promotion, scope Scope) {
	seesPromotions := scope.Promotions.Has(p.Namespace)
	var fleets []quorum.Fleet
	for i := range cells {
		env := &p.Spec.Environments[i]
		if seesPromotions && cells[i].Move != nil {
			f.explainMove(cells[i].Move, decision.NewestOf(p.UID, history, env.Name))
		}
		if i == 0 || cells[i].Newer == "" {
			continue
		}
		source := p.Spec.Environments[i-1].Name
		if !seesPromotions {
			cells[i].Next = "runs in " + source
			continue
		}
		if fleets == nil {
			fleets = quorum.FleetsOf(p)
		}
		q := decision.QuestionOf(p, fleets, history, i)
		verdict := decision.Decide(q)
		switch {
		case verdict.Reason == decision.Held:
			cells[i].Held = &Held{Mark: heldMark, Source: source}
		case cells[i].Move != nil && (verdict.Reason == decision.AlreadyDecided || cells[i].underWay() && revision.Same(cells[i].Move.Revision, cells[i].Newer)):
			// The promotion says what it waits for, or why it ended.
		case verdict.Create && revision.Same(verdict.Revision, cells[i].Newer):
			cells[i].Due, cells[i].Next = true, "is ready to promote"
		default:
			if why := because(verdict.Reason, q); why != "" {
				cells[i].Next = "is not promoted: " + why
			}
		}
	}
}

// explainMove adds what the newest promotion into an environment says about itself, if the status of the Pipeline names it.
func (f *Facts) explainMove(m *Move, newest *capstanv1.Promotion) {
	if newest == nil || m.name != newest.Name {
		return
	}
	m.Origin = f.origin(newest)
	if newest.Status.ExpectedTime != nil {
		m.Expected = newest.Status.ExpectedTime.Time
	}
}

// because says why the newer revision of a source is not promoted into an environment; empty if the promotion into it, or what the
// environment runs, shows it.
func because(reason decision.Reason, q decision.Question) string {
	source, into := q.Source.Name, q.Into.Name
	switch reason {
	case decision.Suspended:
		return "the Pipeline is suspended"
	case decision.NoPromotion:
		return fmt.Sprintf("the Pipeline has no promotion into %s", into)
	case decision.ClustersNotKnown:
		return "it is not known which clusters are selected"
	case decision.SourceNotAgreed:
		return fmt.Sprintf("the targets of %s are not all ready with it, or cannot be observed", source)
	case decision.SourceMadeByHand:
		if q.Into.ApprovedBefore {
			return fmt.Sprintf("it came into %s outside the Pipeline, or into the first wave without its approval", source)
		}
		return fmt.Sprintf("it came into %s outside the Pipeline", source)
	case decision.SourceNotVerified:
		return fmt.Sprintf("it was not verified in %s", source)
	case decision.SourceHeld:
		return fmt.Sprintf("it came into %s by a rollback or on request", source)
	case decision.FailedInAWave:
		return "it failed in another wave"
	case decision.NoTargets:
		return fmt.Sprintf("%s has no targets", into)
	case decision.EnvironmentNotFresh:
		return fmt.Sprintf("a target of %s cannot be observed", into)
	case decision.CandidateRejected:
		return "spec.reject of the Pipeline contains it"
	case decision.EnvironmentAhead:
		return fmt.Sprintf("%s got a later revision", into)
	case decision.EnvironmentAtWork:
		return fmt.Sprintf("%s shows it already, and its controller is at work", into)
	case decision.KeepsQualified:
		return "it soaks while an earlier one is promoted"
	case decision.AlreadyDecided:
		return "its promotion has ended; retry it to promote it again"
	case decision.Busy, decision.UpToDate, decision.Held, decision.Requested, decision.RolledBack, decision.Reissued, decision.TargetsJoined,
		decision.NotVerified, decision.IntentChanged, decision.PromotionRestored, decision.NewRevision:
	}
	return ""
}
