package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// deployed creates a Pipeline of dev and prod in a namespace, and a promotion into prod that succeeded.
func (w *world) deployed(namespace, name string) *capstanv1.Promotion {
	w.t.Helper()
	strategy := pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:       pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: name},
			Promotion:    &pipelinesv1.Promotion{Strategy: strategy},
			Environments: []pipelinesv1.Environment{{Name: "dev", Targets: []pipelinesv1.Target{{Namespace: "dev"}}}, {Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "prod"}}}},
		},
	}
	w.Expect(w.c.Create(w.t.Context(), p)).To(Succeed())
	w.seen(p)
	promotion := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-prod-1", Labels: map[string]string{capstanv1.PipelineUIDLabel: string(p.UID)}},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: name, UID: p.UID}, App: p.Spec.AppRef, Environment: "prod", Number: 1, Revision: "1.0.0",
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 1}, Strategy: strategy,
		},
	}
	w.Expect(w.c.Create(w.t.Context(), promotion)).To(Succeed())
	end := metav1.NewTime(promotion.CreationTimestamp.Add(90 * time.Second))
	promotion.Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: &promotion.CreationTimestamp, FinishTime: &end, CarriedOutTime: &end}
	w.Expect(w.c.Status().Update(w.t.Context(), promotion)).To(Succeed())
	w.seen(promotion)
	w.clock.step(2 * time.Minute) // The end is not in the future, nor in another day.
	return promotion
}

// call the API with a token.
func (b *browser) call(method, path, token string) answer {
	b.w.t.Helper()
	return b.do(method, path, nil, http.Header{"Authorization": {"Bearer " + token}})
}

func (w *world) report(a answer) view.DeliveryReport {
	w.t.Helper()
	w.Expect(a.Code).To(Equal(200), a.Body)
	w.Expect(a.Header.Get("Content-Type")).To(Equal("application/json; charset=utf-8"))
	var r view.DeliveryReport
	w.Expect(json.Unmarshal([]byte(a.Body), &r)).To(Succeed())
	return r
}

// message is that of an answer with an error.
func (w *world) message(a answer) string {
	w.t.Helper()
	w.Expect(a.Header.Get("Content-Type")).To(Equal("application/json; charset=utf-8"))
	var e apiError
	w.Expect(json.Unmarshal([]byte(a.Body), &e)).To(Succeed(), a.Body)
	return e.Message
}

// A script that calls the API with its token, and a browser with a session, get the figures of what their users may list.
func TestDeliveryAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.deployed(w.apps, "shop")
	w.deployed(w.fleet, "billing")
	one, none, all := w.account("one"), w.account("none"), w.account("all")
	w.may(w.apps, w.subject("one"), lists)
	w.Expect(w.c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "delivery-" + w.apps}, Rules: []rbacv1.PolicyRule{lists}})).To(Succeed())
	w.Expect(w.c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "delivery-" + w.apps}, Subjects: []rbacv1.Subject{w.subject("all")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "delivery-" + w.apps},
	})).To(Succeed())
	w.granted(w.fleet, w.subject("all"), lists)
	b := w.browser() // It never signs in.

	r := w.report(b.call("GET", deliveryAPI, all))
	w.Expect(r.Figures).To(And(HaveField("Deployments", 2), HaveField("LeadTime", HaveField("MedianSeconds", HaveValue(BeEquivalentTo(90))))))
	w.Expect(r.Pipelines).To(ConsistOf(And(HaveField("Namespace", w.apps), HaveField("Name", "shop")), And(HaveField("Namespace", w.fleet), HaveField("Name", "billing"))))
	w.Expect(r.Namespaces).To(HaveLen(2))
	w.Expect(r.DeploymentsPerDay).To(HaveLen(30))

	own := b.call("GET", deliveryAPI, one)
	w.Expect(w.report(own)).To(And(HaveField("Figures.Deployments", 1), HaveField("Namespaces", HaveLen(1)), HaveField("Pipelines", HaveLen(1))))
	w.Expect(own.Body).NotTo(Or(ContainSubstring(w.fleet), ContainSubstring("billing")))
	w.Expect(w.report(b.call("GET", deliveryAPI+"?namespace="+w.apps, one)).Pipelines).To(HaveLen(1))
	w.Expect(w.report(b.call("GET", deliveryAPI+"?namespace="+w.apps+"&pipeline=shop", one)).Environments).To(ConsistOf(And(HaveField("Name", "prod"), HaveField("Last", true))))
	hidden, absent := b.call("GET", deliveryAPI+"?namespace="+w.fleet, one), b.call("GET", deliveryAPI+"?namespace=absent", one)
	w.Expect([]int{hidden.Code, absent.Code}).To(Equal([]int{404, 404}))
	w.Expect(w.message(hidden)).To(Equal(strings.ReplaceAll(w.message(absent), "absent", w.fleet)), "the answer does not reveal that it exists")

	refused := b.call("GET", deliveryAPI, none)
	w.Expect(refused.Code).To(Equal(403))
	w.Expect(w.message(refused)).To(ContainSubstring("list promotions.capstan.dev"))

	// A session is enough, and its pages show the same.
	w.Expect(b.signIn(one).Code).To(Equal(303))
	w.Expect(b.get(deliveryAPI).Body).To(Equal(own.Body))
	page := b.get("/delivery").Body
	w.Expect(page).To(And(ContainSubstring(`<b>1</b> in total`), ContainSubstring(w.apps+"/shop"), Not(ContainSubstring("billing"))))
	w.Expect(w.browser().get("/delivery").Code).To(Equal(303))
}

