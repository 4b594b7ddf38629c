package decision

import (
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/revision"
)

type (
	// Fleet is the short name of quorum.Fleet in this package.
	Fleet = quorum.Fleet
	// Target is the short name of quorum.Target in this package.
	Target = quorum.Target
)

// Record returns the agreement to be kept in Pipeline.status: the last one, or the new
// revision with the sequence raised by one. Another name of the same content is no new
// revision. Mixed, unready and stale targets do not agree, so the last agreement stays
// during a roll-out.
//
// If the status was lost, the highest sequence is read from outbound: the Promotions whose
// source is the environment. A hold of them is kept: the revision that it keeps out is not known.
func Record(last *pipelinesv1.AgreedRevision, fleet Fleet, outbound []Entry) *pipelinesv1.AgreedRevision {
	agreed, ok := fleet.Agree()
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
