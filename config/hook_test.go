package config_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/approval"
)

// shop is a Pipeline with dev and prod. The Secret hmac has the key that signs its calls.
func shop(t *testing.T, namespace string) *pipelinesv1.Pipeline {
	t.Helper()
	target := []pipelinesv1.Target{{Namespace: "shop"}}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop", Annotations: map[string]string{"owner": "team"}, Labels: map[string]string{"team": "a"}},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: target}, {Name: "prod", Targets: target}},
			Promotion: &pipelinesv1.Promotion{Manual: true, Strategy: pipelinesv1.Strategy{
				Notification: &pipelinesv1.NotificationPromotion{}, SecretRef: &pipelinesv1.LocalObjectReference{Name: "hmac"}}},
		},
	}
	NewWithT(t).Expect(world.admin.Create(t.Context(), p)).To(Succeed())
	return p
}

// The rights of config/default and pipeline-secrets are sufficient for the promotion hook,
// also on a standby replica. Without pipeline-secrets they are not.
func TestHookWithTheHubsOwnRights(t *testing.T) {
	g := NewWithT(t)
	inForce(t)
	ns := namespace(t, "hooked")
	key := []byte("key")
	g.Expect(world.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hmac"}, Data: map[string][]byte{approval.SecretKey: key}})).To(Succeed())
	p := shop(t, ns)
	waiting := promotion(ns, "shop-prod-1")
	waiting.Labels = map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}
	waiting.Spec.Pipeline = capstanv1.PipelineReference{Name: p.Name, UID: p.UID}
	g.Expect(world.admin.Create(t.Context(), waiting)).To(Succeed())
	// A suspended Pipeline is not reconciled: the test does not wait for a result.
	p.Spec.Suspend = true
	g.Expect(world.admin.Update(t.Context(), p)).To(Succeed())

	own := as(t, hubUser)
	server := approval.New(approval.Options{
		Client: own, Cache: own, Leads: func() bool { return false }, Wake: func(types.NamespacedName) {}, RateLimit: 1000, Logger: logr.Discard(),
	})
	post := func(path, body string) int {
		request := httptest.NewRequest(http.MethodPost, path, nil)
		if body != "" {
			request = httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		}
		request.Header = approval.Sign(key, http.MethodPost, path, time.Now(), []byte(body))
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, request)
		return recorder.Code
	}
	approve := approval.ApprovalPath(ns, "shop", "prod", "6.6.1")
	g.Expect(post(approve, "")).To(Equal(500), "without config/rbac/pipeline-secrets in the namespace")
	_, _, err := kubectl(t.Context(), "apply", "-n", ns, "-k", "rbac/pipeline-secrets")
	g.Expect(err).NotTo(HaveOccurred())

	hint := approval.PromotionPath(ns, "shop", "dev")
	event := `{"involvedObject":{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","namespace":"shop","name":"web"},"metadata":{"revision":"6.6.1"}}`
	g.Eventually(func() int { return post(hint, event) }).WithTimeout(patience).Should(Equal(204))
	g.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p)).To(Succeed())
	g.Expect(p.Annotations).To(HaveKey(pipelinesv1.RequestedAtAnnotation))

	g.Expect(post(approve, "")).To(Equal(204))
	g.Expect(world.admin.Get(t.Context(), client.ObjectKeyFromObject(waiting), waiting)).To(Succeed())
	g.Expect(waiting.Spec.Approval).To(Equal(&capstanv1.Approval{By: "secret:" + ns + "/hmac", Method: capstanv1.ApprovalByHTTP}))
}

func TestHubChangesOnlyAnAnnotationOfPipelines(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t, "untouched")
	p := shop(t, ns)
	hub := as(t, hubUser)
	patch := func(json string) error {
		return hub.Patch(t.Context(), p.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(json)))
	}
	g.Eventually(func() bool { return apierrors.IsForbidden(patch(`{"spec":{"suspend":true}}`)) }).WithTimeout(patience).Should(BeTrue())
	for _, json := range []string{
		`{"spec":{"suspend":true}}`,
		`{"spec":{"promotion":null}}`,
		`{"metadata":{"annotations":{"owner":"hub"}}}`,
		`{"metadata":{"annotations":{"owner":null}}}`,
		`{"metadata":{"annotations":{"another":"x","capstan.dev/requested-at":"now"}}}`,
		`{"metadata":{"labels":{"team":"b"}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"finalizers":["capstan.dev/x"]}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`,
	} {
		g.Expect(patch(json)).To(MatchError(ContainSubstring("the hub may change only the annotation capstan.dev/requested-at of a Pipeline")), json)
	}
	for _, json := range []string{
		`{"metadata":{"annotations":{"capstan.dev/requested-at":"now"}}}`,
		`{"metadata":{"annotations":{"capstan.dev/requested-at":"later"}}}`,
		`{"metadata":{"annotations":{"capstan.dev/requested-at":null}}}`,
	} {
		g.Expect(patch(json)).To(Succeed(), json)
	}
	// An object without annotations, and changes by users, are allowed as before.
	g.Expect(world.admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null},"spec":{"suspend":true}}`)))).To(Succeed())
	g.Expect(patch(`{"metadata":{"annotations":{"capstan.dev/requested-at":"now"}}}`)).To(Succeed())
}