// Each bad request gets an error as JSON that says what to do.
func TestAPIRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.deployed(w.apps, "shop")
	token := w.account("ada")
	w.may(w.apps, w.subject("ada"), lists)
	b := w.browser()
	for _, tc := range []struct {
		method, path, token string
		code                int
		says                string
	}{
		{"POST", deliveryAPI, token, 405, "use GET"},
		{"DELETE", apiRoot, token, 405, "use GET"},
		{"GET", apiRoot + "deliveries", token, 404, apiRoot + " lists all endpoints"},
		{"GET", "/api/v2/delivery", token, 404, "no endpoint"},
		{"GET", deliveryAPI + "?pipeline=shop", token, 400, "needs the parameter namespace"},
		{"GET", deliveryAPI + "?ns=apps", token, 400, `the parameter "ns" does not exist: use namespace or pipeline`},
		{"GET", deliveryAPI + "?namespace=a&namespace=b", token, 400, "has 2 values"},
		{"GET", deliveryAPI + "?namespace=%zz", token, 400, "cannot be parsed"},
		{"GET", deliveryAPI + "?namespace=" + w.apps + "&pipeline=absent", token, 404, "Pipeline " + w.apps + "/absent does not exist"},
		{"GET", deliveryAPI, "rubbish", 401, "rejected the token"},
		{"GET", apiRoot, "rubbish", 401, "rejected the token"},
		{"GET", deliveryAPI, strings.Repeat("x", MaxToken+1), 401, "rejected the token"},
	} {
		a := b.call(tc.method, tc.path, tc.token)
		w.Expect(a.Code).To(Equal(tc.code), tc.path)
		w.Expect(w.message(a)).To(ContainSubstring(tc.says), tc.path)
	}
	w.Expect(b.do("GET", deliveryAPI, nil, http.Header{"Authorization": {"Basic YTpi"}}).Code).To(Equal(401))
	without := b.get(deliveryAPI)
	w.Expect(without.Code).To(Equal(401))
	w.Expect(w.message(without)).To(ContainSubstring("Authorization: Bearer TOKEN"))
	w.Expect(without.Header.Get("WWW-Authenticate")).To(ContainSubstring("Bearer"))
	w.Expect(without.Header.Values("Set-Cookie")).To(BeEmpty())

	var index struct{ Endpoints []apiEndpoint }
	w.Expect(json.Unmarshal([]byte(b.call("GET", apiRoot, token).Body), &index)).To(Succeed())
	w.Expect(index.Endpoints).To(Equal(apiEndpoints))
	w.Expect(b.call("HEAD", deliveryAPI, token)).To(And(HaveField("Code", 200), HaveField("Body", "")))

	// A token that is revoked ends after a minute.
	w.Expect(w.c.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: "ada"}})).To(Succeed())
	w.Eventually(func() int { w.clock.step(reviewFor); return b.call("GET", deliveryAPI, token).Code }, patience, "500ms").Should(Equal(401))
}

// Refused tokens are limited as attempts to sign in are; a token that was accepted is not.
func TestAPITokensAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.deployed(w.apps, "shop")
	token := w.account("ada")
	w.may(w.apps, w.subject("ada"), lists)
	b := w.browser()
	for range 3 * signIns {
		w.Expect(b.call("GET", deliveryAPI, token).Code).To(Equal(200))
	}
	for range signIns - 1 { // The first one was of the accepted token.
		w.Expect(b.call("GET", deliveryAPI, "rubbish").Code).To(Equal(401))
	}
	limited := b.call("GET", deliveryAPI, "rubbish")
	w.Expect(limited).To(And(HaveField("Code", 429), HaveField("Header", HaveKey("Retry-After"))))
	w.Expect(w.message(limited)).To(ContainSubstring("try again"))
	w.Expect(b.signIn("rubbish").Code).To(Equal(429))
	w.Expect(b.call("GET", deliveryAPI, token).Code).To(Equal(200))
}

// Without sign-in, the API of a dashboard for this machine shows everything.
func TestAPIWithoutSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.deployed(w.apps, "shop")
	w.Expect(w.report(w.browser().get(deliveryAPI)).Figures.Deployments).To(Equal(1))
}

// The example of docs/api-http.md works, and the answer there has the fields of a real one.
func TestDocumentedCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	raw, err := os.ReadFile(filepath.Join(controlplane.Root(), "docs", "api-http.md"))
	w.Expect(err).NotTo(HaveOccurred())
	call := regexp.MustCompile(`curl -H "Authorization: (Bearer) \$TOKEN" "http://127\.0\.0\.1:8090(/api/[^"]+)"`).FindSubmatch(raw)
	w.Expect(call).NotTo(BeNil())
	documented, err := url.Parse(string(call[2]))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(documented.Query()).To(Equal(url.Values{"namespace": {"apps"}, "pipeline": {"shop"}}))
	answered := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(raw)
	w.Expect(answered).NotTo(BeNil())

	w.deployed(w.apps, "shop")
	token := w.account("ada")
	w.may(w.apps, w.subject("ada"), lists)
	address := strings.ReplaceAll(string(call[2]), "namespace=apps", "namespace="+w.apps)
	got := w.browser().do("GET", address, nil, http.Header{"Authorization": {string(call[1]) + " " + token}})
	w.Expect(got.Code).To(Equal(200), got.Body)
	fields := func(raw string) map[string]any {
		all := map[string]any{}
		w.Expect(json.Unmarshal([]byte(raw), &all)).To(Succeed())
		return all
	}
	have, want := fields(got.Body), fields(string(answered[1]))
	for name := range have {
		w.Expect(want).To(HaveKey(name))
	}
	figures, _ := want["figures"].(map[string]any)
	for name := range have["figures"].(map[string]any) {
		w.Expect(figures).To(HaveKey(name))
	}
}
