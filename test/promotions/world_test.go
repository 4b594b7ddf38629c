package promotions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/pipeline"
	"github.com/capstan-hub/capstan/hub/promotion"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/strategy/notification"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// TB is what the world needs of a test; rapid's T is one too.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world is the environment of one Pipeline: a real API server, and observations that the
// test makes in place of workload clusters.
type world struct {
	TB
	c        client.WithWatch
	ns       string
	x        *index.Index
	clock    *testclock.FakeClock
	receiver *receiver
	// hosted is where pull requests are opened; nil where a test has none.
	hosted *hosted
	// forge is the same, where the test has the service in hand.
	forge *forge
	// clusters that targets select.
	clusters anywhere
}

var worlds atomic.Int64

// managementClient is the client of all worlds at the shared API server. A client for each world
// would discover the API again.
var managementClient struct {
	once sync.Once
	client.WithWatch
	err error
}

func newWorld(t *testing.T, tb TB) *world {
	t.Helper()
	config, c := management.Get(t).Config(), &managementClient
	c.once.Do(func() { c.WithWatch, c.err = client.NewWithWatch(config, client.Options{Scheme: hub.Scheme()}) })
	if c.err != nil {
		tb.Fatalf("%v", c.err)
	}
	return newWorldWith(t, tb, c.WithWatch)
}

// newWorldAt creates a world at an API server of the test's own.
func newWorldAt(t *testing.T, tb TB, at *rest.Config) *world {
	t.Helper()
	c, err := client.NewWithWatch(at, client.Options{Scheme: hub.Scheme()})
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return newWorldWith(t, tb, c)
}

func newWorldWith(t *testing.T, tb TB, c client.WithWatch) *world {
	t.Helper()
	w := &world{TB: tb, c: c, ns: fmt.Sprintf("world-%d", worlds.Add(1)), x: index.New(), clock: testclock.NewFakeClock(time.Now().Truncate(time.Second))}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		tb.Fatalf("%v", err)
	}
	w.receiver = &receiver{ids: map[string]int{}}
	server := httptest.NewServer(w.receiver)
	w.receiver.url = server.URL
	t.Cleanup(server.Close)
	return w
}

