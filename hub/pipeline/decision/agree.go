package decision

import (
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Target is what is known of one target of an environment.
type Target struct {
	// Fresh is whether the rest can be relied upon now.
	Fresh bool
	// Ready is whether the application is ready at Revision.
	Ready bool
	// Revision that the application was last seen to run; empty for none.
	Revision string
}

// Agree returns the revision that all targets run at this moment, fresh and
// ready; false when there is none, or there are no targets.
func Agree(targets []Target) (string, bool) {
	if len(targets) == 0 {
		return "", false
	}
	for _, t := range targets {
		if !t.Fresh || !t.Ready || t.Revision == "" || t.Revision != targets[0].Revision {
			return "", false
		}
	}
	return targets[0].Revision, true
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
// empty string stands for a target that runs none.
func Revisions(targets []Target) []string {
	var revisions []string
	seen := map[string]bool{}
	for _, t := range targets {
		if !seen[t.Revision] {
			seen[t.Revision] = true
			revisions = append(revisions, t.Revision)
		}
	}
	return revisions
}

// Record returns the agreement to be kept in Pipeline.status: the last one, with
// its sequence raised by one when the revision is another. Mixed, unready and
// stale targets never count, so the last agreement stays through a roll-out.
//
// Where the status was lost, the Promotions that were decided from the
// environment (outbound) tell where its numbering stood.
func Record(last *pipelinesv1.AgreedRevision, targets []Target, outbound []Entry) *pipelinesv1.AgreedRevision {
	revision, ok := Agree(targets)
	if !ok {
		return last
	}
	if last == nil {
		last = &pipelinesv1.AgreedRevision{}
		for _, e := range outbound {
			if e.Sequence > last.Sequence {
				last = &pipelinesv1.AgreedRevision{Revision: e.Revision, Sequence: e.Sequence}
			}
		}
	}
	if last.Revision == revision {
		return last
	}
	return &pipelinesv1.AgreedRevision{Revision: revision, Sequence: last.Sequence + 1}
}
