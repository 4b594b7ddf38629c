package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/flux"
)

// settle is how long an event that must not arrive is waited for.
const settle = 3 * time.Second

// receiver is the web server that Providers notify.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []eventv1.Event
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var e eventv1.Event
		if err := json.NewDecoder(q.Body).Decode(&e); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}))
	t.Cleanup(r.Close)
	return r
}

// received returns "reason pipeline" of each notification, in order of arrival.
func (r *receiver) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]string, len(r.events))
	for i, e := range r.events {
		all[i] = e.Reason + " " + e.InvolvedObject.Name
	}
	return all
}

// of returns the notification with a reason about a Pipeline.
func (r *receiver) of(reason, pipeline string) eventv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.events, func(e eventv1.Event) bool { return e.Reason == reason && e.InvolvedObject.Name == pipeline })
	if i < 0 {
		return eventv1.Event{}
	}
	return r.events[i]
}

func (w *world) create(manifest string) {
	w.t.Helper()
	w.Expect(w.c.Create(w.t.Context(), w.object(manifest))).To(Succeed())
}

// alert sends the events that it selects to a receiver.
func (w *world) alert(name, severity, sources string, to *receiver) {
	w.t.Helper()
	w.create(fmt.Sprintf(`{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Provider, metadata: {name: %s}, spec: {type: generic, address: %q}}`, name, to.URL))
	w.create(fmt.Sprintf(`{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Alert, metadata: {name: %s}, spec: {providerRef: {name: %s}, eventSeverity: %s, eventSources: %s}}`, name, name, severity, sources))
}

// deploy an application at a version.
func (w *world) deploy(environment, version string) {
	w.t.Helper()
	r := flux.Release{Client: w.c, Key: types.NamespacedName{Namespace: w.ns + "-" + environment, Name: "shop"}}
	w.Expect(r.Deploy(w.t.Context(), version)).To(Succeed())
}

// program is notification-controller for the API server, until the test ends; it returns the address of its events.
func program(t *testing.T, plane *controlplane.ControlPlane) string {
	t.Helper()
	g := NewWithT(t)
	kubeconfig, err := plane.Kubeconfig(plane.Config().Host)
	g.Expect(err).NotTo(HaveOccurred())
	n, err := flux.StartNotificationController(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.Log())
		}
		g.Expect(n.Stop()).To(Succeed())
	})
	g.Eventually(func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.EventsURL(), http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}).Should(Succeed())
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return n.EventsURL()
}