// receiver takes Flux events, as notification-controller does.
type receiver struct {
	url string

	mu    sync.Mutex
	ids   map[string]int
	calls []eventv1.Event
	fail  int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var e eventv1.Event
	if err := json.NewDecoder(request.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail > 0 {
		r.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.ids[e.Metadata[notification.KeyPromotionID]]++
	r.calls = append(r.calls, e)
	w.WriteHeader(http.StatusAccepted)
}

func (r *receiver) received() []eventv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// hubUnder is a hub's two reconcilers over the world's API server.
type hubUnder struct {
	w          *world
	pipelines  *pipeline.Reconciler
	promotions *promotion.Reconciler
	// rested is the world in which this hub found nothing to do.
	rested string
}

// anywhere are clusters that exist if they are named, and are selected by their labels. It ignores demand.
type anywhere struct {
	mu     sync.Mutex
	labels map[clusters.Ref]labels.Set
	err    error
}

// fail makes every selection fail, or (nil) work again.
func (a *anywhere) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (*anywhere) Resolve(ref clusters.Ref) (multicluster.ClusterName, error) {
	return ref.ClusterName(), nil
}

func (a *anywhere) Labels(ref clusters.Ref) (labels.Set, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.labels[ref], a.err
}

func (a *anywhere) Select(kind, namespace string, selector labels.Selector) ([]clusters.Ref, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	var all []clusters.Ref
	for ref, set := range a.labels {
		if ref.Kind == kind && (ref.Namespace == namespace || namespace == pipelinesv1.AllNamespaces) && selector.Matches(set) {
			all = append(all, ref)
		}
	}
	slices.SortFunc(all, func(a, b clusters.Ref) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

func (*anywhere) WaitForObjects(context.Context) error { return nil }
func (*anywhere) SetDemand(string, []watchers.Demand)  {}
func (*anywhere) Confirm(watchers.Demand)              {}

func (*anywhere) SetDemands(map[string][]watchers.Demand) {}

// hub makes a hub, whose client a test may have put something in front of.
func (w *world) hub(name string, c client.Client, transport http.RoundTripper) *hubUnder {
	recorder := events.NewFakeRecorder(1000)
	pipelines := pipeline.New(pipeline.Options{
		Client: stripping{c, promotions.NewStripper(w.clock), w.ns}, APIReader: c, Clusters: &w.clusters, Watchers: &w.clusters, Index: w.x,
		AppKinds: apps.DefaultKinds(),
		Recorder: recorder, Clock: w.clock,
	})
	return &hubUnder{
		w:         w,
		pipelines: pipelines,
		promotions: promotion.New(promotion.Options{
			Client: stripping{c, promotions.NewStripper(w.clock), w.ns}, APIReader: c, Ledger: stripping{c, promotions.NewStripper(w.clock), w.ns}, Observed: pipelines.Observed, Holder: name, Recorder: recorder, Clock: w.clock,
			Keep: promotion.DefaultKeep,
			Strategies: append(w.pulling(c), notification.New(notification.Options{
				Client: c, Address: w.receiver.url, HTTPClient: &http.Client{Transport: transport},
			})),
		}),
	}
}

// stripping is a client that reads Promotions as the hub's cache has them.
type stripping struct {
	client.Client
	stripper *promotions.Stripper
	// ns is the namespace of the world: its clock says nothing about the objects of others.
	ns string
}

func (s stripping) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := s.Client.Get(ctx, key, o, options...)
	if p, ok := o.(*capstanv1.Promotion); ok && err == nil {
		s.read(p)
	}
	return err
}

func (s stripping) List(ctx context.Context, o client.ObjectList, options ...client.ListOption) error {
	switch o.(type) {
	case *capstanv1.PromotionRequestList, *pipelinesv1.PipelineList: // A hub lists those of all namespaces.
		options = append(options, client.InNamespace(s.ns))
	}
	err := s.Client.List(ctx, o, options...)
	if list, ok := o.(*capstanv1.PromotionList); ok && err == nil {
		for i := range list.Items {
			s.read(&list.Items[i])
		}
	}
	return err
}

// read replaces a Promotion with what a reader of the hub's cache gets.
func (s stripping) read(p *capstanv1.Promotion) {
	stored, _ := promotions.Whole(s.stripper.Strip(p.DeepCopy()))
	stored.DeepCopyInto(p)
}

// pass reconciles everything in the namespace once. Errors are the result of a crash or a
// conflict; a queue would retry them.
func (h *hubUnder) pass(ctx context.Context) {
	var pipelines pipelinesv1.PipelineList
	var all capstanv1.PromotionList
	_ = h.w.c.List(ctx, &pipelines, client.InNamespace(h.w.ns))
	for i := range pipelines.Items {
		_, _ = h.pipelines.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pipelines.Items[i])})
	}
	_ = h.w.c.List(ctx, &all, client.InNamespace(h.w.ns))
	for i := range all.Items {
		_, _ = h.promotions.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	managed, _ := h.promotions.Retain(ctx)
	for _, stored := range managed {
		_ = h.promotions.ClearManagedFields(ctx, stored)
	}
}

// settlePipelines reconciles Pipelines only.
func (h *hubUnder) settlePipelines(ctx context.Context) {
	var pipelines pipelinesv1.PipelineList
	_ = h.w.c.List(ctx, &pipelines, client.InNamespace(h.w.ns))
	for i := range pipelines.Items {
		_, _ = h.pipelines.Reconcile(ctx, requestFor(&pipelines.Items[i]))
	}
}

// settle reconciles until a pass changes nothing. The first settle of a hub makes two passes at
// least.
func (h *hubUnder) settle(ctx context.Context) {
	h.w.Helper()
	for range 60 {
		h.pass(ctx)
		now := h.w.print(ctx)
		if now == h.rested {
			return
		}
		h.rested = now
	}
	h.w.Fatalf("the world does not come to rest:\n%s", h.rested)
}

// print returns the resourceVersion of each object.
func (w *world) print(ctx context.Context) string {
	var b strings.Builder
	var pipelines pipelinesv1.PipelineList
	_ = w.c.List(ctx, &pipelines, client.InNamespace(w.ns))
	for _, p := range pipelines.Items {
		fmt.Fprintln(&b, p.Name, p.ResourceVersion)
	}
	for _, p := range w.promotions(ctx) {
		fmt.Fprintln(&b, p.Name, p.ResourceVersion, p.Status.Phase, p.Status.Reason)
	}
	return b.String()
}

func (w *world) promotions(ctx context.Context) []capstanv1.Promotion {
	var list capstanv1.PromotionList
	if err := w.c.List(ctx, &list, client.InNamespace(w.ns)); err != nil {
		w.Fatalf("%v", err)
	}
	return list.Items
}

// into returns the promotions into an environment, by number.
func (w *world) into(ctx context.Context, env string) []capstanv1.Promotion {
	var found []capstanv1.Promotion
	for _, p := range w.promotions(ctx) {
		if p.Spec.Environment == env {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b capstanv1.Promotion) int { return int(a.Spec.Number - b.Spec.Number) })
	return found
}

func (w *world) cluster(env string) string { return "Cluster/" + w.ns + "/" + env }

var helm = index.Kind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}

