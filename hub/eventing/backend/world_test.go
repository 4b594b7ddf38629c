package backend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/internal/eventnote"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/leaks"
	"github.com/capstan-hub/capstan/playground/nats"
)

// canary is a text that no status, log, Event or metric may contain.
const canary = "S3CR3T-CANARY"

var plane = controlplane.Share("capstan")

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	os.Exit(leaks.Main(func() int { return controlplane.StopShared(m.Run(), os.Stderr, plane) }))
}

// world is a namespace with the options of the hubs in it.
type world struct {
	*testing.T
	g *WithT
	client.Client
	namespace string
	options   backend.Options
	registry  *prometheus.Registry
	hub       event.Hub

	mu   sync.Mutex
	logs bytes.Buffer
}

var worlds atomic.Int64

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		panic(err)
	}
	if err := eventingv1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}

func newWorld(t *testing.T) *world {
	t.Helper()
	management := plane.Get(t)
	w := &world{T: t, g: NewWithT(t), namespace: fmt.Sprintf("backends-%d", worlds.Add(1)), registry: prometheus.NewRegistry(), hub: event.Hub{Name: "test", UID: "uid"}}
	var err error
	w.Client, err = client.New(management.Config(), client.Options{Scheme: scheme()})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	types, err := schema.Types(schema.Options{SQSSourceNamespaces: []string{w.namespace}, SQSSinkNamespaces: []string{w.namespace}})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.options = backend.Options{
		Registry: types, Openers: backend.Openers(backend.SinkOptions{Hub: "test", AllowLoopback: true}),
		Timings: backend.Timings{Ping: 300 * time.Millisecond, PingRetry: 20 * time.Millisecond, Recheck: time.Hour},
	}
	return w
}

// replica of the hub.
type replica struct {
	*backend.Reconciler
	stop    func()
	elected <-chan struct{}
}

// start a replica, which ends with the test. With an election, the first one is the leader.
func (w *world) start(election bool) *replica {
	w.Helper()
	cfg := plane.Get(w.T).Config()
	w.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.Failed() {
			w.Log(w.logs.String())
		}
	})
	logger := funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		fmt.Fprintln(&w.logs, prefix, args)
	}, funcr.Options{Verbosity: 1, LogTimestamp: true})
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme(), Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		LeaderElection: election, LeaderElectionID: "hub", LeaderElectionNamespace: w.namespace, LeaderElectionReleaseOnCancel: true,
		// Long, because a leader that renews too late ends. A leader that stops releases its lease.
		LeaseDuration: ptr.To(30 * time.Second), RenewDeadline: ptr.To(20 * time.Second), RetryPeriod: ptr.To(100 * time.Millisecond),
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	secrets, err := metadata.NewForConfig(cfg)
	w.g.Expect(err).NotTo(HaveOccurred())
	o := w.options
	o.Client, o.APIReader, o.Metadata, o.Recorder = mgr.GetClient(), mgr.GetAPIReader(), secrets, eventnote.Bounded(mgr.GetEventRecorder("capstan"))
	o.Elected, o.Logger, o.Publisher.Logger = mgr.Elected(), logger, logger
	o.Publisher.Drain = time.Second
	r := &replica{Reconciler: backend.New(o), elected: mgr.Elected()}
	w.g.Expect(r.SetupWithManager(mgr)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		w.g.Eventually(ended).Should(Receive(BeNil()))
	})
	w.Cleanup(r.stop)
	return r
}

// secretNamed is a Secret to delete.
func secretNamed(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func (w *world) create(o client.Object) {
	w.Helper()
	w.g.Expect(w.Create(context.Background(), o)).To(Succeed())
}

// backend of a manifest's spec.
func (w *world) backend(name, spec string) *eventingv1.EventingBackend {
	w.Helper()
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.g.Expect(yaml.UnmarshalStrict([]byte(spec), &b.Spec)).To(Succeed())
	w.create(b)
	return b
}

// change the spec of a backend.
func (w *world) change(name, spec string) {
	w.Helper()
	w.g.Eventually(func() error {
		b := w.get(name)
		b.Spec = eventingv1.EventingBackendSpec{}
		w.g.Expect(yaml.UnmarshalStrict([]byte(spec), &b.Spec)).To(Succeed())
		return w.Update(w.Context(), b)
	}).Should(Succeed())
}

func (w *world) get(name string) *eventingv1.EventingBackend {
	w.Helper()
	b := &eventingv1.EventingBackend{}
	w.g.Expect(w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, b)).To(Succeed())
	return b
}

// secret creates or replaces a Secret.
func (w *world) secret(name string, data map[string][]byte) {
	w.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: data}
	if err := w.Update(w.Context(), s); err != nil {
		w.create(s)
	}
}

// status of a backend: its conditions by type, as "status reason: message", its type and
// eventingReady.
func (w *world) status(name string) map[string]string { return conditions(w.get(name)) }

