package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/outbox"
	"github.com/capstan-hub/capstan/hub/eventing/publisher"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	natssink "github.com/capstan-hub/capstan/hub/eventing/sink/nats"
	"github.com/capstan-hub/capstan/hub/eventing/sink/webhook"
	"github.com/capstan-hub/capstan/playground/nats"
)

const (
	// edgeRate at which latency is measured, and its budget.
	edgeRate, edgeBudget = 200, 100
	// subjects of the events whose rate is measured: events of one go one by one.
	subjects = 200
)

// backendOf a type, with its defaults.
func backendOf(g *WithT, of schema.Schema, values map[string]any) schema.Config {
	entries, err := eventingv1.NewConfig(values)
	g.Expect(err).NotTo(HaveOccurred())
	c, problems := of.Resolve(entries)
	g.Expect(problems).To(BeEmpty())
	return c
}

// brokers that are measured: a JetStream whose stream is a file, and a receiver of
// webhooks that says yes at once.
type brokers struct {
	nats *nats.Server
	hook *httptest.Server
}

func newBrokers(t *testing.T, g *WithT) *brokers {
	server, err := nats.Start(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Stop)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(hook.Close)
	return &brokers{nats: server, hook: hook}
}

func (b *brokers) bus(g *WithT) sink.Sink {
	s, err := natssink.Open(natssink.Options{Config: backendOf(g, schema.NATS(b.nats.URL()), nil), AllowLoopback: true})
	g.Expect(err).NotTo(HaveOccurred())
	return s
}

func (b *brokers) receiver(g *WithT, inFlight int) sink.Sink {
	s, err := webhook.Open(webhook.Options{
		Config: backendOf(g, schema.HTTP(), map[string]any{"url": b.hook.URL, "insecureHttp": true, "maxInFlightMessages": inFlight}),
		Origin: "fleet", Clock: clock.RealClock{}, AllowLoopback: true,
	})
	g.Expect(err).NotTo(HaveOccurred())
	return s
}

// runs start until the test ends.
func runs(t *testing.T, start func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func newPublisher(sources ...publisher.Source) *publisher.Publisher {
	return publisher.New(publisher.Options{Clock: clock.RealClock{}, Logger: logr.Discard(), Sources: sources, Drain: time.Second})
}

// TestEventRate: events a second to JetStream and to a receiver of webhooks, with the
// default of maxInFlightMessages and with 100.
func TestEventRate(t *testing.T) {
	const byDefault, many = 10, 100
	g := NewWithT(t)
	b := newBrokers(t, g)
	p := newPublisher()
	runs(t, p.Start)
	events := count(500, 20_000)
	for _, inFlight := range []int{byDefault, many} {
		for name, s := range map[string]sink.Sink{"JetStream": b.bus(g), "http": b.receiver(g, inFlight)} {
			backend := fmt.Sprint("bench/", name, inFlight)
			g.Expect(p.Set(backend, publisher.Settings{
				Type: name, Sink: s, MaxInFlight: inFlight, MaxAttempts: many, Timeout: patience, MaxEvents: events * 2, MaxBytes: 1 << 40,
			})).To(Succeed())
			began := time.Now()
			for i := range events {
				p.Publish(promotionEvent(backend, i), nil)
			}
			g.Eventually(func() int { s, _ := p.Status(backend); return s.Queued }).WithPolling(time.Millisecond).Should(BeZero())
			rate := float64(events) / time.Since(began).Seconds()
			fmt.Fprintf(os.Stderr, "| events to %s, %d in flight | %.0f/s | | |\n", name, inFlight, rate)
			p.Remove(backend, time.Second)
			g.Eventually(func() bool { _, alive := p.Status(backend); return alive }).Should(BeFalse())
		}
	}
}

// promotionEvent as large as they are.
func promotionEvent(of string, i int) ce.Event {
	at := metav1.NewTime(time.Unix(int64(i), 0))
	name := fmt.Sprint("web-", i%subjects)
	p := benchPromotion("bench", fmt.Sprintf("%s-prod-%d", name, i), name)
	p.CreationTimestamp = at
	e := event.Hub{Name: "fleet", UID: "bench"}.Promotions(p)[0]
	e.SetID(fmt.Sprint(of, "-", i))
	return e
}

func benchPromotion(namespace, name, pipeline string) *capstanv1.Promotion {
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: capstanv1.PromotionSpec{
			Pipeline:    capstanv1.PipelineReference{Name: pipeline, UID: "uid"},
			App:         pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Environment: "prod", Number: 1, Revision: "1.2.3", Source: capstanv1.PromotionSource{Environment: "staging", Sequence: 1},
			From:     &capstanv1.PromotionBase{Revisions: []string{"1.2.2"}, Targets: []string{"web in namespace shop of Cluster fleet/prod"}},
			Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}},
		},
	}
}