func (w *world) object(env string) index.Object {
	return index.Object{Cluster: w.cluster(env), Kind: helm, Namespace: "shop", Name: "web"}
}

// runs makes an environment run a revision, fresh and ready.
func (w *world) runs(env, revision string) {
	w.x.SetFreshness(w.cluster(env), helm, index.Freshness{Fresh: true})
	w.x.Observe(w.object(env),
		index.Observation{Found: true, Ready: true, Revision: revision, At: w.clock.Now()})
}

// absent: an environment's cluster does not have the application.
func (w *world) absent(env string) {
	w.x.SetFreshness(w.cluster(env), helm, index.Freshness{Fresh: true})
	w.x.Observe(w.object(env), index.Observation{At: w.clock.Now()})
}

// stale makes an environment's cluster unreachable.
func (w *world) stale(env string) {
	w.x.SetFreshness(w.cluster(env), helm, index.Freshness{Reason: "Silent", Message: "nothing was heard"})
}

// newPipeline of environments, each in a cluster of its own.
func (w *world) newPipeline(name string, promotion *pipelinesv1.Promotion, envs ...string) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Promotion: promotion,
		},
	}
	for _, env := range envs {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{Name: env, Targets: []pipelinesv1.Target{{
			Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: env},
		}}})
	}
	return p
}

func notify(manual bool) *pipelinesv1.Promotion {
	return &pipelinesv1.Promotion{Manual: manual, Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}}
}

// began sets up a Pipeline whose environments all run 1.0, and returns it with a hub.
func (w *world) began(ctx context.Context, p *pipelinesv1.Pipeline) *hubUnder {
	w.Helper()
	if err := w.c.Create(ctx, p); err != nil {
		w.Fatalf("%v", err)
	}
	h := w.hub("hub", w.c, nil)
	h.settle(ctx) // The index receives the demand of the Pipeline before the observations.
	for _, env := range p.Spec.Environments {
		w.runs(env.Name, "1.0")
	}
	h.settle(ctx)
	return h
}

func (w *world) pipeline(ctx context.Context, name string) *pipelinesv1.Pipeline {
	p := &pipelinesv1.Pipeline{}
	if err := w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, p); err != nil {
		w.Fatalf("%v", err)
	}
	return p
}

// newest promotion into an environment.
func (w *world) newest(ctx context.Context, env string) capstanv1.Promotion {
	w.Helper()
	all := w.into(ctx, env)
	if len(all) == 0 {
		w.Fatalf("no promotion into %s", env)
	}
	return all[len(all)-1]
}

func requestFor(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// promotedByNotification is a world whose Pipeline has promoted 1.1 from dev into an environment
// by notification; the environment still runs 1.0.
func promotedByNotification(t *testing.T, manual bool, env string) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
	h := w.began(ctx, w.newPipeline("web", notify(manual), "dev", env))
	w.runs("dev", "1.1")
	h.settle(ctx)
	return g, ctx, w, h
}

// promotedByPullRequest is a world whose Pipeline has promoted 1.1 from dev into staging by pull
// request, at a service of a kind; staging still runs 1.0.
func promotedByPullRequest(t *testing.T, kind pipelinesv1.GitProviderType, change func(*pipelinesv1.PullRequestPromotion)) (*WithT, context.Context, *world, *hubUnder) {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, kind, change, "dev", "staging")
	w.runs("dev", "1.1")
	h.settle(ctx)
	return g, ctx, w, h
}

// expectPhase checks the phase of the newest promotion into an environment.
func (w *world) expectPhase(ctx context.Context, g Gomega, env string, phase capstanv1.PromotionPhase, description ...any) {
	w.Helper()
	p := w.newest(ctx, env)
	if len(description) == 0 {
		description = []any{"%s", p.Status.Message}
	}
	g.ExpectWithOffset(1, p.Status.Phase).To(Equal(phase), description...)
}

// expectFailed waits an hour of the clock until the newest promotion into staging is Failed.
func (h *hubUnder) expectFailed(ctx context.Context, g Gomega) {
	h.w.Helper()
	p := h.last(ctx, time.Hour, capstanv1.PhaseFailed)
	g.ExpectWithOffset(1, p.Status.Phase).To(Equal(capstanv1.PhaseFailed), p.Status.Message)
}

// expectNoRequest checks that the service gets no request meanwhile.
func (h *hubUnder) expectNoRequest(g Gomega, description string, meanwhile func()) {
	h.w.Helper()
	before := len(h.w.forge.Requests())
	meanwhile()
	g.ExpectWithOffset(1, h.w.forge.Requests()).To(HaveLen(before), description)
}
