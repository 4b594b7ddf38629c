package pipeline

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/index"
)

// The decision from the reconciler's own observations is the same as the decision from the
// status that it writes about them. So an explanation, which has only the status, never
// differs from the decision.
func TestStatusCarriesTheDecision(t *testing.T) {
	const candidate = "1.1"
	now := time.Unix(1_700_000_000, 0)
	found := func(revision string, ready, fresh bool) observation {
		s := observation{known: true, obs: index.Observation{Found: true, Ready: ready, Revision: revision, At: now}}
		s.target = quorum.Target{Fresh: fresh, Ready: ready && fresh, Revision: revision}
		if !fresh {
			s.err = "no answer"
		}
		return s
	}
	absent := func(fresh bool) observation {
		return observation{known: true, obs: index.Observation{At: now}, target: quorum.Target{Fresh: fresh}, err: "not found"}
	}
	kinds := map[string]observation{
		"runs the candidate": found(candidate, true, true),
		"runs another":       found("1.0", true, true),
		"not ready":          found(candidate, false, true),
		"stale":              found(candidate, true, false),
		"absent":             absent(true),
		"absent and stale":   absent(false),
		"not observed yet":   {err: "not observed yet"},
		"not resolved":       unresolved(fmt.Errorf("no such cluster")),
	}
	r := New(Options{Clock: testclock.NewFakeClock(now)})
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
		Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "shop"}}}, {Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "shop"}}}},
		Promotion:    &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
	}}
	reasons := map[decision.Reason]bool{}
	for earlierName, earlier := range kinds {
		for sourceName, source := range kinds {
			for intoName, into := range kinds {
				t.Run(fmt.Sprintf("%s, then %s into %s", earlierName, sourceName, intoName), func(t *testing.T) {
					g := NewWithT(t)
					p := p.DeepCopy()
					// An earlier reconcile wrote its status.
					p.Status.Environments = r.environments(p, observations{{earlier}, {earlier}}, nil, nil)
					seen := observations{{source}, {into}}
					p.Status.Environments = r.environments(p, seen, nil, nil)
					p.Status.Environments["dev"].Agreed = &pipelinesv1.AgreedRevision{Revision: candidate, Sequence: 1}
					decided := decision.Decide(decision.QuestionOf(p, seen.fleets(p), nil, 1))
					g.Expect(decision.Decide(decision.QuestionOf(p, quorum.FleetsOf(p), nil, 1))).To(Equal(decided))
					reasons[decided.Reason] = true
				})
			}
		}
	}
	NewWithT(t).Expect(reasons).To(HaveLen(4), "not agreed, not fresh, up to date, new: %v", reasons)
}