// TestEdgeToBroker: from the API server's response to an edge until the message is in
// JetStream, at 200 edges a second: how much of it passes before the hub's informer has
// the edge, which is the API server's, and how much the hub adds; while the published
// events are recorded on each object, and a receiver of webhooks gets them too.
func TestEdgeToBroker(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	b := newBrokers(t, g)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "eventing-"}}
	g.Expect(admin.Create(t.Context(), ns)).To(Succeed())
	for _, name := range []string{"bus", "hook"} {
		backend := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}, Spec: eventingv1.EventingBackendSpec{Type: "nats"}}
		g.Expect(admin.Create(t.Context(), backend)).To(Succeed())
	}
	config := management.Config()
	config.QPS = -1
	informers, err := cache.New(config, cache.Options{Scheme: hub.Scheme(), DefaultNamespaces: map[string]cache.Config{ns.Name: {}}})
	g.Expect(err).NotTo(HaveOccurred())
	promotions, err := informers.GetInformer(t.Context(), &capstanv1.Promotion{}, cache.BlockUntilSynced(false))
	g.Expect(err).NotTo(HaveOccurred())
	seen := watched(g, promotions)
	box := outbox.New(outbox.Options{Hub: event.Hub{Name: "fleet", UID: "bench"}, Cache: informers, Client: admin, Clock: clock.RealClock{}, Logger: logr.Discard()})
	p := newPublisher(box)
	box.PublishTo(p)
	for _, start := range []func(context.Context) error{informers.Start, p.Start, box.Start} {
		runs(t, start)
	}
	bus := b.bus(g)
	g.Eventually(func() error { return bus.Ping(t.Context()) }).Should(Succeed(), "it makes the stream")
	g.Expect(p.Set(ns.Name+"/bus", publisher.Settings{Type: "nats", Sink: bus, MaxAttempts: 10})).To(Succeed())
	g.Expect(p.Set(ns.Name+"/hook", publisher.Settings{Type: "http", Sink: b.receiver(g, 10), MaxAttempts: 10})).To(Succeed())

	arrived := newArrivals(t, g, b.nats)
	// The first event waits for the watches.
	g.Expect(admin.Create(t.Context(), benchPromotion(ns.Name, "first", "first"))).To(Succeed())
	g.Eventually(arrived.count).Should(Equal(1))

	edges := count(20, 30*edgeRate)
	var mu sync.Mutex
	begun := make(map[string]time.Time, edges)
	pace := time.NewTicker(time.Second / edgeRate)
	defer pace.Stop()
	var clients sync.WaitGroup
	for i := range edges {
		<-pace.C
		clients.Go(func() {
			name := fmt.Sprint("web-", i)
			made := benchPromotion(ns.Name, name, fmt.Sprint("web-", i%subjects))
			if err := admin.Create(t.Context(), made); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			begun[name] = time.Now()
			mu.Unlock()
		})
	}
	clients.Wait()
	g.Eventually(arrived.count).Should(Equal(edges + 1))
	var all, shown, added []time.Duration
	for name, at := range begun {
		// The watch may be ahead of the answer to who wrote.
		all = append(all, max(0, arrived.at(name).Sub(at)))
		shown = append(shown, max(0, seen.at(name).Sub(at)))
		added = append(added, max(0, arrived.at(name).Sub(seen.at(name))))
	}
	slices.Sort(all)
	slices.Sort(shown)
	slices.Sort(added)
	report(fmt.Sprintf("edge → JetStream, %d/s, p50", edgeRate), quantile(all, 0.5), edgeBudget, "ms")
	report("the same, p99", quantile(all, 0.99), edgeBudget, "ms")
	report("what the hub adds, from its informer → JetStream, p50", quantile(added, 0.5), edgeBudget, "ms")
	report("the same, p99", quantile(added, 0.99), edgeBudget, "ms")
	fmt.Fprintf(os.Stderr, "| what the API server takes, edge → the hub's informer: p50; p99 | %s ms; %s ms | – | |\n", figure(quantile(shown, 0.5)), figure(quantile(shown, 0.99)))
}

// arrivals are the times at which each Promotion was first received.
type arrivals struct {
	mu  sync.Mutex
	all map[string]time.Time
}

func (a *arrivals) note(promotion string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.all[promotion]; !known {
		a.all[promotion] = time.Now()
	}
}

// newArrivals in JetStream.
func newArrivals(t *testing.T, g *WithT, from *nats.Server) *arrivals {
	a := &arrivals{all: map[string]time.Time{}}
	client, closed, err := from.Inside()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(closed)
	stream, err := client.Stream(t.Context(), "capstan")
	g.Expect(err).NotTo(HaveOccurred())
	consumer, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{})
	g.Expect(err).NotTo(HaveOccurred())
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		var e ce.Event
		var data event.Promotion
		if e.UnmarshalJSON(m.Data()) != nil || e.DataAs(&data) != nil {
			return
		}
		a.note(data.Promotion)
		_ = m.Ack()
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(consuming.Stop)
	return a
}

// watched are the arrivals at an informer.
func watched(g *WithT, promotions cache.Informer) *arrivals {
	a := &arrivals{all: map[string]time.Time{}}
	_, err := promotions.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if p, ok := o.(*capstanv1.Promotion); ok {
			a.note(p.Name)
		}
	}})
	g.Expect(err).NotTo(HaveOccurred())
	return a
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

func (a *arrivals) at(name string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name]
}
