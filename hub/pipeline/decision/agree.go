package decision

import (
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/soak"
)

// Target is the observed state of one target of an environment.
type Target struct {
	// Fresh is whether the other fields are current.
	Fresh bool
	// Ready is whether the application is ready at Revision.
	Ready bool
	// Progressing is whether its controller is at work on the application and has not judged it yet.
	Progressing bool
	// Revision that the application was last observed to run; empty for none.
	Revision string
}

// Agree returns the revision that all targets run now, fresh and ready, and true; false if
// there is no such revision, or there are no targets. If the targets name the same content
// differently, it is the first one's revision.
func Agree(targets []Target) (string, bool) {
	if len(targets) == 0 {
		return "", false
	}
	for _, t := range targets {
		if !t.Fresh || !t.Ready || t.Revision == "" || !revision.Same(t.Revision, targets[0].Revision) {
			return "", false
		}
	}
	return targets[0].Revision, true
}

// Observe returns what the targets show of a revision that was promoted to them. A target that
// runs another revision is Unready.
func Observe(targets []Target, promoted string) soak.Verdict {
	if len(targets) == 0 {
		return soak.Unobserved
	}
	verdict := soak.Ready
	for _, t := range targets {
		switch {
		case !t.Fresh:
			verdict = soak.Worst(verdict, soak.Unobserved)
		case t.Ready && revision.Same(t.Revision, promoted):
		case t.Progressing:
			verdict = soak.Worst(verdict, soak.Progressing)
		default:
			verdict = soak.Unready
		}
	}
	return verdict
}

// Fresh returns whether every target is fresh. Nothing is decided from stale ones.
func Fresh(targets []Target) bool {
	for _, t := range targets {
		if !t.Fresh {
			return false
		}
	}
	return true
}

// Revisions returns the distinct revisions of the targets, in their order; an
// empty string stands for a target that runs none. Of revisions with the same content it
// returns the first.
func Revisions(targets []Target) []string {
	var revisions []string
	seen := map[string]bool{}
	for _, t := range targets {
		if content := revision.Content(t.Revision); !seen[content] {
			seen[content] = true
			revisions = append(revisions, t.Revision)
		}
	}
	return revisions
}

// Record returns the agreement to be kept in Pipeline.status: the last one, or the new
// revision with the sequence raised by one. Another name of the same content is no new
// revision. Mixed, unready and stale targets do not agree, so the last agreement stays
// during a roll-out.
//
// If the status was lost, the highest sequence is read from outbound: the Promotions whose
// source is the environment. A hold of them is kept: the revision that it keeps out is not known.
func Record(last *pipelinesv1.AgreedRevision, targets []Target, outbound []Entry) *pipelinesv1.AgreedRevision {
	agreed, ok := Agree(targets)
	if !ok {
		return last
	}
	var held int64
	if last == nil {
		last = &pipelinesv1.AgreedRevision{}
		for _, e := range outbound {
			if e.Sequence > last.Sequence {
				last = &pipelinesv1.AgreedRevision{Revision: e.Revision, Sequence: e.Sequence}
			}
			held = max(held, e.Hold)
		}
	}
	if revision.Same(last.Revision, agreed) {
		return last
	}
	return &pipelinesv1.AgreedRevision{Revision: agreed, Sequence: max(last.Sequence+1, held)}
}
