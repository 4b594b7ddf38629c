package config_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// A rejection needs the right to approve, the caller's own name, and a run that has not begun. It is
// recorded once, and a run is either approved or rejected.
func TestRejection(t *testing.T) {
	inForce(t)
	team, elsewhere := namespace(t, "reject-a"), namespace(t, "reject-b")
	edit := rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"get", "list", "patch", "update"}}
	bind(t, team, "ClusterRole", "capstan-approver", "ann")
	bind(t, team, "ClusterRole", "capstan-operator", "otto")
	allow(t, elsewhere, "editor", "ann", edit)
	g := NewWithT(t)
	g.Eventually(func() error { // The API server reads policies through a watch.
		forged := promotion(team, "probe")
		forged.Spec.Rejection = &capstanv1.Rejection{By: "eve", Comment: "none"}
		return as(t, hubUser).Create(t.Context(), forged, client.DryRunAll)
	}).WithTimeout(patience).ShouldNot(Succeed())

	type rejection = map[string]any
	by := func(user string) rejection { return rejection{"by": user, "comment": "not on a Friday"} }
	const noVerb = `does not have the verb "approve" on promotions.capstan.dev in the namespace`
	for name, tc := range map[string]struct {
		user, namespace string
		phase           capstanv1.PromotionPhase
		spec            map[string]any
		refusal         string
	}{
		"with the right to approve":    {"ann", team, "", map[string]any{"rejection": by("ann")}, ""},
		"while it waits for gates":     {"ann", team, capstanv1.PhaseAwaitingGates, map[string]any{"rejection": by("ann")}, ""},
		"an administrator":             {"admin", team, "", map[string]any{"rejection": by("admin")}, ""},
		"with the right to patch":      {"otto", team, "", map[string]any{"rejection": by("otto")}, noVerb},
		"in another namespace":         {"ann", elsewhere, "", map[string]any{"rejection": by("ann")}, noVerb},
		"the hub":                      {hubUser, team, "", map[string]any{"rejection": by(hubUser)}, noVerb},
		"in the name of another user":  {"ann", team, "", map[string]any{"rejection": by("bob")}, "you cannot reject in the name of another user"},
		"when it has begun":            {"ann", team, capstanv1.PhasePromoting, map[string]any{"rejection": by("ann")}, "the promotion is Promoting: it has begun or has ended, and cannot be rejected"},
		"when it has ended":            {"ann", team, capstanv1.PhaseFailed, map[string]any{"rejection": by("ann")}, "the promotion is Failed"},
		"of a run that does not exist": {"ann", team, "", map[string]any{"rejection": rejection{"by": "ann", "comment": "c", "retry": 1}}, "rejection.retry cannot be higher than retry"},
		"without a comment":            {"ann", team, "", map[string]any{"rejection": rejection{"by": "ann"}}, "comment: Required value"},
		"with a long comment":          {"ann", team, "", map[string]any{"rejection": rejection{"by": "ann", "comment": strings.Repeat("x", 501)}}, "500"},
		"and an approval at once":      {"ann", team, "", map[string]any{"rejection": by("ann"), "approval": rejection{"by": "ann"}}, "a run is either approved or rejected"},
		"an approval with a comment":   {"ann", team, "", map[string]any{"approval": rejection{"by": "ann", "comment": "ready"}}, ""},
		"an approval that says much":   {"ann", team, "", map[string]any{"approval": rejection{"by": "ann", "comment": strings.Repeat("x", 501)}}, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			user := world.admin
			if tc.user != "admin" {
				user = as(t, tc.user)
			}
			waiting := promotion(tc.namespace, "rejected")
			g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
			defer func() { g.Expect(world.admin.Delete(t.Context(), waiting)).To(Succeed()) }()
			if tc.phase != "" {
				becomes(t, waiting, capstanv1.PromotionStatus{Phase: tc.phase})
			}
			err := user.Patch(t.Context(), waiting.DeepCopy(), merge(t, tc.spec))
			if tc.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refusal)))
			}
		})
	}

	t.Run("once for each run", func(t *testing.T) {
		g := NewWithT(t)
		ann := as(t, "ann")
		p := promotion(team, "once")
		g.Expect(world.admin.Create(t.Context(), p)).To(Succeed())
		reject := func(r rejection) error {
			return ann.Patch(t.Context(), p.DeepCopy(), merge(t, map[string]any{"rejection": r}))
		}
		g.Expect(reject(by("ann"))).To(Succeed())
		g.Expect(reject(rejection{"by": "ann", "comment": "another"})).To(MatchError(ContainSubstring("a rejection cannot be changed or removed")))
		g.Expect(reject(nil)).To(MatchError(ContainSubstring("a rejection cannot be changed or removed")))
		approve := func(retry int) error {
			return ann.Patch(t.Context(), p.DeepCopy(), merge(t, map[string]any{"approval": rejection{"by": "ann", "retry": retry}}))
		}
		g.Expect(approve(0)).To(MatchError(ContainSubstring("a run is either approved or rejected")))

		becomes(t, p, capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected})
		g.Expect(ann.Patch(t.Context(), p.DeepCopy(), merge(t, map[string]any{"retry": 1}))).To(Succeed())
		becomes(t, p, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: 1})
		g.Expect(approve(1)).To(Succeed(), "the next run")
		g.Expect(reject(rejection{"by": "ann", "comment": "too late", "retry": 1})).To(MatchError(ContainSubstring("a run is either approved or rejected")))
	})
}