func conditions(b *eventingv1.EventingBackend) map[string]string {
	all := map[string]string{"type": b.Status.BackendType}
	for _, c := range b.Status.Conditions {
		all[c.Type] = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	if b.Status.EventingReady != nil {
		all["eventingReady"] = fmt.Sprint(*b.Status.EventingReady)
	}
	return all
}

func (w *world) awaits(name string) AsyncAssertion {
	w.Helper()
	return w.g.Eventually(func() map[string]string { return w.status(name) })
}

// uses waits until the present spec is in use: the previous status is also ready.
func (w *world) uses(name string) {
	w.Helper()
	w.g.Eventually(func() bool {
		b := w.get(name)
		return b.Status.ObservedGeneration == b.Generation && ptr.Deref(b.Status.EventingReady, false)
	}).Should(BeTrue())
}

// good is the status of a backend that is published to.
func good(kind string) OmegaMatcher {
	return Equal(map[string]string{
		"type": kind, "eventingReady": "true",
		"Backend Ready": "True Backend ready: ", "Publisher Proxy Ready": "True Publisher proxy deployment ready: ",
		"Subscription Controller Ready": "True Subscription controller started: publish-only backend", "Ready": "True Backend ready: ",
	})
}

func ready() OmegaMatcher { return HaveKeyWithValue("eventingReady", "true") }

// events of Kubernetes about a backend, each as "type reason note".
func (w *world) events(name string) []string {
	var list eventsv1.EventList
	w.g.Expect(w.List(w.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
	var all []string
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			all = append(all, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Note))
		}
	}
	return all
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

// sample event; each number is another object.
func (w *world) sample(i int) ce.Event {
	return w.hub.Backends(types.UID(fmt.Sprint(i)), true, event.Backend{Namespace: "x", Name: fmt.Sprint(i), BackendType: "http"}, time.Now())
}

// publish the sample events of a range through a replica.
func (w *world) publish(r *replica, from, to int) {
	for i := from; i < to; i++ {
		r.Publisher().Publish(w.sample(i), nil)
	}
}

// noCanary checks that no status, Event, metric or log contains the canary.
func (w *world) noCanary() {
	w.Helper()
	var list eventingv1.EventingBackendList
	w.g.Expect(w.List(w.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
	for i := range list.Items {
		text, err := json.Marshal(list.Items[i].Status)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(string(text)).NotTo(ContainSubstring(canary))
		w.g.Expect(strings.Join(w.events(list.Items[i].Name), "\n")).NotTo(ContainSubstring(canary))
	}
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		w.g.Expect(f.String()).NotTo(ContainSubstring(canary))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.g.Expect(w.logs.String()).NotTo(BeEmpty())
	w.g.Expect(w.logs.String()).NotTo(ContainSubstring(canary))
}

// jetstream is a real NATS server that ends with the test.
func (w *world) jetstream() *nats.Server {
	w.Helper()
	s, err := nats.Start(w.TempDir())
	w.g.Expect(err).NotTo(HaveOccurred())
	w.Cleanup(s.Stop)
	return s
}

// stored counts the events of a stream; 0 when it does not exist.
func stored(s *nats.Server, stream string) func() int {
	return func() int {
		all, err := s.Messages(context.Background(), stream)
		if err != nil {
			return 0
		}
		return len(all)
	}
}

// receiver of webhooks over plain HTTP.
type receiver struct {
	*httptest.Server
	// answer is the status of answers; 0 sends none until the client cancels.
	answer atomic.Int64
	// failing is the subject, a string, of events that are answered with 500.
	failing atomic.Value

	mu     sync.Mutex
	ids    []string
	bodies []string
}

func (w *world) receiver() *receiver {
	r := &receiver{}
	r.answer.Store(http.StatusNoContent)
	r.Server = httptest.NewServer(r)
	w.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var e struct{ ID, Subject string }
	body, _ := io.ReadAll(request.Body)
	_ = json.Unmarshal(body, &e)
	code := int(r.answer.Load())
	if failing, ok := r.failing.Load().(string); ok && e.Subject == failing {
		code = http.StatusInternalServerError
	}
	if code == 0 {
		<-request.Context().Done()
		return
	}
	if code < http.StatusMultipleChoices {
		r.mu.Lock()
		r.ids, r.bodies = append(r.ids, e.ID), append(r.bodies, string(body))
		r.mu.Unlock()
	}
	w.WriteHeader(code)
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.ids...)
}

// spec of an http backend of the receiver.
func (r *receiver) spec(more ...string) string {
	return fmt.Sprintf("{type: http, config: [%s]}", strings.Join(append([]string{"{url: " + r.URL + "}", "{insecureHttp: true}"}, more...), ", "))
}

// mesh is a stand-in for Event Mesh: tokens, subscriptions and events.
type mesh struct {
	*httptest.Server
	// open: the list of subscriptions, which is the answer to a ping, succeeds.
	open  atomic.Bool
	posts atomic.Int64
}

func (w *world) mesh() *mesh {
	m := &mesh{}
	m.open.Store(true)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth/token", func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != canary {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"`+canary+`","token_type":"bearer","expires_in":3600}`)
	})
	mux.HandleFunc("GET /sap/ems/v1/events/subscriptions", func(w http.ResponseWriter, _ *http.Request) {
		if !m.open.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /sap/ems/v1/events", func(w http.ResponseWriter, _ *http.Request) {
		m.posts.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	m.Server = httptest.NewTLSServer(mux)
	w.Cleanup(m.Close)
	return m
}

// serviceKey for the mesh, with that password.
func (m *mesh) serviceKey(password string) map[string][]byte {
	return map[string][]byte{
		"namespace": []byte("default/sap.capstan/1"),
		"messaging": fmt.Appendf(nil, `[{"broker":{"type":"saprestmgw"},"uri":%q,"oa2":{"clientid":"client","clientsecret":%q,"tokenendpoint":%q,"granttype":"client_credentials"}}]`,
			m.URL, password, m.URL+"/oauth/token"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}),
	}
}
