package view

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// promoted adds a promotion of shop into prod, which is the newest one.
func promoted(f *Facts, status capstanv1.PromotionStatus) *capstanv1.Promotion {
	p := &f.Pipelines[0]
	f.Promotions = append(f.Promotions, promotion(p, 1, "prod", "2.0.0", status))
	one := &f.Promotions[len(f.Promotions)-1]
	p.Status.Environments["prod"].Promotion = &pipelinesv1.PromotionSummary{Name: one.Name, Revision: "2.0.0", Phase: string(status.Phase), Reason: status.Reason, Message: status.Message}
	return one
}

// Each kind of problem is in the verdict and among what waits, with its reason, its age and a link to the object.
func TestWhatWaits(t *testing.T) {
	gates := func(gate capstanv1.GateStatus, checks ...capstanv1.CheckStatus) capstanv1.PromotionStatus {
		return capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Gates: []capstanv1.GateStatus{gate}, Checks: checks}
	}
	closed := capstanv1.GateStatus{Name: capstanv1.GateChecks, State: capstanv1.GateClosed, Reason: "CheckFailed", Message: `check "errors" fails: 0.07`, LastTransitionTime: ago(time.Minute)}
	for name, tc := range map[string]struct {
		edit    func(*Facts)
		verdict string
		cause   Cause
	}{
		"cluster": {func(f *Facts) {
			f.Observed[cluster("prod")] = Observed{State: capstanv1.ConnectionUnreachable, Reason: "ProbesFailed", Message: "no answer", Since: now.Add(-time.Hour)}
		}, "1 of 4 clusters needs you", Cause{Mark: Mark{Bad, "Unreachable"}, Title: "fleet/prod", Text: "ProbesFailed: no answer", Oldest: now.Add(-time.Hour), Link: "/clusters/Cluster/fleet/prod"}},
		"approval": {func(f *Facts) { promoted(f, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval}) }, "1 approval",
			Cause{Mark: Mark{Asking, "Awaiting approval"}, Title: "apps/shop into prod", Oldest: ago(59 * time.Minute).Time, Link: "/pipelines/apps/shop#promotion/apps/shop-prod-1", Revision: "2.0.0"}},
		"failure": {func(f *Facts) {
			promoted(f, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "AuthFailed", Message: "no right to push", FinishTime: ago(time.Minute)})
		}, "1 failed promotion",
			Cause{Mark: Mark{Bad, "Failed"}, Title: "apps/shop into prod", Text: "AuthFailed: no right to push", Oldest: now.Add(-time.Minute), Link: "/pipelines/apps/shop#promotion/apps/shop-prod-1"}},
		"gate with a failing check": {func(f *Facts) {
			promoted(f, gates(closed, capstanv1.CheckStatus{Name: "errors", Verdict: capstanv1.CheckFail}))
		}, "1 gate in error",
			Cause{Mark: Mark{Warning, "Gate closed"}, Title: "apps/shop into prod", Text: `gate checks: CheckFailed: check "errors" fails: 0.07`, Oldest: now.Add(-time.Minute), Link: "/pipelines/apps/shop#promotion/apps/shop-prod-1"}},
		"invalid gate": {func(f *Facts) {
			promoted(f, gates(capstanv1.GateStatus{Name: "windows", State: capstanv1.GateInvalid, Reason: "InvalidGate", Message: "no such zone", LastTransitionTime: ago(time.Minute)}))
		}, "1 gate in error",
			Cause{Mark: Mark{Bad, "Gate invalid"}, Title: "apps/shop into prod", Text: "gate windows: InvalidGate: no such zone", Oldest: now.Add(-time.Minute), Link: "/pipelines/apps/shop#promotion/apps/shop-prod-1"}},
		"backend": {func(f *Facts) {
			f.Backends = append(f.Backends, eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "bus"}, Status: eventingv1.EventingBackendStatus{
				EventingReady: ptr.To(false), Conditions: []eventingv1.Condition{{Type: "Backend Ready", Status: "False", Reason: "BackendNotReady", Message: "no answer", LastTransitionTime: *ago(time.Minute)}},
			}})
		}, "1 backend not ready",
			Cause{Mark: Mark{Bad, "Not ready"}, Title: "apps/bus", Text: "BackendNotReady: no answer", Oldest: now.Add(-time.Minute), Link: "/backends?q=apps%2Fbus"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := facts()
			f.Pipelines = f.Pipelines[:1]
			tc.edit(f)
			page := Overview(f, Everything(), Query{})
			var texts []string
			for _, part := range data[Verdict](page, "verdict")[0].Parts {
				texts = append(texts, part.Text)
			}
			g.Expect(texts).To(ContainElement(tc.verdict))
			g.Expect(data[Cause](page, "waiting")).To(ContainElement(tc.cause))
		})
	}
}

// A gate that opens by itself, or was not measured yet, does not wait for a person.
func TestGatesThatOpenByThemselves(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	promoted(f, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Gates: []capstanv1.GateStatus{
		{Name: "soak", State: capstanv1.GateClosed, Reason: "Soaking"}, {Name: capstanv1.GateChecks, State: capstanv1.GateClosed, Reason: "CheckPending"},
	}, Checks: []capstanv1.CheckStatus{{Name: "errors"}, {Name: "ready", Verdict: capstanv1.CheckPass}}})
	page := Overview(f, Everything(), Query{})
	g.Expect(data[Verdict](page, "verdict")[0]).To(And(HaveField("Parts", BeEmpty()), HaveField("Text", "All 4 clusters well")))
	g.Expect(data[Cause](page, "waiting")).To(BeEmpty())
}

// Sixty clusters with one cause are one row, the oldest first, and at most seven causes are shown.
func TestCausesAreGrouped(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	fail := func(n int, reason string, since time.Duration) {
		c := cluster(fmt.Sprintf("c-%02d", n))
		f.Connections = append(f.Connections, capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster." + c.Name},
			Spec: capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: c.Name}}})
		f.Observed[c] = Observed{State: capstanv1.ConnectionAuthFailed, Reason: reason, Message: "the Secret of " + c.Name + " cannot be read", Since: now.Add(-since)}
	}
	for n := range 60 {
		fail(n, "SecretForbidden", time.Duration(n+1)*time.Minute)
	}
	causes := data[Cause](Overview(f, Everything(), Query{}), "waiting")
	g.Expect(causes).To(HaveExactElements(Cause{
		Mark: Mark{Bad, "Auth failed"}, Title: "60 clusters", Text: "SecretForbidden", Names: []string{"fleet/c-00", "fleet/c-01", "fleet/c-02"}, More: 57,
		Oldest: now.Add(-time.Hour), Link: "/clusters?reason=SecretForbidden&state=Auth+failed",
	}))
	g.Expect(names(Clusters(f, Everything(), Query{State: "Auth failed", Reason: "SecretForbidden"}))).To(HaveLen(60), "the link shows them")
	for n := range 10 {
		fail(60+n, fmt.Sprintf("Reason%d", n), 2*time.Hour)
	}
	page := Overview(f, Everything(), Query{})
	g.Expect(data[Cause](page, "waiting")).To(HaveLen(maxWaiting))
	g.Expect(data[int](page, "waiting")).To(Equal([]int{4}), "the others are counted")
}
