package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// requestFor returns a PromotionRequest of a revision.
func requestFor(namespace, name, by string) *capstanv1.PromotionRequest {
	return &capstanv1.PromotionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       capstanv1.PromotionRequestSpec{Pipeline: "podinfo", Environment: "prod", Revision: "6.6.0", By: by, Reason: "incident 4711"},
	}
}

// A user with the right to create requests does so in their own name. A request is never changed, and
// only the hub writes its outcome.
func TestRequest(t *testing.T) {
	g := NewWithT(t)
	team, elsewhere := namespace(t, "request-a"), namespace(t, "request-b")
	g.Expect(world.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "promoters"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "capstan-promoter"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "petra"}},
	})).To(Succeed())
	allow(t, team, "owner", "otto", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	petra, otto, hub := as(t, "petra"), as(t, "otto"), as(t, hubUser)
	g.Eventually(func() error {
		return petra.List(t.Context(), &capstanv1.PromotionRequestList{}, client.InNamespace(team))
	}).WithTimeout(patience).Should(Succeed())
	g.Eventually(func() bool { // The API server reads policies through a watch.
		return apierrors.IsForbidden(world.admin.Create(t.Context(), requestFor(team, "probe", "eve"), client.DryRunAll))
	}).WithTimeout(patience).Should(BeTrue())

	spec := func(change map[string]any) map[string]any {
		s := map[string]any{"pipeline": "podinfo", "environment": "prod", "revision": "6.6.0", "by": "petra", "reason": "incident 4711"}
		for key, value := range change {
			if s[key] = value; value == nil {
				delete(s, key)
			}
		}
		return s
	}
	const anotherName = "you cannot request a promotion in the name of another user; set it to your own user name"
	for name, tc := range map[string]struct {
		user, namespace string
		spec            map[string]any
		refusal         string
	}{
		"own name":                        {"petra", team, spec(nil), ""},
		"a rollback":                      {"petra", team, spec(map[string]any{"revision": nil, "rollback": map[string]any{}}), ""},
		"an administrator":                {"admin", team, spec(map[string]any{"by": "admin"}), ""},
		"the name of another user":        {"petra", team, spec(map[string]any{"by": "ann"}), `spec.by is "ann", but you are "petra": ` + anotherName},
		"an owner, another name":          {"otto", team, spec(nil), anotherName},
		"an administrator, another name":  {"admin", team, spec(nil), anotherName},
		"the hub":                         {hubUser, team, spec(map[string]any{"by": hubUser}), "cannot create resource"},
		"another namespace":               {"petra", elsewhere, spec(nil), "cannot create resource"},
		"without a name":                  {"petra", team, spec(map[string]any{"by": nil}), "spec.by: Required value"},
		"without a reason":                {"petra", team, spec(map[string]any{"reason": nil}), "spec.reason: Required value"},
		"without a Pipeline":              {"petra", team, spec(map[string]any{"pipeline": ""}), "spec.pipeline"},
		"without an environment":          {"petra", team, spec(map[string]any{"environment": nil}), "spec.environment: Required value"},
		"revision and rollback":           {"petra", team, spec(map[string]any{"rollback": map[string]any{}}), "set exactly one of revision and rollback"},
		"neither revision, nor rollback":  {"petra", team, spec(map[string]any{"revision": nil}), "set exactly one of revision and rollback"},
		"an empty revision, and rollback": {"petra", team, spec(map[string]any{"revision": "", "rollback": map[string]any{}}), "spec.revision"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			user := world.admin
			if tc.user != "admin" {
				user = as(t, tc.user)
			}
			request := &unstructured.Unstructured{Object: map[string]any{"spec": tc.spec}}
			request.SetGroupVersionKind(capstanv1.GroupVersion.WithKind(capstanv1.PromotionRequestKind))
			request.SetNamespace(tc.namespace)
			request.SetGenerateName("request-")
			if err := user.Create(t.Context(), request); tc.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.refusal)))
			}
		})
	}

	made := requestFor(team, "made", "petra")
	made.Status.Phase = capstanv1.RequestPromoted
	g.Expect(petra.Create(t.Context(), made)).To(Succeed())
	g.Expect(made.Status).To(BeZero(), "a user gives no outcome")

	t.Run("never changed", func(t *testing.T) {
		g := NewWithT(t)
		for _, user := range []client.Client{otto, world.admin} {
			for _, change := range []map[string]any{
				{"revision": "6.6.1"}, {"by": "otto"}, {"reason": "another"}, {"revision": nil, "rollback": map[string]any{}},
			} {
				g.Expect(user.Patch(t.Context(), made.DeepCopy(), merge(t, change))).To(MatchError(ContainSubstring("a request cannot be changed; create another one")), "%v", change)
			}
		}
		g.Expect(petra.Patch(t.Context(), made.DeepCopy(), merge(t, map[string]any{"reason": "another"}))).To(MatchError(ContainSubstring("cannot patch resource")))
	})

	t.Run("the hub alone writes the status", func(t *testing.T) {
		g := NewWithT(t)
		outcome := func(phase string) client.Patch {
			raw, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase, "promotion": "podinfo-prod-7"}})
			g.Expect(err).NotTo(HaveOccurred())
			return client.RawPatch(types.MergePatchType, raw)
		}
		g.Expect(petra.Status().Patch(t.Context(), made.DeepCopy(), outcome("Expired"))).To(MatchError(ContainSubstring("cannot patch resource")))
		g.Expect(otto.Status().Patch(t.Context(), made.DeepCopy(), outcome("Expired"))).
			To(MatchError(ContainSubstring(`user "otto" may not write the status of PromotionRequests: only the hub does`)))
		replaced := made.DeepCopy()
		replaced.Status.Phase = capstanv1.RequestExpired
		g.Expect(otto.Status().Update(t.Context(), replaced)).To(MatchError(ContainSubstring("may not write the status of PromotionRequests")))
		g.Expect(hub.Status().Patch(t.Context(), made.DeepCopy(), outcome("Done"))).To(MatchError(ContainSubstring("Unsupported value")))
		g.Expect(hub.Status().Patch(t.Context(), made, outcome("Promoted"))).To(Succeed())
		g.Expect(made.Status.Phase).To(Equal(capstanv1.RequestPromoted))
		g.Expect(hub.Delete(t.Context(), made)).To(Succeed(), "by retention")
	})
}

