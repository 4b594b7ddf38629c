package view

import (
	"fmt"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// listOf returns the page of a link to a list.
func listOf(g *WithT, f *Facts, scope Scope, link string) Page {
	u, err := url.Parse(link)
	g.Expect(err).NotTo(HaveOccurred())
	q := ParseQuery(u.Query())
	switch u.Path {
	case ClustersPath:
		return Clusters(f, scope, q)
	case PipelinesPath:
		return Pipelines(f, scope, q)
	case PromotionsPath:
		return Promotions(f, scope, q)
	case BackendsPath:
		return Backends(f, scope, q)
	}
	g.Expect(link).To(BeEmpty(), "no list")
	return Page{}
}

var everyPhase = []capstanv1.PromotionPhase{
	"", capstanv1.PhaseAwaitingGates, capstanv1.PhaseAwaitingApproval, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying,
	capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded,
}

// Each state that a promotion can have is one of the filter: else the link of its count would lead to all promotions.
func TestStatesOfPromotions(t *testing.T) {
	for _, phase := range everyPhase {
		for _, stalls := range []bool{false, true} {
			t.Run(fmt.Sprint(phase, stalls), func(t *testing.T) {
				g := NewWithT(t)
				g.Expect(promotionWords).To(ContainElement(phaseMark(phase, stalls).Word))
				if phase != capstanv1.PhaseSucceeded && phase != capstanv1.PhaseSuperseded { // No Pipeline shows these.
					g.Expect(pipelineWords).To(ContainElement(phaseMark(phase, false).Word))
				}
			})
		}
	}
}

// Each part of the verdict leads to a list that has the objects that it counts.
func TestVerdictLeadsToItsObjects(t *testing.T) {
	for _, tc := range []struct {
		phase  capstanv1.PromotionPhase
		stalls bool
	}{
		{capstanv1.PhaseFailed, false}, {capstanv1.PhaseRejected, false}, {capstanv1.PhaseAwaitingApproval, false},
		{capstanv1.PhaseAwaitingApproval, true}, {capstanv1.PhaseVerifying, true}, {capstanv1.PhasePromoting, true}, {"", true},
	} {
		t.Run(fmt.Sprint(tc.phase, tc.stalls), func(t *testing.T) {
			g := NewWithT(t)
			f := facts()
			p := &f.Pipelines[0]
			one := promotion(p, 1, "prod", "1.1.0", capstanv1.PromotionStatus{Phase: tc.phase})
			if tc.stalls {
				one.Status.Conditions = []metav1.Condition{{Type: capstanv1.StalledCondition, Status: metav1.ConditionTrue}}
			}
			f.Promotions = []capstanv1.Promotion{one}
			p.Status.Environments["prod"].Promotion = &pipelinesv1.PromotionSummary{Name: one.Name, Revision: "1.1.0", Phase: string(tc.phase)}
			p.Status.Environments["dev"].Targets[0].Error = "gone" // It is the worst of the Pipeline.
			for _, part := range data[Verdict](Overview(f, Everything(), Query{}), "verdict")[0].Parts {
				said := fmt.Sprint(listOf(g, f, Everything(), part.Link).Blocks)
				g.Expect(said).NotTo(ContainSubstring("-empty "), part.Text+" leads to "+part.Link)
			}
		})
	}
}

// A Pipeline that is stalled is found by the link of the verdict, whatever else is wrong with it.
func TestVerdictLeadsToStalledPipeline(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Pipelines[0].Status.Conditions = []metav1.Condition{{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: "AppRefInvalid"}}
	f.Pipelines[0].Status.Environments["dev"].Targets[0].Error = "gone"
	for _, part := range data[Verdict](Overview(f, Everything(), Query{}), "verdict")[0].Parts {
		g.Expect(fmt.Sprint(listOf(g, f, Everything(), part.Link).Blocks)).NotTo(ContainSubstring("-empty "), part.Text+" leads to "+part.Link)
	}
}
