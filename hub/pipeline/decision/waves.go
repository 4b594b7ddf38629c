package decision

import (
	"cmp"
	"slices"
	"sync"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// FirstStage returns the place of the first stage of the environment of which environment i of a Pipeline is one.
func FirstStage(p *pipelinesv1.Pipeline, i int) int {
	for !p.Spec.Environments[i].Stage.First {
		i--
	}
	return i
}

// Moved returns the first one of the clusters of a promotion into a stage, as namespace/name, that belongs to another stage of the same
// environment now, by the targets and the status of the Pipeline; empty if none does. A cluster that was only removed, or is no longer selected, has not
// moved: what is sent to it changes no other wave. It counts if the promotion failed, because that may be due to this cluster.
func Moved(p *pipelinesv1.Pipeline, environment string, clusters []string, failed bool) string {
	i := slices.IndexFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == environment })
	if i < 0 || p.Spec.Environments[i].Stage == nil || len(clusters) == 0 {
		return ""
	}
	own, others := map[string]bool{}, map[string]bool{}
	for j := range p.Spec.Environments[i].Targets { // The status may stand for an earlier selection.
		if ref := p.Spec.Environments[i].Targets[j].ClusterRef; ref != nil {
			own[cmp.Or(ref.Namespace, p.Namespace)+"/"+ref.Name] = true
		}
	}
	for j := range p.Spec.Environments {
		switch {
		case p.Spec.Environments[j].Base() != p.Spec.Environments[i].Base():
		case j == i:
			addMembers(own, p, j)
		default:
			addMembers(others, p, j)
		}
	}
	at := slices.IndexFunc(clusters, func(c string) bool { return !own[c] && (others[c] || failed) })
	if at < 0 {
		return ""
	}
	return clusters[at]
}

// addMembers adds the clusters of environment i of a Pipeline, as namespace/name, by its status.
func addMembers(all map[string]bool, p *pipelinesv1.Pipeline, i int) {
	for _, m := range p.Status.Environments[p.Spec.Environments[i].Name].Members() {
		if m.ClusterRef != nil {
			all[cmp.Or(m.ClusterRef.Namespace, p.Namespace)+"/"+m.ClusterRef.Name] = true
		}
	}
}

// FailedInWave returns the environment in which a revision failed, or from which it was taken out, and which is another wave of the
// environment of which environment i of a Pipeline is one; empty if there is none. The waves behind environment i do not count. Those that
// have no clusters or do not exist any more do, and so does the environment itself from before it had waves. If the clusters of a wave left
// the environment after the revision was sent to them, and before it was known to work there, it counts as failed.
//
// source is the agreement from which the revision comes: if the environment before the waves agreed on the revision again since, it is a
// new roll-out.
func FailedInWave(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion, i int, source capstanv1.PromotionSource, candidate string) string {
	into, line := &p.Spec.Environments[i], LineOf(p)
	place := func(name string) int {
		return slices.IndexFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == name })
	}
	members := sync.OnceValue(func() map[string]bool {
		all := map[string]bool{}
		for j := range p.Spec.Environments {
			if p.Spec.Environments[j].Base() == into.Base() {
				addMembers(all, p, j)
			}
		}
		return all
	})
	left := func(clusters []string) bool {
		return len(clusters) > 0 && !slices.ContainsFunc(clusters, func(c string) bool { return members()[c] })
	}
	var judged []string
	for j := range promotions {
		of := &promotions[j].Spec
		if of.BaseEnvironment() != into.Base() || slices.Contains(judged, of.Environment) {
			continue
		}
		judged = append(judged, of.Environment)
		at := place(of.Environment)
		if at >= i {
			continue
		}
		failed := LedgerOf(line, promotions, of.Environment, 0).takenOut(line.App, candidate, at >= 0, left)
		if failed == nil {
			continue
		}
		theirs := origins(line, promotions, agreement{failed.Source, max(failed.Sequence, failed.Hold)}, candidate)
		later, known := isLater(ways(p, promotions, agreement{source.Environment, source.Sequence}, candidate), theirs)
		if known && !later || !known && source.Sequence == 1 && !anyExists(p, theirs) {
			return of.Environment
		}
	}
	return ""
}

// takenOut returns the promotion of a revision of an application that failed in the environment or was rolled back; nil if none was, or
// if a later one succeeded. An environment that exists shows by itself whether a revision that was late runs there. left returns
// whether clusters left the environment: then one that was interrupted counts as failed, unless the revision had succeeded before, and
// the environment got no other one since.
func (l Ledger) takenOut(app pipelinesv1.LocalAppReference, candidate string, exists bool, left func(clusters []string) bool) *Entry {
	var interrupted *Entry
	for i := range l.entries {
		e := &l.entries[i]
		same, succeeded := revision.Same(e.Revision, candidate), e.Phase == capstanv1.PhaseSucceeded
		switch {
		case e.Intent.App != app:
		case interrupted != nil: // What was carried out before it decides.
			switch {
			case same && succeeded:
				return nil
			case succeeded, FailedInEnvironment(e.Phase, e.Reason), e.CarriedOut && (!same || !e.interrupted()), e.Retried:
				return interrupted
			}
		case e.Rollback() && !same && !e.withdrawn():
			if of := l.numbered(e.Pipeline, e.RollbackOf); of != nil && revision.Same(of.Revision, candidate) {
				return of
			}
		case same && (Judged(e.Phase, e.Reason) || !exists && FailedInEnvironment(e.Phase, e.Reason)):
			return e
		case same && !exists && e.interrupted() && left(e.Clusters):
			if interrupted = e; e.Retried {
				return e
			}
		case same && succeeded:
			return nil
		}
	}
	return interrupted
}

// interrupted returns whether a promotion was carried out, and nothing says whether its revision works there.
func (e *Entry) interrupted() bool {
	replaced := e.Phase == capstanv1.PhaseSuperseded && (e.Reason == string(EnvironmentRemoved) || e.Reason == string(NewerPromotion))
	return e.CarriedOut && (!e.Phase.Finished() || replaced)
}