// What caused a promotion is part of its intent: the hub sets it when it creates the Promotion, and it
// is never changed.
func TestOnlyTheHubSetsWhatCausedAPromotion(t *testing.T) {
	g := NewWithT(t)
	inForce(t)
	ns := namespace(t, "causes")
	allow(t, ns, "owner", "eve", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	eve, hub := as(t, "eve"), as(t, hubUser)
	caused := func(name string) *capstanv1.Promotion {
		p := promotion(ns, name)
		p.Spec.Source.Sequence = 0
		p.Spec.Request = &capstanv1.RequestReference{Name: "made", UID: "5e1f"}
		p.Spec.RollbackOf = &capstanv1.RollbackReference{Name: "podinfo-prod-6", Number: 6}
		p.Spec.Hold = &capstanv1.Hold{UntilSequence: 3}
		p.Spec.Wave = &capstanv1.PromotionWave{Environment: "prod", Name: "canary", Clusters: []string{"fleet/eu-0"}}
		return p
	}
	g.Expect(eve.Create(t.Context(), caused("forged"))).To(MatchError(ContainSubstring("only the hub creates them")))
	with, without := caused("with"), promotion(ns, "without")
	g.Expect(hub.Create(t.Context(), with)).To(Succeed())
	g.Expect(hub.Create(t.Context(), without)).To(Succeed())
	for _, user := range []client.Client{eve, hub, world.admin} {
		for _, change := range []map[string]any{
			{"request": map[string]any{"name": "another", "uid": "77"}}, {"rollbackOf": map[string]any{"name": "another", "number": 2}}, {"hold": map[string]any{"untilSequence": 9}},
			{"wave": map[string]any{"environment": "prod", "name": "canary", "clusters": []string{"fleet/eu-0", "fleet/eu-1"}}},
		} {
			g.Expect(user.Patch(t.Context(), without.DeepCopy(), merge(t, change))).To(MatchError(ContainSubstring("the intent of a promotion cannot be changed")), "added: %v", change)
			g.Expect(user.Patch(t.Context(), with.DeepCopy(), merge(t, change))).To(MatchError(ContainSubstring("the intent of a promotion cannot be changed")), "changed: %v", change)
			for field := range change {
				g.Expect(user.Patch(t.Context(), with.DeepCopy(), merge(t, map[string]any{field: nil}))).To(MatchError(ContainSubstring("the intent of a promotion cannot be changed")), "removed: %s", field)
			}
		}
	}
}

func TestRollbacksOfAWindow(t *testing.T) {
	g := NewWithT(t)
	for rollbacks, accepted := range map[capstanv1.RollbackPolicy]bool{
		"": true, capstanv1.AllowRollbacks: true, capstanv1.BlockRollbacks: true, "allow": false, "Never": false,
	} {
		window := &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: "freeze"}, Spec: capstanv1.PromotionWindowSpec{
			WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow}, Rollbacks: rollbacks,
		}}
		if err := world.admin.Create(t.Context(), window, client.DryRunAll); accepted {
			g.Expect(err).NotTo(HaveOccurred(), string(rollbacks))
		} else {
			g.Expect(err).To(MatchError(ContainSubstring("rollbacks must be Allow or Block")), string(rollbacks))
		}
	}
}

