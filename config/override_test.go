package config_test

import (
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// G19, at admission: an override needs the verb, the caller's own name, a gate that may still block, and
// the present run.
func TestOverride(t *testing.T) {
	inForce(t)
	team, elsewhere := namespace(t, "override-a"), namespace(t, "override-b")
	edit := rbacv1.PolicyRule{APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, Verbs: []string{"get", "list", "patch", "update"}}
	bind(t, team, "ClusterRole", "capstan-overrider", "olga")
	bind(t, team, "ClusterRole", "capstan-approver", "ann")
	bind(t, team, "ClusterRole", "capstan-overrider", "walt")
	allow(t, elsewhere, "editor", "olga", edit)
	g := NewWithT(t)
	g.Expect(world.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "window-admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "capstan-window-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "walt"}},
	})).To(Succeed())
	walt := as(t, "walt")
	g.Eventually(func() error { return walt.List(t.Context(), &capstanv1.PromotionWindowList{}) }).WithTimeout(patience).Should(Succeed())
	g.Eventually(func() error { // The API server reads policies through a watch.
		forged := promotion(team, "probe")
		forged.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateSoak, By: "eve", Reason: "none"}}
		return as(t, hubUser).Create(t.Context(), forged, client.DryRunAll)
	}).WithTimeout(patience).ShouldNot(Succeed())

	by := func(user, gate string, more ...map[string]any) []map[string]any {
		return append([]map[string]any{{"gate": gate, "by": user, "reason": "incident 4711"}}, more...)
	}
	const noVerb = `does not have the verb "override" on promotions.capstan.dev in the namespace`
	for name, tc := range map[string]struct {
		user, namespace string
		phase           capstanv1.PromotionPhase
		overrides       []map[string]any
		refusal         string
	}{
		"with the verb":                 {"olga", team, "", by("olga", "soak"), ""},
		"while it waits for a merge":    {"olga", team, capstanv1.PhaseAwaitingMerge, by("olga", "windows"), ""},
		"an administrator":              {"admin", team, "", by("admin", "promotion-windows"), ""},
		"of windows of administrators":  {"walt", team, "", by("walt", "promotion-windows"), ""},
		"the same without their verb":   {"olga", team, "", by("olga", "promotion-windows"), `does not have the verb "override" on promotionwindows.capstan.dev: ask an administrator`},
		"with the right to approve":     {"ann", team, "", by("ann", "soak"), noVerb},
		"in another namespace":          {"olga", elsewhere, "", by("olga", "soak"), noVerb},
		"the hub":                       {hubUser, team, "", by(hubUser, "soak"), noVerb},
		"in the name of another user":   {"olga", team, "", by("ann", "soak"), `you cannot override in the name of another user`},
		"two at once":                   {"olga", team, "", by("olga", "soak", by("olga", "windows")...), "add one override at a time"},
		"when it was carried out":       {"olga", team, capstanv1.PhaseAwaitingRollout, by("olga", "soak"), "the promotion is AwaitingRollout: no gate blocks it"},
		"of a run that does not exist":  {"olga", team, "", []map[string]any{{"gate": "soak", "by": "olga", "reason": "r", "retry": 1}}, "set retry of the override to 0"},
		"of a gate that does not exist": {"olga", team, "", by("olga", "approval"), `Unsupported value: "approval"`},
		"without a reason":              {"olga", team, "", []map[string]any{{"gate": "soak", "by": "olga"}}, "reason: Required value"},
		"with the same gate twice":      {"olga", team, "", by("olga", "soak", by("olga", "soak")...), "Duplicate value"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			user := world.admin
			if tc.user != "admin" {
				user = as(t, tc.user)
			}
			waiting := promotion(tc.namespace, "waits")
			g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
			defer func() { g.Expect(world.admin.Delete(t.Context(), waiting)).To(Succeed()) }()
			if tc.phase != "" {
				becomes(t, waiting, capstanv1.PromotionStatus{Phase: tc.phase})
			}
			err := user.Patch(t.Context(), waiting.DeepCopy(), merge(t, map[string]any{"overrides": tc.overrides}))
			if tc.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refusal)))
			}
		})
	}

	t.Run("they are added only", func(t *testing.T) {
		g := NewWithT(t)
		olga := as(t, "olga")
		waiting := promotion(team, "added")
		g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
		patch := func(overrides []map[string]any) error {
			return olga.Patch(t.Context(), waiting.DeepCopy(), merge(t, map[string]any{"overrides": overrides}))
		}
		g.Expect(patch(by("olga", "soak"))).To(Succeed())
		g.Expect(patch(by("olga", "soak", by("olga", "windows")...))).To(Succeed())
		g.Expect(patch(by("olga", "windows"))).To(MatchError(ContainSubstring("an override cannot be removed")))
		g.Expect(patch(nil)).To(MatchError(ContainSubstring("an override cannot be removed")))
		changed := by("olga", "soak", by("olga", "windows")...)
		changed[0]["reason"] = "another"
		g.Expect(patch(changed)).To(MatchError(ContainSubstring("an override cannot be changed")))
		g.Expect(as(t, "ann").Patch(t.Context(), waiting.DeepCopy(), merge(t, map[string]any{"approval": map[string]any{"by": "ann"}}))).To(Succeed(), "the overrides are olga's")
	})

	t.Run("not when a Promotion is created", func(t *testing.T) {
		g := NewWithT(t)
		forged := promotion(team, "created")
		forged.Spec.Overrides = []capstanv1.Override{{Gate: capstanv1.GateSoak, By: "admin", Reason: "restored"}}
		g.Expect(as(t, hubUser).Create(t.Context(), forged.DeepCopy())).To(MatchError(ContainSubstring("overrides cannot be set when a Promotion is created")))
		g.Expect(world.admin.Create(t.Context(), forged)).To(Succeed(), "a backup is restored")
	})
}
