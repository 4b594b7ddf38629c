package config_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// promotion returns a Promotion that waits for an approval.
func promotion(namespace, name string) *capstanv1.Promotion {
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: capstanv1.PromotionSpec{
			Pipeline:    capstanv1.PipelineReference{Name: "podinfo", UID: "8f14e45f-ceea-467f-a0e6-1c3d1c2f8f5a"},
			App:         pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "podinfo"},
			Environment: "prod",
			Number:      1,
			Revision:    "6.6.1",
			Source:      capstanv1.PromotionSource{Environment: "staging", Sequence: 3},
			From:        &capstanv1.PromotionBase{Revisions: []string{"6.6.0"}, Sequence: 2},
			Strategy:    pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}},
			Manual:      true,
		},
	}
}

// merge returns a merge patch of the spec.
func merge(t *testing.T, spec map[string]any) client.Patch {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"spec": spec})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, raw)
}

// inForce waits until the API server, which reads policies through a watch, enforces the
// policy.
func inForce(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func() bool {
		forged := promotion("default", "forged")
		forged.Spec.Approval = &capstanv1.Approval{By: "somebody"}
		return apierrors.IsForbidden(world.admin.Create(t.Context(), forged, client.DryRunAll))
	}).WithTimeout(patience).Should(BeTrue())
}

func TestApproval(t *testing.T) {
	inForce(t)
	team, elsewhere := namespace(t, "team-a"), namespace(t, "team-b")
	edit := rbacv1.PolicyRule{
		APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"},
		Verbs: []string{"get", "list", "create", "patch", "update"},
	}
	bind(t, team, "ClusterRole", "capstan-approver", "ann")
	allow(t, elsewhere, "editor", "ann", edit)
	allow(t, team, "editor", "bob", edit)
	allow(t, team, "editor-of-one", "cat", edit, rbacv1.PolicyRule{
		APIGroups: []string{"capstan.dev"}, Resources: []string{"promotions"}, ResourceNames: []string{"hers"}, Verbs: []string{"approve"},
	})

	type approval = map[string]any
	for _, tc := range []struct {
		name, user, namespace, promotion string
		approval                         approval
		refusal                          string // part of the error message; "" if the request is allowed
	}{
		{"an approver in their own name", "ann", team, "p", approval{"by": "ann"}, ""},
		{"an approver, method named", "ann", team, "p", approval{"by": "ann", "method": "Kubernetes"}, ""},
		{"an approver in the name of another user", "ann", team, "p", approval{"by": "bob"},
			`spec.approval.by is "bob", but you are "ann": you cannot approve in the name of another user; set it to your own user name`},
		{"an approver of another namespace", "ann", elsewhere, "p", approval{"by": "ann"},
			`user "ann" does not have the verb "approve" on promotions.capstan.dev in the namespace "team-b": ask for a RoleBinding to the ClusterRole capstan-approver there`},
		{"a user who may patch but not approve", "bob", team, "p", approval{"by": "bob"},
			`user "bob" does not have the verb "approve" on promotions.capstan.dev in the namespace "team-a"`},
		{"a user who may not approve, in the name of an approver", "bob", team, "p", approval{"by": "ann"}, `you cannot approve in the name of another user`},
		{"a user who may not approve, with method HTTP", "bob", team, "p", approval{"by": "bob", "method": "HTTP"},
			`only the hub may set spec.approval.method HTTP, to record signed calls: leave method out and set spec.approval.by to "bob"`},
		{"an approver, with method HTTP", "ann", team, "p", approval{"by": "ann", "method": "HTTP"}, "only the hub may set spec.approval.method HTTP"},
		{"a user who may approve one promotion by its name", "cat", team, "hers", approval{"by": "cat"}, ""},
		{"the same user and another promotion", "cat", team, "p", approval{"by": "cat"}, `user "cat" does not have the verb "approve"`},
		{"the hub, for a signed call", hubUser, team, "p", approval{"by": "ci", "method": "HTTP"}, ""},
		{"the hub in its own name", hubUser, team, "p", approval{"by": hubUser}, `does not have the verb "approve"`},
		{"an administrator in their own name", "admin", team, "p", approval{"by": "admin"}, ""},
		{"an administrator in the name of another user", "admin", team, "p", approval{"by": "ann"}, "you cannot approve in the name of another user"},
		{"an empty name", "ann", team, "p", approval{"by": ""}, "spec.approval.by"},
		{"an unknown method", "ann", team, "p", approval{"by": "ann", "method": "Telephone"}, "Unsupported value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			user := world.admin
			if tc.user != "admin" {
				user = as(t, tc.user)
			}
			answers := map[string]func() error{
				"update": func() error {
					waiting := promotion(tc.namespace, tc.promotion)
					g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
					defer func() { g.Expect(world.admin.Delete(t.Context(), waiting)).To(Succeed()) }()
					return user.Patch(t.Context(), waiting.DeepCopy(), merge(t, map[string]any{"approval": tc.approval}))
				},
			}
			if tc.user != "ann" || tc.namespace != team { // An approver may not create.
				answers["create"] = func() error {
					approved := promotion(tc.namespace, tc.promotion)
					approved.Spec.Approval = &capstanv1.Approval{By: tc.approval["by"].(string)}
					if method, ok := tc.approval["method"]; ok {
						approved.Spec.Approval.Method = capstanv1.ApprovalMethod(method.(string))
					}
					return user.Create(t.Context(), approved, client.DryRunAll)
				}
			}
			for how, answer := range answers {
				if err := answer(); tc.refusal == "" {
					g.Expect(err).NotTo(HaveOccurred(), how)
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(tc.refusal)), how)
				}
			}
		})
	}

	t.Run("only new approvals are checked", func(t *testing.T) {
		g := NewWithT(t)
		bob := as(t, "bob")
		waiting := promotion(team, "asked")
		g.Expect(bob.Create(t.Context(), waiting)).To(Succeed(), "a promotion without approval")
		g.Expect(bob.Patch(t.Context(), waiting, merge(t, map[string]any{"retry": 1}))).To(Succeed())
		g.Expect(as(t, "ann").Patch(t.Context(), waiting, merge(t, map[string]any{"approval": approval{"by": "ann"}}))).To(Succeed())
		g.Expect(bob.Patch(t.Context(), waiting, merge(t, map[string]any{"retry": 2}))).To(Succeed(), "the approval that stands there is ann's")
		before := waiting.DeepCopy()
		waiting.Status.Phase = capstanv1.PhasePromoting
		g.Expect(as(t, hubUser).Status().Patch(t.Context(), waiting, client.MergeFrom(before))).To(Succeed())
	})
}

