package install

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/generated"
)

//go:generate go test . -run TestPolicyMatrix -update

var update = flag.Bool("update", false, "write the matrix in docs/security.md")

const (
	teamNamespace, otherNamespace = "team", "other-team"
)

// actor is a user of the matrix.
type actor struct {
	name, user string
	groups     []string
	// role that is bound to the user in the team's namespace; none if empty.
	role string
}

// actors of the matrix. The hub's namespace is that of the installation.
func actors(hubNamespace string) []actor {
	return []actor{
		{name: "tenant", user: "tom", role: "capstan-tenant"},
		{name: "approver", user: "ann", role: "capstan-approver"},
		{name: "overrider", user: "oda", role: "capstan-overrider"},
		{name: "promoter", user: "petra", role: "capstan-promoter"},
		{name: "operator", user: "olga", role: "capstan-operator"},
		{name: "hub", user: "system:serviceaccount:" + hubNamespace + ":capstan-hub", groups: []string{"system:serviceaccounts"}},
		{name: "namespace owner", user: "otto", role: "owner"},
		{name: "cluster-admin", user: "root", groups: []string{"administrators"}},
	}
}

var (
	promotionsResource = schema.GroupVersionResource{Group: "capstan.dev", Version: "v1alpha1", Resource: "promotions"}
	pipelinesResource  = schema.GroupVersionResource{Group: "pipelines.weave.works", Version: "v1alpha1", Resource: "pipelines"}
	secretsResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	windowsResource    = schema.GroupVersionResource{Group: "capstan.dev", Version: "v1alpha1", Resource: "promotionwindows"}
	requestsResource   = schema.GroupVersionResource{Group: "capstan.dev", Version: "v1alpha1", Resource: "promotionrequests"}
)

// request is a row of the matrix. Nothing is stored: writes are dry runs, for which the API
// server checks rights, policies and schemas as for others.
type request struct {
	text string
	send func(ctx context.Context, c dynamic.Interface, user string) error
}

var dryRun = []string{metav1.DryRunAll}

func patch(of schema.GroupVersionResource, namespace, name, json string, subresource ...string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, user string) error {
		json := strings.ReplaceAll(json, "USER", user)
		_, err := c.Resource(of).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(json), metav1.PatchOptions{DryRun: dryRun}, subresource...)
		return err
	}
}

func get(of schema.GroupVersionResource, namespace, name string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, _ string) error {
		_, err := c.Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

func list(of schema.GroupVersionResource, namespace string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, _ string) error {
		_, err := c.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err
	}
}

func watch(of schema.GroupVersionResource, namespace string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, _ string) error {
		w, err := c.Resource(of).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			w.Stop()
		}
		return err
	}
}

func remove(of schema.GroupVersionResource, namespace, name string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, _ string) error {
		return c.Resource(of).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun})
	}
}

func removeAll(of schema.GroupVersionResource, namespace string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, _ string) error {
		return c.Resource(of).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
	}
}

func create(of schema.GroupVersionResource, object client.Object) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, _ string) error {
		u, err := unstructuredOf(of, object)
		if err != nil {
			return err
		}
		_, err = c.Resource(of).Namespace(object.GetNamespace()).Create(ctx, u, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
}

// put replaces an object by what is stored, after a change.
func put(of schema.GroupVersionResource, admin dynamic.Interface, namespace, name string, change func(o *unstructured.Unstructured, user string), subresource ...string) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, user string) error {
		u, err := admin.Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading %s as the administrator: %w", name, err)
		}
		change(u, user)
		_, err = c.Resource(of).Namespace(namespace).Update(ctx, u, metav1.UpdateOptions{DryRun: dryRun}, subresource...)
		return err
	}
}

func unstructuredOf(of schema.GroupVersionResource, object client.Object) (*unstructured.Unstructured, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: raw}
	u.SetGroupVersionKind(of.GroupVersion().WithKind(map[schema.GroupVersionResource]string{
		promotionsResource: capstanv1.PromotionKind, pipelinesResource: "Pipeline", secretsResource: "Secret", windowsResource: "PromotionWindow", requestsResource: capstanv1.PromotionRequestKind,
	}[of]))
	return u, nil
}