// documentedRequests returns the PromotionRequests of docs/gates.md: those of the examples, and those of shell commands, in which
// the caller is $ME.
func documentedRequests(t *testing.T, me string) []*capstanv1.PromotionRequest {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("..", "docs", "gates.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var all []*capstanv1.PromotionRequest
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```|<<EOF\n(.*?)\n    EOF").FindAllStringSubmatch(string(text), -1) {
		one := strings.ReplaceAll(block[1]+block[2], "$ME", me)
		if block[2] != "" {
			one = strings.ReplaceAll("\n"+one, "\n    ", "\n")
		}
		if strings.Contains(one, "kind: PromotionRequest\n") {
			r := &capstanv1.PromotionRequest{}
			g.Expect(yaml.UnmarshalStrict([]byte(one), r)).To(Succeed(), one)
			all = append(all, r)
		}
	}
	return all
}

// The requests of docs/gates.md are admitted as written for a user with the ClusterRole of the document, if by is the
// user's own name. The PromotionWindows there are applied by test/promotions.
func TestRequestsOfTheDocuments(t *testing.T) {
	g := NewWithT(t)
	apps := namespace(t, "apps")
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
	}
	g.Expect(world.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: apps, Name: "promoters"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "capstan-promoter"},
		Subjects:   []rbacv1.Subject{user("ann"), user("petra")},
	})).To(Succeed())
	ann, petra := as(t, "ann"), as(t, "petra")
	for _, c := range []client.Client{ann, petra} {
		g.Eventually(func() error {
			return c.List(t.Context(), &capstanv1.PromotionRequestList{}, client.InNamespace(apps))
		}).WithTimeout(patience).Should(Succeed())
	}
	g.Eventually(func() bool { // The API server reads policies through a watch.
		return apierrors.IsForbidden(world.admin.Create(t.Context(), requestFor(apps, "probe", "eve"), client.DryRunAll))
	}).WithTimeout(patience).Should(BeTrue())
	requests := documentedRequests(t, "ann")
	g.Expect(len(requests)).To(BeNumerically(">=", 4))
	for _, r := range requests {
		g.Expect(r.Namespace).To(Equal(apps))
		g.Expect(petra.Create(t.Context(), r.DeepCopy())).To(MatchError(ContainSubstring("set it to your own user name")))
		g.Expect(ann.Create(t.Context(), r)).To(Succeed())
	}
}