// TestAlerts: with the shipped component, an Alert gets the events of Pipelines from Flux's own
// notification-controller: a promotion that waits for an approval, closed and open gates, success
// and failure. An Alert with eventSeverity error gets the failure alone, one with matchLabels the
// Pipelines with these labels, and no Alert gets an event twice.
func TestAlerts(t *testing.T) {
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "helm-controller", "notification-controller")})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(plane.Stop()).To(Succeed()) })
	config := plane.Config()
	w := newWorld(t, config, "shop")
	g, c := w.WithT, w.c
	all, failures, labelled := newReceiver(t), newReceiver(t), newReceiver(t)
	w.alert("all", "info", anyPipeline, all)
	w.alert("errors", "error", anyPipeline, failures)
	w.alert("labelled", "info", `[{kind: Pipeline, name: "*", matchLabels: {team: payments}}]`, labelled)
	events := program(t, plane)

	h, err := hub.New(hub.Options{
		Config: config, Namespaces: []string{w.ns}, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), CloneDir: t.TempDir(),
		EventsAddress: events, Eventing: hub.Eventing{APIBindAddress: "0", AllowLoopback: true},
		Hook: hub.Hook{BindAddress: "0"}, Dashboard: hub.Dashboard{BindAddress: "0", URL: "https://capstan.example.org"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-ended).To(Succeed())
	})
	// The address is that of --events-addr. A second object for the same notification-controller sends every event again.
	for _, name := range []string{"flux", "flux-again"} {
		w.create(`{apiVersion: eventing.kyma-project.io/v1alpha1, kind: EventingBackend, metadata: {name: ` + name + `}, spec: {type: flux}}`)
	}
	w.deploy("dev", "1.0.0")
	w.deploy("prod", "1.0.0")
	environments := func(more string) string {
		return `environments: [{name: dev, targets: [{namespace: shop-dev}]}, {name: prod, targets: [{namespace: shop-prod}]` + more + `}]`
	}
	pipeline := func(name, labels, promotion, more string) {
		w.create(`{apiVersion: pipelines.weave.works/v1alpha1, kind: Pipeline, metadata: {name: ` + name + `, labels: ` + labels + `}, spec: {` +
			`appRef: {apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, name: shop}, promotion: ` + promotion + `, ` + environments(more) + `}}`)
	}
	pipeline("manual", "{team: payments}", "{manual: true, strategy: {notification: {}}}", "")
	pipeline("gated", "{}", "{strategy: {notification: {}}}", ", gates: {soak: {for: 2h}}")
	pipeline("broken", "{}", "{strategy: {pull-request: {type: github, url: 'https://git.invalid/shop/shop', baseBranch: main, secretRef: {name: missing}}}}", "")
	w.deploy("dev", "1.1.0")

	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, kind := range []string{"pipelines.weave.works/v1alpha1 Pipeline", "capstan.dev/v1alpha1 Promotion", "eventing.kyma-project.io/v1alpha1 EventingBackend"} {
			version, name, _ := strings.Cut(kind, " ")
			all := &unstructured.UnstructuredList{}
			all.SetAPIVersion(version)
			all.SetKind(name)
			err := c.List(context.Background(), all, client.InNamespace(w.ns))
			t.Log(kind, err)
			for _, o := range all.Items {
				t.Log(o.GetName(), o.Object["status"])
			}
		}
	})
	g.Eventually(all.received).Should(ContainElements("AwaitingApproval manual", "GatesClosed gated"))
	waiting := all.of("AwaitingApproval", "manual")
	g.Expect(waiting.Severity).To(Equal(eventv1.EventSeverityInfo))
	g.Expect(waiting.InvolvedObject.Namespace).To(Equal(w.ns))
	g.Expect(waiting.Message).To(Equal("Approval required: 1.1.0 of pipeline shop/manual into prod"))
	g.Expect(waiting.Metadata).To(And(HaveKeyWithValue("environment", "prod"), HaveKeyWithValue("revision", "1.1.0"), Not(HaveKey("token")),
		HaveKeyWithValue("approveURL", "https://capstan.example.org/promotions/shop/"+waiting.Metadata["promotion"]+"/approve")))
	g.Expect(all.of("GatesClosed", "gated").Message).To(ContainSubstring("must be healthy with 1.1.0 for 2h"))

	// A user opens the gate and approves.
	promotion := func(pipeline string) *capstanv1.Promotion {
		var list capstanv1.PromotionList
		g.Expect(c.List(t.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
		for i := range list.Items {
			if list.Items[i].Spec.Pipeline.Name == pipeline {
				return &list.Items[i]
			}
		}
		return nil
	}
	change := func(pipeline string, with func(*capstanv1.Promotion)) {
		g.Eventually(func() error {
			p := promotion(pipeline)
			if p == nil {
				return fmt.Errorf("pipeline %s has no promotion", pipeline)
			}
			before := p.DeepCopy()
			with(p)
			return c.Patch(t.Context(), p, client.MergeFrom(before))
		}).Should(Succeed())
	}
	change("gated", func(p *capstanv1.Promotion) {
		p.Spec.Overrides = append(p.Spec.Overrides, capstanv1.Override{Gate: capstanv1.GateSoak, By: "olga", Reason: "hotfix"})
	})
	change("manual", func(p *capstanv1.Promotion) { p.Spec.Approval = &capstanv1.Approval{By: "ann"} })
	g.Eventually(all.received).Should(ContainElements("GateOverridden gated", "GatesOpen gated", "Approved manual", "Promote manual", "Failed broken"))
	w.deploy("prod", "1.1.0")
	g.Eventually(all.received).Should(ContainElements("Succeeded manual", "Succeeded gated"))

	g.Eventually(failures.received).Should(ConsistOf("GateOverridden gated", "Failed broken"))
	g.Expect(all.of("Failed", "broken").Severity).To(Equal(eventv1.EventSeverityError))
	g.Expect(all.of("Failed", "broken").Message).To(ContainSubstring("missing"), "the message says what to fix")
	g.Eventually(labelled.received).Should(ContainElement("Succeeded manual"))
	g.Expect(labelled.received()).To(HaveEach(HaveSuffix(" manual")))

	g.Consistently(func() []string { // notification-controller drops what it received before.
		var twice []string
		got := all.received()
		slices.Sort(got)
		for i := 1; i < len(got); i++ {
			if got[i] == got[i-1] {
				twice = append(twice, got[i])
			}
		}
		return twice
	}, settle).Should(BeEmpty())
}