func matrixPromotion(namespace, name string, manual bool) *capstanv1.Promotion {
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{capstanv1.PipelineUIDLabel: "uid"}},
		Spec: capstanv1.PromotionSpec{
			Pipeline:    capstanv1.PipelineReference{Name: "shop", UID: "uid"},
			App:         pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environment: "prod", Number: 1, Revision: "1.1.0", Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 1},
			Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}, Manual: manual,
		},
	}
}

func matrixRequest(namespace, name, by string) *capstanv1.PromotionRequest {
	return &capstanv1.PromotionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       capstanv1.PromotionRequestSpec{Pipeline: "shop", Environment: "prod", Revision: "1.0.0", By: by, Reason: "x"},
	}
}

// createRequest creates a PromotionRequest in the caller's own name, after a change.
func createRequest(namespace string, change func(*capstanv1.PromotionRequestSpec)) func(context.Context, dynamic.Interface, string) error {
	return func(ctx context.Context, c dynamic.Interface, user string) error {
		object := matrixRequest(namespace, "new", user)
		change(&object.Spec)
		return create(requestsResource, object)(ctx, c, user)
	}
}

func matrixPipeline(namespace, name string) *pipelinesv1.Pipeline {
	return &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: namespace}}}},
		},
	}
}

func matrixSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{"hmac-key": "x"}}
}

// section of the matrix: the requests on one resource.
type section struct {
	resource string
	requests []request
}

