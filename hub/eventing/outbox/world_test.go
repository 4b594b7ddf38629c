package outbox_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// patience is how long Eventually waits: a cold machine with two cores is slow.
const patience = 2 * time.Minute

var shared = controlplane.Share("capstan")

func TestMain(m *testing.M) {
	if child() {
		return
	}
	ctrl.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(m.Run(), os.Stderr, shared) }))
}

var hub = event.Hub{Name: "fleet", UID: "0b5a5a2e-hub"}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, capstanv1.AddToScheme, eventingv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// unlimited removes the client's rate limit, so that a test does not wait for it.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

// world is a namespace of a real API server. The test writes the statuses that the hub's
// reconcilers would write.
type world struct {
	*testing.T
	g  *WithT
	c  client.WithWatch
	ns string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	config := unlimited(shared.Get(t).Config())
	g := NewWithT(t)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "outbox-"}}
	g.Expect(c.Create(t.Context(), ns)).To(Succeed())
	return &world{T: t, g: g, c: c, ns: ns.Name}
}

// backend creates an EventingBackend.
func (w *world) backend(name string) *eventingv1.EventingBackend {
	w.Helper()
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: eventingv1.EventingBackendSpec{Type: "http"}}
	w.g.Expect(w.c.Create(w.Context(), b)).To(Succeed())
	return b
}

func (w *world) name(backend string) string { return w.ns + "/" + backend }

// status patches the status of an object with a change.
func (w *world) status(o client.Object, change func()) {
	w.Helper()
	before, _ := o.DeepCopyObject().(client.Object)
	change()
	w.g.Expect(w.c.Status().Patch(w.Context(), o, client.MergeFrom(before))).To(Succeed())
}

func (w *world) promotion(name string, number int64, manual bool) *capstanv1.Promotion {
	w.Helper()
	p := newPromotion(w.ns, name, number, manual)
	w.g.Expect(w.c.Create(w.Context(), p)).To(Succeed())
	return p
}

func newPromotion(ns, name string, number int64, manual bool) *capstanv1.Promotion {
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "web", UID: "web-uid"}, App: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environment: "prod", Number: number, Revision: "1.2.3", Source: capstanv1.PromotionSource{Environment: "staging", Sequence: number}, Manual: manual,
			Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}},
		},
	}
}

func (w *world) started(p *capstanv1.Promotion) {
	w.Helper()
	w.status(p, func() {
		now := metav1.Now()
		p.Status.Phase, p.Status.StartTime = capstanv1.PhasePromoting, &now
		p.Status.Attempt = &capstanv1.Attempt{Number: 1, StartTime: metav1.NewMicroTime(now.Time), NextAttemptTime: metav1.NewMicroTime(now.Time), Holder: "hub"}
	})
}

func (w *world) ended(p *capstanv1.Promotion, phase capstanv1.PromotionPhase) {
	w.Helper()
	w.status(p, func() {
		now := metav1.Now()
		p.Status.Phase, p.Status.FinishTime, p.Status.Reason = phase, &now, "Done"
	})
}

func (w *world) connection(name string) *capstanv1.ClusterConnection {
	w.Helper()
	c := &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "cluster." + name},
		Spec: capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Namespace: w.ns, Name: name,
		}},
	}
	w.g.Expect(w.c.Create(w.Context(), c)).To(Succeed())
	return c
}

func (w *world) state(c *capstanv1.ClusterConnection, state capstanv1.ConnectionState, since time.Time) {
	w.Helper()
	w.status(c, func() {
		at := metav1.NewTime(since.Truncate(time.Second))
		c.Status.State, c.Status.Reason, c.Status.LastTransitionTime = state, "Because", &at
	})
}

// broker is a sink in memory.
type broker struct {
	mu   sync.Mutex
	got  []ce.Event
	fail error
}

func (b *broker) Ping(context.Context) error { return b.refusal() }

func (b *broker) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail
}

func (b *broker) Publish(_ context.Context, e ce.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail == nil {
		b.got = append(b.got, e)
	}
	return b.fail
}

func (b *broker) Close(context.Context) error { return nil }

// dies makes each call fail with err, or succeed again if it is nil.
func (b *broker) dies(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// kinds of the received events, in order.
func (b *broker) kinds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]string, 0, len(b.got))
	for _, e := range b.got {
		all = append(all, string(event.KindOf(e)))
	}
	return all
}

func (b *broker) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]string, 0, len(b.got))
	for _, e := range b.got {
		all = append(all, e.ID())
	}
	return all
}

// last returns the last kind that was received for each subject.
func (b *broker) last() map[string]event.Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := map[string]event.Kind{}
	for _, e := range b.got {
		last[e.Subject()] = event.KindOf(e)
	}
	return last
}

var errDown = &sink.Error{Class: sink.Unavailable, Code: "down", Err: fmt.Errorf("the broker is down")}

// life is one process with its outbox and publisher.
type life struct {
	w       *world
	outbox  *outbox.Outbox
	p       *publisher.Publisher
	stopAll []func()
}

// how configures a life.
type how struct {
	clock clock.WithTicker
	// standby does not lead.
	standby bool
	dwell   time.Duration
	// line is the way to the API server; one without faults when nil.
	line *line
}

// live starts a process with backends.
func (w *world) live(h how, sinks map[string]sink.Sink) *life {
	w.Helper()
	if h.clock == nil {
		h.clock = clock.RealClock{}
	}
	config := unlimited(shared.Get(w).Config())
	if h.line != nil {
		config.Wrap(h.line.of)
	}
	writer, err := client.New(config, client.Options{Scheme: scheme()})
	w.g.Expect(err).NotTo(HaveOccurred())
	if h.dwell == 0 {
		h.dwell = time.Nanosecond
	}
	informers, err := cache.New(config, cache.Options{Scheme: scheme(), DefaultNamespaces: map[string]cache.Config{w.ns: {}}})
	w.g.Expect(err).NotTo(HaveOccurred())
	l := &life{w: w}
	l.outbox = outbox.New(outbox.Options{Hub: hub, Cache: informers, Client: writer, RecordDelay: 10 * time.Millisecond, Clock: h.clock, Logger: logr.Discard()})
	l.p = publisher.New(publisher.Options{Clock: clock.RealClock{}, Logger: logr.Discard(), Sources: []publisher.Source{l.outbox}, Dwell: h.dwell, Drain: time.Nanosecond})
	l.outbox.PublishTo(l.p)
	w.Cleanup(l.end)
	l.run(informers.Start)
	l.run(l.p.Start)
	if !h.standby {
		l.run(l.outbox.Start)
	}
	for name, s := range sinks {
		settings := publisher.Settings{Type: "memory", Sink: s, Backoff: time.Millisecond, BackoffMax: 20 * time.Millisecond, MaxAttempts: 1000, Timeout: 5 * time.Second}
		w.g.Expect(l.p.Set(w.name(name), settings)).To(Succeed())
	}
	return l
}

// run starts a component until the end. The last one started ends first.
func (l *life) run(start func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	l.stopAll = append(l.stopAll, func() {
		cancel()
		if err := <-ended; err != nil {
			l.w.Error(err)
		}
	})
}

func (l *life) end() {
	for i := len(l.stopAll) - 1; i >= 0; i-- {
		l.stopAll[i]()
	}
	l.stopAll = nil
}

// record returns the record of an object.
func (w *world) record(o client.Object) string {
	w.Helper()
	w.g.Expect(w.c.Get(w.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	return o.GetAnnotations()[outbox.RecordAnnotation]
}
