package config_test

import (
	"encoding/json"
	"strings"
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

// inForce waits until the API server, which reads policies through a watch, enforces those of
// Promotions.
func inForce(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	hub := as(t, hubUser)
	g.Eventually(func() bool {
		approved := promotion("default", "probe")
		approved.Spec.Approval = &capstanv1.Approval{By: "ann"}
		return apierrors.IsForbidden(hub.Create(t.Context(), approved, client.DryRunAll))
	}).WithTimeout(patience).Should(BeTrue())
	probe := promotion("default", "probe")
	g.Expect(client.IgnoreAlreadyExists(world.admin.Create(t.Context(), probe))).To(Succeed())
	g.Eventually(func() bool {
		return apierrors.IsInvalid(world.admin.Patch(t.Context(), probe.DeepCopy(), merge(t, map[string]any{"retry": 1}), client.DryRunAll))
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
			waiting := promotion(tc.namespace, tc.promotion)
			g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
			defer func() { g.Expect(world.admin.Delete(t.Context(), waiting)).To(Succeed()) }()
			err := user.Patch(t.Context(), waiting.DeepCopy(), merge(t, map[string]any{"approval": tc.approval}))
			if tc.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refusal)))
			}
		})
	}

	t.Run("only new approvals are checked", func(t *testing.T) {
		g := NewWithT(t)
		bob := as(t, "bob")
		waiting := promotion(team, "asked")
		g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
		g.Expect(as(t, "ann").Patch(t.Context(), waiting, merge(t, map[string]any{"approval": approval{"by": "ann"}}))).To(Succeed())
		becomes(t, waiting, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed})
		g.Expect(bob.Patch(t.Context(), waiting, merge(t, map[string]any{"retry": 1}))).To(Succeed(), "the approval that stands there is ann's")
	})
}

// becomes writes the status of a promotion with the hub's rights.
func becomes(t *testing.T, p *capstanv1.Promotion, status capstanv1.PromotionStatus) {
	t.Helper()
	g := NewWithT(t)
	before := p.DeepCopy()
	p.Status = status
	g.Expect(as(t, hubUser).Status().Patch(t.Context(), p, client.MergeFrom(before))).To(Succeed())
}