// sections of the matrix. Promotions are named after their states.
func sections(admin dynamic.Interface) []section {
	forged := matrixPromotion(teamNamespace, "forged", false)
	forged.Spec.Number = 99
	approved := matrixPromotion(teamNamespace, "approved-at-once", true)
	approved.Spec.Approval = &capstanv1.Approval{By: "ann"}
	holding := matrixPromotion(teamNamespace, "holding", true)
	holding.Spec.Hold = &capstanv1.Hold{UntilSequence: 9}
	asWritten := func(*capstanv1.PromotionRequestSpec) {}
	promotion := func(name, json string, subresource ...string) func(context.Context, dynamic.Interface, string) error {
		return patch(promotionsResource, teamNamespace, name, json, subresource...)
	}
	nested := func(value any, fields ...string) func(*unstructured.Unstructured, string) {
		return func(u *unstructured.Unstructured, _ string) {
			if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
				panic(err)
			}
		}
	}
	return []section{
		{"promotions.capstan.dev", []request{
			{"get", get(promotionsResource, teamNamespace, "waiting")},
			{"list", list(promotionsResource, teamNamespace)},
			{"watch", watch(promotionsResource, teamNamespace)},
			{"list, all namespaces", list(promotionsResource, "")},
			{"get, another namespace", get(promotionsResource, otherNamespace, "waiting")},
			{"create", create(promotionsResource, matrixPromotion(teamNamespace, "new", true))},
			{"create with `manual: false` and the highest number", create(promotionsResource, forged)},
			{"create with an approval", create(promotionsResource, approved)},
			{"create with `spec.hold`", create(promotionsResource, holding)},
			{"patch `spec.approval` of one that waits, own name", promotion("waiting", `{"spec":{"approval":{"by":"USER"}}}`)},
			{"update (PUT) `spec.approval` of one that waits", put(promotionsResource, admin, teamNamespace, "waiting", func(u *unstructured.Unstructured, user string) {
				nested(map[string]any{"by": user}, "spec", "approval")(u, user)
			})},
			{"patch `spec.approval`, the name of another user", promotion("waiting", `{"spec":{"approval":{"by":"someone"}}}`)},
			{"patch `spec.approval`, method HTTP", promotion("waiting", `{"spec":{"approval":{"by":"secret:team/key","method":"HTTP"}}}`)},
			{"patch `spec.approval`, another namespace", patch(promotionsResource, otherNamespace, "waiting", `{"spec":{"approval":{"by":"USER"}}}`)},
			{"patch `spec.approval` of an automatic one", promotion("automatic", `{"spec":{"approval":{"by":"USER"}}}`)},
			{"patch `spec.approval` of a finished one", promotion("succeeded", `{"spec":{"approval":{"by":"USER"}}}`)},
			{"patch `spec.approval` of a retry that waits", promotion("retried", `{"spec":{"approval":{"by":"USER","retry":1}}}`)},
			{"patch `spec.approval` of a retry, without `retry`", promotion("retried", `{"spec":{"approval":{"by":"USER"}}}`)},
			{"replace the approval of a run", promotion("approved", `{"spec":{"approval":{"by":"USER"}}}`)},
			{"remove an approval", promotion("approved", `{"spec":{"approval":null}}`)},
			{"patch `spec.rejection` of one that waits, own name", promotion("waiting", `{"spec":{"rejection":{"by":"USER","comment":"x"}}}`)},
			{"patch `spec.rejection`, the name of another user", promotion("waiting", `{"spec":{"rejection":{"by":"someone","comment":"x"}}}`)},
			{"patch `spec.rejection` of a finished one", promotion("succeeded", `{"spec":{"rejection":{"by":"USER","comment":"x"}}}`)},
			{"patch `spec.rejection` of an approved run", promotion("approved", `{"spec":{"rejection":{"by":"USER","comment":"x"}}}`)},
			{"add to `spec.overrides` of one that waits, own name", promotion("waiting", `{"spec":{"overrides":[{"gate":"soak","by":"USER","reason":"x"}]}}`)},
			{"add to `spec.overrides`, the name of another user", promotion("waiting", `{"spec":{"overrides":[{"gate":"soak","by":"someone","reason":"x"}]}}`)},
			{"add to `spec.overrides`, gate `promotion-windows`", promotion("waiting", `{"spec":{"overrides":[{"gate":"promotion-windows","by":"USER","reason":"x"}]}}`)},
			{"add to `spec.overrides` of a finished one", promotion("succeeded", `{"spec":{"overrides":[{"gate":"soak","by":"USER","reason":"x"}]}}`)},
			{"raise `spec.retry` of a finished one", promotion("failed", `{"spec":{"retry":1}}`)},
			{"raise `spec.retry` of one in flight", promotion("approved", `{"spec":{"retry":1}}`)},
			{"lower `spec.retry`", promotion("retried", `{"spec":{"retry":0}}`)},
			{"patch `spec.revision`", promotion("waiting", `{"spec":{"revision":"6.6.6"}}`)},
			{"patch `spec.manual`", promotion("waiting", `{"spec":{"manual":false}}`)},
			{"patch `spec.strategy`", promotion("waiting", `{"spec":{"strategy":{"secretRef":{"name":"other"}}}}`)},
			{"patch `spec.request`", promotion("waiting", `{"spec":{"request":{"name":"x","uid":"x"}}}`)},
			{"patch `spec.rollbackOf`", promotion("waiting", `{"spec":{"rollbackOf":{"name":"x","number":1}}}`)},
			{"patch `spec.hold`", promotion("waiting", `{"spec":{"hold":{"untilSequence":9}}}`)},
			{"update (PUT) `spec.number`", put(promotionsResource, admin, teamNamespace, "waiting", nested(int64(9), "spec", "number"))},
			{"patch labels", promotion("waiting", `{"metadata":{"labels":{"capstan.dev/pipeline-uid":"another"}}}`)},
			{"patch owners", promotion("waiting", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`)},
			{"patch annotations `capstan.dev/...`", promotion("waiting", `{"metadata":{"annotations":{"capstan.dev/told":"{}"}}}`)},
			{"patch other annotations", promotion("waiting", `{"metadata":{"annotations":{"note":"x"}}}`)},
			{"patch status", promotion("waiting", `{"status":{"phase":"Promoting"}}`, "status")},
			{"update (PUT) status", put(promotionsResource, admin, teamNamespace, "waiting", nested("Promoting", "status", "phase"), "status")},
			{"delete", remove(promotionsResource, teamNamespace, "succeeded")},
			{"deletecollection", removeAll(promotionsResource, teamNamespace)},
		}},
		{"pipelines.pipelines.weave.works", []request{
			{"get", get(pipelinesResource, teamNamespace, "shop")},
			{"list", list(pipelinesResource, teamNamespace)},
			{"watch", watch(pipelinesResource, teamNamespace)},
			{"list, all namespaces", list(pipelinesResource, "")},
			{"create", create(pipelinesResource, matrixPipeline(teamNamespace, "new"))},
			{"create, another namespace", create(pipelinesResource, matrixPipeline(otherNamespace, "new"))},
			{"patch `spec`", patch(pipelinesResource, teamNamespace, "shop", `{"spec":{"suspend":true}}`)},
			{"patch `spec`, another namespace", patch(pipelinesResource, otherNamespace, "shop", `{"spec":{"suspend":true}}`)},
			{"update (PUT)", put(pipelinesResource, admin, teamNamespace, "shop", nested(true, "spec", "suspend"))},
			{"patch labels", patch(pipelinesResource, teamNamespace, "shop", `{"metadata":{"labels":{"a":"b"}}}`)},
			{"patch annotation `capstan.dev/requested-at`", patch(pipelinesResource, teamNamespace, "shop", `{"metadata":{"annotations":{"capstan.dev/requested-at":"now"}}}`)},
			{"patch status", patch(pipelinesResource, teamNamespace, "shop", `{"status":{"observedGeneration":7}}`, "status")},
			{"update (PUT) status", put(pipelinesResource, admin, teamNamespace, "shop", nested(int64(7), "status", "observedGeneration"), "status")},
			{"delete", remove(pipelinesResource, teamNamespace, "shop")},
			{"deletecollection", removeAll(pipelinesResource, teamNamespace)},
		}},
		{"promotionrequests.capstan.dev", []request{
			{"get", get(requestsResource, teamNamespace, "requested")},
			{"list", list(requestsResource, teamNamespace)},
			{"watch", watch(requestsResource, teamNamespace)},
			{"list, all namespaces", list(requestsResource, "")},
			{"get, another namespace", get(requestsResource, otherNamespace, "requested")},
			{"create, own name", createRequest(teamNamespace, asWritten)},
			{"create, the name of another user", createRequest(teamNamespace, func(s *capstanv1.PromotionRequestSpec) { s.By = "someone" })},
			{"create, another namespace", createRequest(otherNamespace, asWritten)},
			{"create with `revision` and `rollback`", createRequest(teamNamespace, func(s *capstanv1.PromotionRequestSpec) { s.Rollback = &capstanv1.RollbackRequest{} })},
			{"patch `spec`", patch(requestsResource, teamNamespace, "requested", `{"spec":{"revision":"6.6.6"}}`)},
			{"update (PUT) `spec`", put(requestsResource, admin, teamNamespace, "requested", nested("6.6.6", "spec", "revision"))},
			{"patch status", patch(requestsResource, teamNamespace, "requested", `{"status":{"phase":"Expired"}}`, "status")},
			{"update (PUT) status", put(requestsResource, admin, teamNamespace, "requested", nested("Expired", "status", "phase"), "status")},
			{"delete", remove(requestsResource, teamNamespace, "requested")},
			{"deletecollection", removeAll(requestsResource, teamNamespace)},
		}},
		{"promotionwindows.capstan.dev", []request{
			{"list", list(windowsResource, "")},
			{"create", create(windowsResource, &capstanv1.PromotionWindow{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: capstanv1.PromotionWindowSpec{
				WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow},
			}})},
			{"deletecollection", removeAll(windowsResource, "")},
		}},
		{"secrets", []request{
			{"get", get(secretsResource, teamNamespace, "key")},
			{"list", list(secretsResource, teamNamespace)},
			{"watch", watch(secretsResource, teamNamespace)},
			{"get, another namespace", get(secretsResource, otherNamespace, "key")},
			{"list, all namespaces", list(secretsResource, "")},
			{"create", create(secretsResource, matrixSecret(teamNamespace, "new"))},
			{"patch", patch(secretsResource, teamNamespace, "key", `{"stringData":{"hmac-key":"y"}}`)},
			{"update (PUT)", put(secretsResource, admin, teamNamespace, "key", nested(map[string]any{"hmac-key": "y"}, "stringData"))},
			{"delete", remove(secretsResource, teamNamespace, "key")},
			{"deletecollection", removeAll(secretsResource, teamNamespace)},
		}},
	}
}

// answer of the API server, as a cell.
func answer(err error) (string, error) {
	switch {
	case err == nil:
		return "**yes**", nil
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return "no: policy", nil
	case apierrors.IsForbidden(err):
		return "no: rights", nil
	case apierrors.IsInvalid(err):
		return "no: schema", nil
	default:
		return "", err
	}
}

// The rights and policies that both installations ship give the same answer to each request
// of each kind of user. docs/security.md shows the answers. Both hubs are in another namespace
// than config/default says, so no policy depends on it.
func TestPolicyMatrix(t *testing.T) {
	t.Parallel()
	var shown string
	for name, render := range map[string]func(t *testing.T, namespace string) string{
		"chart": func(t *testing.T, namespace string) string {
			t.Helper()
			text, err := chart(t, "--namespace", namespace, "--set", "pipelineNamespaces={"+teamNamespace+"}")
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			return text
		},
		"kustomization": func(t *testing.T, namespace string) string {
			t.Helper()
			text := overlay(t, namespace, "", path("config", "default"))
			// Each Role and its binding is applied to the team's namespace; its subject is the hub.
			secrets := overlay(t, teamNamespace, namespace, path("config", "rbac", "pipeline-secrets"))
			return text + "\n---\n" + secrets
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := matrix(t, "hub-by-"+name, render(t, "hub-by-"+name))
			if shown != "" {
				g.Expect(got).To(Equal(shown), "the other installation")
			}
			shown = got
		})
	}
	generated.Section(t, path("docs", "security.md"), "policy matrix", shown, *update)
}

// overlay renders a folder of config into another namespace, as a user's overlay does. The
// subjects of bindings are in hubNamespace, if it is not empty.
func overlay(t *testing.T, namespace, hubNamespace, base string) string {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	relative, err := filepath.Rel(dir, base)
	g.Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %s\nresources: [%s]\n", namespace, relative)
	if hubNamespace != "" {
		text += fmt.Sprintf("patches:\n  - target: {kind: RoleBinding}\n    patch: |\n      [{\"op\": \"replace\", \"path\": \"/subjects/0/namespace\", \"value\": %q}]\n", hubNamespace)
	}
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)).To(Succeed())
	out, _, err := tool(t.Context(), nil, []string{"HOME=" + t.TempDir()}, "envtest/kubectl", "kustomize", dir)
	g.Expect(err).NotTo(HaveOccurred())
	return out
}

// matrix applies an installation to an API server of its own, and returns the answers to all
// requests as Markdown.
func matrix(t *testing.T, namespace, installation string) string {
	t.Helper()
	g := NewWithT(t)
	plane, env := emptyCluster(t)
	users := actors(namespace)
	prepare(t, plane, namespace, users)
	_, _, err := tool(t.Context(), []byte(installation), env, "envtest/kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
	g.Expect(err).NotTo(HaveOccurred())
	populate(t, plane)

	admin, err := dynamic.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	clients := make([]dynamic.Interface, len(users))
	for i, u := range users {
		config := plane.Config()
		config.QPS = -1
		config.Impersonate = rest.ImpersonationConfig{UserName: u.user, Groups: append([]string{"system:authenticated"}, u.groups...)}
		clients[i], err = dynamic.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
	}
	inForce(t, users, clients)

	var b strings.Builder
	for _, s := range sections(admin) {
		fmt.Fprintf(&b, "\n| %s |", s.resource)
		for _, u := range users {
			fmt.Fprintf(&b, " %s |", u.name)
		}
		b.WriteString("\n|---" + strings.Repeat("|---", len(users)) + "|\n")
		for _, r := range s.requests {
			fmt.Fprintf(&b, "| %s |", r.text)
			for i, u := range users {
				cell, err := answer(r.send(t.Context(), clients[i], u.user))
				g.Expect(err).NotTo(HaveOccurred(), "%s: %s: %s", u.name, s.resource, r.text)
				fmt.Fprintf(&b, " %s |", cell)
			}
			b.WriteString("\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func scheme(g *WithT) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, pipelinesv1.AddToScheme, capstanv1.AddToScheme} {
		g.Expect(add(s)).To(Succeed())
	}
	return s
}

// prepare creates the namespaces and binds the shipped roles, before they exist.
func prepare(t *testing.T, plane *controlplane.ControlPlane, namespace string, users []actor) {
	t.Helper()
	g := NewWithT(t)
	admin, err := client.New(plane.Config(), client.Options{Scheme: scheme(g)})
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{namespace, teamNamespace, otherNamespace} {
		g.Expect(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	g.Expect(admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}})).To(Succeed())
	for _, u := range users {
		if u.role == "" {
			continue
		}
		g.Expect(admin.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: teamNamespace, Name: u.role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: u.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u.user}},
		})).To(Succeed())
	}
	g.Expect(admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "administrators"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "administrators"}},
	})).To(Succeed())
}

// populate creates the objects that the requests name.
func populate(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	g := NewWithT(t)
	admin, err := client.New(plane.Config(), client.Options{Scheme: scheme(g)})
	g.Expect(err).NotTo(HaveOccurred())
	for _, ns := range []string{teamNamespace, otherNamespace} {
		g.Expect(admin.Create(t.Context(), matrixPipeline(ns, "shop"))).To(Succeed())
		g.Expect(admin.Create(t.Context(), matrixSecret(ns, "key"))).To(Succeed())
		g.Expect(admin.Create(t.Context(), matrixRequest(ns, "requested", "admin"))).To(Succeed())
	}
	approval := &capstanv1.Approval{By: "alice"}
	for _, of := range []struct {
		namespace, name string
		manual          bool
		retry           int64
		approval        *capstanv1.Approval
		phase           capstanv1.PromotionPhase
	}{
		{teamNamespace, "waiting", true, 0, nil, capstanv1.PhaseAwaitingApproval},
		{otherNamespace, "waiting", true, 0, nil, capstanv1.PhaseAwaitingApproval},
		{teamNamespace, "approved", true, 0, approval, capstanv1.PhasePromoting},
		{teamNamespace, "retried", true, 1, approval, capstanv1.PhaseAwaitingApproval},
		{teamNamespace, "failed", true, 0, approval, capstanv1.PhaseFailed},
		{teamNamespace, "automatic", false, 0, nil, capstanv1.PhasePromoting},
		{teamNamespace, "succeeded", true, 0, nil, capstanv1.PhaseSucceeded},
	} {
		p := matrixPromotion(of.namespace, of.name, of.manual)
		p.Spec.Retry, p.Spec.Approval = of.retry, of.approval
		g.Expect(admin.Create(t.Context(), p)).To(Succeed())
		p.Status = capstanv1.PromotionStatus{Phase: of.phase, Retry: of.retry}
		g.Expect(admin.Status().Update(t.Context(), p)).To(Succeed())
	}
}

// inForce waits until the API server enforces each policy, which it reads through a watch.
func inForce(t *testing.T, users []actor, clients []dynamic.Interface) {
	t.Helper()
	g := NewWithT(t)
	const patience = 30 * time.Second
	refused := func(user string, send func(context.Context, dynamic.Interface, string) error) func() bool {
		i := slices.IndexFunc(users, func(u actor) bool { return u.name == user })
		return func() bool {
			err := send(t.Context(), clients[i], "another")
			return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
		}
	}
	const hub, owner = "hub", "namespace owner"
	g.Eventually(refused(owner, create(promotionsResource, matrixPromotion(teamNamespace, "new", true)))).WithTimeout(patience).Should(BeTrue())
	g.Eventually(refused(owner, patch(promotionsResource, teamNamespace, "waiting", `{"spec":{"approval":{"by":"another"}}}`))).WithTimeout(patience).Should(BeTrue())
	g.Eventually(refused(owner, patch(promotionsResource, teamNamespace, "waiting", `{"spec":{"rejection":{"by":"someone","comment":"x"}}}`))).WithTimeout(patience).Should(BeTrue())
	g.Eventually(refused(owner, patch(promotionsResource, teamNamespace, "waiting", `{"spec":{"overrides":[{"gate":"soak","by":"someone","reason":"x"}]}}`))).WithTimeout(patience).Should(BeTrue())
	g.Eventually(refused(owner, create(requestsResource, matrixRequest(teamNamespace, "new", "another")))).WithTimeout(patience).Should(BeTrue())
	g.Eventually(refused(hub, patch(pipelinesResource, teamNamespace, "shop", `{"spec":{"suspend":true}}`))).WithTimeout(patience).Should(BeTrue())
}