func TestAnApprovalStands(t *testing.T) {
	g := NewWithT(t)
	inForce(t)
	approved := promotion("default", "stands")
	g.Expect(world.admin.Create(t.Context(), approved)).To(Succeed())
	g.Expect(world.admin.Patch(t.Context(), approved, merge(t, map[string]any{"approval": map[string]any{"by": "admin"}}))).To(Succeed())

	for name, change := range map[string]any{
		"by another":     map[string]any{"by": "ann"},
		"another method": map[string]any{"by": "admin", "method": "HTTP"},
		"removed":        nil,
	} {
		g.Expect(world.admin.Patch(t.Context(), approved.DeepCopy(), merge(t, map[string]any{"approval": change}))).
			To(MatchError(ContainSubstring("an approval cannot be changed or removed")), name)
	}
}

func TestRetryIsOnlyRaised(t *testing.T) {
	g := NewWithT(t)
	retried := promotion("default", "retried")
	g.Expect(world.admin.Create(t.Context(), retried)).To(Succeed())
	g.Expect(world.admin.Patch(t.Context(), retried, merge(t, map[string]any{"retry": 2}))).To(Succeed())
	g.Expect(world.admin.Patch(t.Context(), retried.DeepCopy(), merge(t, map[string]any{"retry": 1}))).
		To(MatchError(ContainSubstring("retry can only be raised")))
	g.Expect(world.admin.Patch(t.Context(), retried.DeepCopy(), merge(t, map[string]any{"retry": nil}))).
		To(MatchError(ContainSubstring("retry can only be raised")))
}

func TestIntentIsImmutable(t *testing.T) {
	g := NewWithT(t)
	intent := promotion("default", "intent")
	g.Expect(world.admin.Create(t.Context(), intent)).To(Succeed())

	for field, value := range map[string]any{
		"pipeline":    map[string]any{"uid": "another"},
		"app":         map[string]any{"name": "another"},
		"environment": "another",
		"number":      2,
		"revision":    "6.6.2",
		"source":      map[string]any{"sequence": 4},
		"from":        map[string]any{"sequence": 4},
		"strategy":    map[string]any{"notification": nil},
		"manual":      false,
	} {
		g.Expect(world.admin.Patch(t.Context(), intent.DeepCopy(), merge(t, map[string]any{field: value}))).
			To(MatchError(ContainSubstring("the intent of a promotion cannot be changed")), field)
	}
	g.Expect(world.admin.Patch(t.Context(), intent.DeepCopy(), merge(t, map[string]any{"from": nil}))).
		To(MatchError(ContainSubstring("the intent of a promotion cannot be changed")), "from taken away")
}
