package view

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Each promotion is in one tab; the tabs, the filters and the groups by cause show the same promotions.
func TestPromotionList(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	add := func(env string, age time.Duration, status capstanv1.PromotionStatus) *capstanv1.Promotion {
		one := promotion(p, int64(len(f.Promotions)+1), env, fmt.Sprintf("1.%d.0", len(f.Promotions)), status)
		one.CreationTimestamp = *ago(age)
		f.Promotions = append(f.Promotions, one)
		return &f.Promotions[len(f.Promotions)-1]
	}
	add("prod", 3*time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	add("prod", 5*time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Reason: "Soaking"})
	add("staging", time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting})
	add("prod", 48*time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "AuthFailed", FinishTime: ago(47 * time.Hour)})
	add("prod", 50*time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "AuthFailed", FinishTime: ago(49 * time.Hour)})
	add("prod", 50*time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected, Reason: "RejectedByUser", FinishTime: ago(time.Minute)})
	done := add("prod", time.Hour, capstanv1.PromotionStatus{
		Phase: capstanv1.PhaseSucceeded, FinishTime: ago(time.Minute), Approval: &capstanv1.ApprovalRecord{By: "ada@example.com", ApprovalTime: metav1.Time{Time: now}},
	})
	add("prod", 4*time.Hour, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates})
	revisions := func(q Query) []string {
		var all []string
		for _, e := range data[Entry](Promotions(f, Everything(), q), "entries") {
			all = append(all, e.Revision)
		}
		return all
	}
	for _, tc := range []struct {
		q    Query
		want []string
	}{
		{Query{Tab: tabWaiting}, []string{"1.1.0", "1.7.0", "1.0.0"}},
		{Query{Tab: tabProgress}, []string{"1.2.0"}},
		{Query{Tab: tabFailed}, []string{"1.3.0", "1.5.0", "1.4.0"}},
		{Query{Tab: tabDone}, []string{"1.6.0"}},
		{Query{User: "ADA@"}, []string{done.Spec.Revision}},
		{Query{Environment: "staging"}, []string{"1.2.0"}},
		{Query{Reason: "AuthFailed"}, []string{"1.3.0", "1.4.0"}},
		{Query{Within: "1h", Tab: tabFailed}, []string{"1.5.0"}},
		{Query{Tab: "nonsense", Within: "nonsense", State: "nonsense", Group: "nonsense", Environment: "staging"}, []string{"1.2.0"}},
	} {
		g.Expect(revisions(tc.q)).To(Equal(tc.want), "%+v", tc.q)
	}
	summary := data[TimelineSummary](Promotions(f, Everything(), Query{Tab: tabFailed}), "summary")[0]
	for i, n := range []int{8, 3, 1, 3, 1} {
		g.Expect(summary.Tabs[i].N).To(Equal(n), summary.Tabs[i].Text)
		g.Expect(summary.Tabs[i].Current).To(Equal(i == 3))
	}
	grouped := data[PromotionGroup](Promotions(f, Everything(), Query{Tab: tabFailed, Group: groupCause}), "entries")
	g.Expect(grouped).To(HaveExactElements(
		PromotionGroup{Mark: Mark{Bad, "Failed"}, Reason: "AuthFailed", Environment: "prod", N: 2, Oldest: now.Add(-50 * time.Hour), Link: "/promotions?environment=prod&reason=AuthFailed&state=Failed&tab=failed"},
		HaveField("Reason", "RejectedByUser")))
	g.Expect(revisions(Query{Tab: tabFailed, Environment: "prod", Reason: "AuthFailed", State: "Failed"})).To(HaveLen(2), "the link shows them")
	for _, of := range data[PromotionGroup](Promotions(f, Everything(), Query{Group: groupCause}), "entries") {
		address, err := url.Parse(of.Link)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(revisions(ParseQuery(address.Query()))).To(HaveLen(of.N), "%s shows what was counted", of.Link)
	}
	none := Everything()
	none.Promotions = Namespaces{}
	g.Expect(data[TimelineSummary](Promotions(f, none, Query{}), "summary")[0].Promotions).To(BeZero())
}