// A Promotion that a user could create would need no approval: it could say that it is
// automatic, and have the highest number. A Role of the namespace with all verbs does not
// suffice.
func TestOnlyTheHubCreatesPromotions(t *testing.T) {
	g := NewWithT(t)
	inForce(t)
	ns := namespace(t, "forgery")
	allow(t, ns, "owner", "eve", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	eve, hub := as(t, "eve"), as(t, hubUser)

	forged := promotion(ns, "forged")
	forged.Spec.Manual, forged.Spec.Number = false, 99
	g.Expect(eve.Create(t.Context(), forged)).To(MatchError(ContainSubstring(`user "eve" may not create Promotions: only the hub creates them, from Pipelines`)))

	made := promotion(ns, "made")
	made.Labels = map[string]string{capstanv1.PipelineUIDLabel: string(made.Spec.Pipeline.UID)}
	g.Expect(hub.Create(t.Context(), made)).To(Succeed())
	for _, json := range []string{
		`{"metadata":{"labels":{"capstan.dev/pipeline-uid":"another"}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"team":"a"}}}`,
		`{"metadata":{"annotations":{"capstan.dev/told":"{}"}}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`,
	} {
		g.Expect(eve.Patch(t.Context(), made.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(json)))).
			To(MatchError(ContainSubstring("may not change the labels, the owners and the annotations capstan.dev/...")), json)
	}
	g.Expect(eve.Patch(t.Context(), made.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"mine"}}}`)))).To(Succeed())
	g.Expect(eve.Status().Patch(t.Context(), made.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Promoting"}}`)))).
		To(MatchError(ContainSubstring("may not write the status of Promotions")))
	g.Expect(hub.Patch(t.Context(), made.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"capstan.dev/told":"{}"}}}`)))).To(Succeed())

	// The hub's ServiceAccount of another namespace is another user.
	g.Expect(as(t, "system:serviceaccount:"+ns+":capstan-hub").Create(t.Context(), promotion(ns, "of-another"))).NotTo(Succeed())
	// An administrator restores the audit trail, with its approvals.
	restored := promotion(ns, "restored")
	restored.Spec.Approval = &capstanv1.Approval{By: "ann"}
	g.Expect(world.admin.Create(t.Context(), restored)).To(Succeed())
	approved := promotion(ns, "approved-by-the-hub")
	approved.Spec.Approval = &capstanv1.Approval{By: "ann"}
	g.Expect(hub.Create(t.Context(), approved)).To(MatchError(ContainSubstring("an approval cannot be given when a Promotion is created")))
}

// An approval is accepted only from the time when the promotion waits for it until it has it.
func TestApprovalOfThePromotionThatDoesNotWait(t *testing.T) {
	inForce(t)
	ns := namespace(t, "approvals")
	bind(t, ns, "ClusterRole", "capstan-approver", "ann")
	ann := as(t, "ann")
	approve := func(p *capstanv1.Promotion, approval map[string]any) error {
		return ann.Patch(t.Context(), p.DeepCopy(), merge(t, map[string]any{"approval": approval}))
	}
	for phase, accepted := range map[capstanv1.PromotionPhase]bool{
		capstanv1.PhaseAwaitingGates: true, capstanv1.PhaseAwaitingApproval: true, capstanv1.PhasePromoting: false, capstanv1.PhaseAwaitingMerge: false, capstanv1.PhaseAwaitingRollout: false, capstanv1.PhaseVerifying: false,
		capstanv1.PhaseSucceeded: false, capstanv1.PhaseFailed: false, capstanv1.PhaseRejected: false, capstanv1.PhaseSuperseded: false,
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := NewWithT(t)
			p := promotion(ns, strings.ToLower(string(phase)))
			g.Expect(world.admin.Create(t.Context(), p)).To(Succeed())
			becomes(t, p, capstanv1.PromotionStatus{Phase: phase})
			if err := approve(p, map[string]any{"by": "ann"}); accepted {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring("the promotion is " + string(phase) + ": it does not wait for an approval")))
			}
		})
	}
	g := NewWithT(t)
	automatic := promotion(ns, "automatic")
	automatic.Spec.Manual = false
	g.Expect(world.admin.Create(t.Context(), automatic)).To(Succeed())
	g.Expect(approve(automatic, map[string]any{"by": "ann"})).To(MatchError(ContainSubstring("the promotion is automatic: it does not wait for an approval")))
}

// A retry of a manual promotion waits for an approval of its own.
func TestApprovalOfARetry(t *testing.T) {
	g := NewWithT(t)
	inForce(t)
	ns := namespace(t, "retries")
	bind(t, ns, "ClusterRole", "capstan-approver", "ann")
	bind(t, ns, "ClusterRole", "capstan-approver", "bob")
	p := promotion(ns, "again")
	g.Expect(world.admin.Create(t.Context(), p)).To(Succeed())
	approve := func(by string, approval map[string]any) error {
		return as(t, by).Patch(t.Context(), p.DeepCopy(), merge(t, map[string]any{"approval": approval}))
	}
	g.Expect(approve("ann", map[string]any{"by": "ann", "retry": 1})).To(MatchError(ContainSubstring("approval.retry cannot be higher than retry")))
	g.Expect(approve("ann", map[string]any{"by": "ann"})).To(Succeed())
	becomes(t, p, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed})
	g.Expect(world.admin.Patch(t.Context(), p, merge(t, map[string]any{"retry": 1}))).To(Succeed())
	g.Expect(approve("ann", map[string]any{"by": "ann", "retry": 1})).To(MatchError(ContainSubstring("it does not wait for an approval")), "the hub has not started it")
	becomes(t, p, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: 1})
	g.Expect(approve("bob", map[string]any{"by": "bob"})).To(MatchError(Or(
		ContainSubstring("the promotion waits for an approval of retry 1: set spec.approval.retry to 1"), ContainSubstring("an approval cannot be changed"))))
	g.Expect(approve("bob", map[string]any{"by": "ann", "retry": 1})).To(MatchError(ContainSubstring("you cannot approve in the name of another user")))
	g.Expect(approve("bob", map[string]any{"by": "bob", "retry": 1})).To(Succeed())
	g.Expect(approve("ann", map[string]any{"by": "ann", "retry": 1})).NotTo(Succeed(), "the run is approved")
}

// A raise of spec.retry in flight would change a run that acts.
func TestRetryInFlightIsRefused(t *testing.T) {
	inForce(t)
	ns := namespace(t, "raises")
	for phase, accepted := range map[capstanv1.PromotionPhase]bool{
		"": false, capstanv1.PhaseAwaitingGates: false, capstanv1.PhaseAwaitingApproval: false, capstanv1.PhasePromoting: false, capstanv1.PhaseAwaitingMerge: false, capstanv1.PhaseAwaitingRollout: false, capstanv1.PhaseVerifying: false,
		capstanv1.PhaseSucceeded: true, capstanv1.PhaseFailed: true, capstanv1.PhaseRejected: true, capstanv1.PhaseSuperseded: true,
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := NewWithT(t)
			p := promotion(ns, "p"+strings.ToLower(string(phase)))
			g.Expect(world.admin.Create(t.Context(), p)).To(Succeed())
			shown := "new"
			if phase != "" {
				shown = string(phase)
				becomes(t, p, capstanv1.PromotionStatus{Phase: phase})
			}
			if err := world.admin.Patch(t.Context(), p, merge(t, map[string]any{"retry": 1})); accepted {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring("spec.retry starts a finished promotion again, but this one is " + shown + ": raise it after the promotion has finished")))
			}
		})
	}
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
	becomes(t, retried, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed})
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
