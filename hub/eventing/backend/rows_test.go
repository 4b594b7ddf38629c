package backend_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/backend"
	"github.com/capstan-hub/capstan/hub/eventing/discovery"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// record the present status of a backend and every later one. The returned function returns
// all so far.
func (w *world) record(name string) func() []map[string]string {
	w.Helper()
	c, err := client.NewWithWatch(plane.Get(w.T).Config(), client.Options{Scheme: scheme()})
	w.g.Expect(err).NotTo(HaveOccurred())
	// A watch without a resourceVersion may begin with an older status.
	present := w.get(name)
	changes, err := c.Watch(context.Background(), &eventingv1.EventingBackendList{}, client.InNamespace(w.namespace), client.MatchingFields{"metadata.name": name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: present.ResourceVersion}})
	w.g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan struct{})
	all := []map[string]string{conditions(present)}
	go func() {
		defer close(ended)
		for e := range changes.ResultChan() {
			if b, ok := e.Object.(*eventingv1.EventingBackend); ok && e.Type != watch.Deleted {
				w.mu.Lock()
				all = append(all, conditions(b))
				w.mu.Unlock()
			}
		}
	}()
	w.Cleanup(func() { changes.Stop(); <-ended })
	return func() []map[string]string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return append([]map[string]string(nil), all...)
	}
}

// Row 3 of reference 2.8 (kyma#12162): while a backend changes from nats to beb and back,
// it is never ready with a type that has not answered, and no queued event is lost.
func TestRow3SwitchOfType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, m := w.jetstream(), w.mesh()
	m.open.Store(false)
	w.secret("mesh", m.serviceKey(canary))
	r := w.start(false)
	onNATS := fmt.Sprintf("{type: nats, config: [{url: %q}]}", server.URL())
	w.backend("b", onNATS)
	w.awaits("b").Should(good("nats"))
	all := w.record("b")
	w.change("b", "{type: BEB, config: [{secretRef: mesh}]}")
	w.awaits("b").Should(And(
		HaveKeyWithValue("type", "nats"), HaveKeyWithValue("eventingReady", "false"),
		HaveKeyWithValue("Backend Ready", And(HavePrefix("False Backend not ready: "), HaveSuffix("; the last good configuration is in use"))),
		HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("False Publisher proxy deployment not ready: ")),
		HaveKeyWithValue("Subscription Controller Ready", HavePrefix("False Subscription controller not ready: "))))
	w.publish(r, 0, 10)
	w.g.Eventually(stored(server, "capstan")).Should(Equal(10), "the last good configuration is in use")
	m.open.Store(true)
	w.awaits("b").Should(good("beb"))
	w.publish(r, 10, 20)
	w.g.Eventually(m.posts.Load).Should(BeEquivalentTo(10))
	w.change("b", onNATS)
	w.awaits("b").Should(good("nats"))
	w.publish(r, 20, 30)
	w.g.Eventually(stored(server, "capstan")).Should(Equal(20))

	// The watch may be late: wait for the last status, which is like the first.
	w.g.Eventually(all).Should(And(ContainElement(HaveKeyWithValue("type", "beb")),
		WithTransform(func(s []map[string]string) map[string]string { return s[len(s)-1] }, good("nats"))))
	states := all()
	w.g.Expect(len(states)).To(BeNumerically(">=", 5))
	before := "nats true"
	for _, s := range states {
		now := s["type"] + " " + s["eventingReady"]
		if now == before {
			continue
		}
		w.g.Expect(map[string][]string{
			"nats true": {"nats false"}, "nats false": {"beb true"}, "beb true": {"beb false"}, "beb false": {"nats true"},
		}[before]).To(ContainElement(now), "after %s", before)
		before = now
	}
	w.g.Expect(before).To(Equal("nats true"))
	w.noCanary()
}

// Row 4: two nats and one http at the same time, one of them failing: the others continue,
// and condition and metric show the failure.
func TestRow4SeveralAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, dead := w.jetstream(), w.receiver()
	dead.answer.Store(http.StatusInternalServerError)
	r := w.start(false)
	for _, name := range []string{"one", "two"} {
		w.backend(name, fmt.Sprintf("{type: nats, config: [{url: %q}, {streamName: %s}, {subjectPrefix: %s}]}", server.URL(), name, name))
	}
	w.backend("dead", dead.spec("{retryBackoff: 100ms}", "{retryBackoffMax: 1s}"))
	for _, name := range []string{"one", "two", "dead"} {
		w.awaits(name).Should(ready())
	}
	w.publish(r, 0, 100)
	w.g.Eventually(stored(server, "one")).Should(Equal(100))
	w.g.Eventually(stored(server, "two")).Should(Equal(100))
	w.awaits("dead").Should(And(
		HaveKeyWithValue("Backend Ready", HavePrefix("True")),
		HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("False Publisher proxy deployment not ready: events are held back: ")),
		HaveKeyWithValue("Ready", HavePrefix("False Publisher proxy deployment not ready: ")),
		HaveKeyWithValue("eventingReady", "false")))
	w.g.Expect(w.status("one")).To(good("nats"))
	w.g.Eventually(func() []string { return w.events("dead") }).Should(ContainElement(HavePrefix("Warning EventingNotReady Publisher proxy deployment not ready: ")))
	w.g.Expect(w.registry.Register(&backend.Collector{Reader: w.Client})).To(Succeed())
	w.g.Expect(w.metric("capstan_eventing_backend_ready", w.namespace+"/dead")).To(BeZero())
	w.g.Expect(w.metric("capstan_eventing_backend_ready", w.namespace+"/one")).To(BeEquivalentTo(1))

	dead.answer.Store(http.StatusNoContent)
	w.awaits("dead").Should(good("http"))
	w.g.Eventually(func() int { return len(dead.got()) }).Should(Equal(100))
}

// Row 10: the content of a Secret, and the value of an unsupported key, is in no status,
// Event, log, metric, published event or answer of discovery.
func TestRow10NoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server, hook, m := w.jetstream(), w.receiver(), w.mesh()
	w.secret("signed", map[string][]byte{"token": []byte(canary), "hmac-key": []byte(canary)})
	w.secret("user", map[string][]byte{"username": []byte(canary), "password": []byte(canary)})
	w.secret("mesh", m.serviceKey(canary))
	r := w.start(false)
	w.g.Expect(w.registry.Register(r.Publisher())).To(Succeed())
	w.g.Expect(w.registry.Register(&backend.Collector{Reader: w.Client})).To(Succeed())
	w.backend("bus", fmt.Sprintf("{type: nats, config: [{url: %q}, {secretRef: user}]}", server.URL()))
	w.backend("hook", hook.spec("{secretRef: signed}", "{retryBackoff: 100ms}", "{retryBackoffMax: 1s}"))
	w.backend("mesh", "{type: beb, config: [{secretRef: mesh}]}")
	for _, name := range []string{"bus", "hook", "mesh"} {
		w.awaits(name).Should(ready())
	}
	w.backend("wrong", "{type: http, config: [{url: 'https://user:"+canary+"@example.org'}, {token: "+canary+"}]}")
	w.awaits("wrong").Should(HaveKeyWithValue("Backend Ready", HavePrefix("False The provided spec.config has validation errors: ")))
	w.publish(r, 0, 10)
	// The refusal of a receiver is also reported.
	hook.answer.Store(http.StatusUnauthorized)
	w.publish(r, 10, 20)
	w.awaits("hook").Should(HaveKeyWithValue("eventingReady", "false"))
	hook.answer.Store(http.StatusNoContent)
	w.g.Eventually(func() int { return len(hook.got()) }).Should(Equal(20))
	w.g.Eventually(stored(server, "capstan")).Should(Equal(20))
	w.g.Eventually(m.posts.Load).Should(BeEquivalentTo(20))
	w.g.Expect(w.metric("capstan_eventing_backend_ready", w.namespace+"/bus")).To(BeEquivalentTo(1))
	w.noCanary()
	all, err := server.Messages(t.Context(), "capstan")
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, one := range all {
		w.g.Expect(string(one.Data) + fmt.Sprint(one.Header)).NotTo(ContainSubstring(canary))
	}
	w.g.Expect(strings.Join(hook.bodies, "")).NotTo(ContainSubstring(canary))
	for _, path := range []string{"/backend", "/backend/http", "/backend/nats", "/backend/beb"} {
		answer := httptest.NewRecorder()
		discovery.Handler(w.options.Registry).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		w.g.Expect(answer.Code).To(Equal(http.StatusOK))
		w.g.Expect(answer.Body.String()).NotTo(ContainSubstring(canary))
	}
}

// metric of a backend.
func (w *world) metric(name, backend string) float64 {
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == backend {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// Row 5: the server is missing at first, stops and starts again (kyma#13609), and its
// stream is full, or deleted by another client. A change of an immutable key is a
// validation error, also after a restart of the hub.
func TestRow5NATS(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.jetstream()
	r := w.start(false)
	spec := "{type: nats, config: [{url: %q}, {streamMaxMsgs: %d}, {streamDiscard: new}, {retryBackoff: 100ms}, {retryBackoffMax: 1s}, {reconnectWait: 100ms}]}"
	server.Stop()
	w.backend("b", fmt.Sprintf(spec, server.URL(), 3))
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", HavePrefix("False Backend not ready: unreachable: ")))
	w.publish(r, 0, 2)
	w.g.Expect(server.Restart()).To(Succeed())
	w.awaits("b").Should(good("nats"))
	w.g.Eventually(stored(server, "capstan")).Should(Equal(2), "events before the first contact")
	server.Stop()
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", HavePrefix("False Backend not ready: unreachable: ")))
	w.g.Expect(server.Restart()).To(Succeed())
	w.awaits("b").Should(good("nats"))

	w.publish(r, 2, 5)
	w.awaits("b").Should(HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("False Publisher proxy deployment not ready: events are held back: stream-full: ")))
	w.change("b", fmt.Sprintf(spec, server.URL(), 100))
	w.awaits("b").Should(good("nats"))
	w.g.Eventually(stored(server, "capstan")).Should(Equal(5), "nothing is lost")

	js, closed, err := server.Inside()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(js.DeleteStream(t.Context(), "capstan")).To(Succeed())
	closed()
	w.publish(r, 5, 7)
	w.g.Eventually(stored(server, "capstan")).Should(Equal(2), "created again, with the events since")
	w.awaits("b").Should(good("nats"))

	w.g.Expect(w.get("b").Status.FixedConfig).To(HaveKeyWithValue("streamStorage", "file"))
	for range 2 {
		w.change("b", fmt.Sprintf("{type: nats, config: [{url: %q}, {streamStorage: memory}]}", server.URL()))
		w.awaits("b").Should(And(
			HaveKeyWithValue("Backend Ready", HavePrefix("False The provided spec.config has validation errors: streamStorage: cannot be changed from file while the backend exists")),
			HaveKeyWithValue("eventingReady", "false")))
		w.g.Expect(w.get("b").Status.ValidationErrors).To(Equal([]eventingv1.ValidationError{{
			Type: eventingv1.InvalidValue, Config: "streamStorage", Value: "memory", Error: "cannot be changed from file while the backend exists",
		}}))
		w.change("b", fmt.Sprintf(spec, server.URL(), 100))
		w.awaits("b").Should(good("nats"))
		r.stop()
		r = w.start(false)
	}
}

// Row 7 (kyma#17490): a Secret is malformed, corrected, changed to a wrong one, deleted,
// and created again. Each change is seen at once, the last good one stays in use, and
// other backends do not change.
func TestRow7SecretChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, other := w.mesh(), w.receiver()
	w.secret("mesh", map[string][]byte{"messaging": []byte(canary)})
	r := w.start(false)
	w.backend("other", other.spec())
	w.awaits("other").Should(good("http"))
	others := w.record("other")
	w.backend("b", "{type: beb, config: [{secretRef: mesh}]}")
	w.awaits("b").Should(And(
		HaveKeyWithValue("Backend Ready", "False Backend not ready: secretRef mesh: Secret cannot be used: key messaging is not a JSON list of brokers"),
		HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("False Publisher proxy secret sync failed: secretRef mesh: "))))
	w.secret("mesh", map[string][]byte{"namespace": []byte("x"), "messaging": []byte(`[{"broker":{"type":"amqp"}}]`)})
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", ContainSubstring("has no element with broker.type saprestmgw")))
	w.secret("mesh", m.serviceKey(canary))
	w.awaits("b").Should(good("beb"))
	w.publish(r, 0, 3)
	w.g.Eventually(m.posts.Load).Should(BeEquivalentTo(3))

	w.secret("mesh", m.serviceKey("wrong-"+canary))
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", And(HavePrefix("False Backend not ready: unauthorized: "), HaveSuffix("; the last good configuration is in use"))))
	w.g.Expect(w.status("b")).To(HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("True")))
	w.publish(r, 3, 6)
	w.g.Eventually(m.posts.Load).Should(BeEquivalentTo(6))
	w.g.Expect(w.Delete(t.Context(), secretNamed(w.namespace, "mesh"))).To(Succeed())
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", And(ContainSubstring("does not exist"), HaveSuffix("; the last good configuration is in use"))))
	w.publish(r, 6, 9)
	w.g.Eventually(m.posts.Load).Should(BeEquivalentTo(9))
	w.secret("mesh", m.serviceKey(canary))
	w.awaits("b").Should(good("beb"))

	for _, s := range others() {
		w.g.Expect(s).To(good("http"))
	}
	w.noCanary()
}

// The annotation of a Secret says which hosts get its credentials. It is read again when it changes: a backend whose host
// it excludes sends nothing more, and loses nothing.
func TestSecretHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	receiver := w.receiver()
	u, err := url.Parse(receiver.URL)
	w.g.Expect(err).NotTo(HaveOccurred())
	allow := func(hosts string) {
		w.Helper()
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "key", Annotations: map[string]string{capstanv1.AllowedHostsAnnotation: hosts}},
			Data: map[string][]byte{"token": []byte(canary)}}
		if err := w.Update(t.Context(), s); err != nil {
			w.create(s)
		}
	}
	refused := And(ContainSubstring("secretRef key: "), ContainSubstring("the host "+u.Host+": add the host to its annotation"))
	allow("events.example.com")
	r := w.start(false)
	w.backend("b", receiver.spec("{secretRef: key}", "{retryBackoff: 100ms}", "{retryBackoffMax: 1s}"))
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", refused))
	allow("events.example.com, " + u.Host)
	w.awaits("b").Should(good("http"))
	w.publish(r, 0, 2)
	w.g.Eventually(receiver.got).Should(HaveLen(2))

	for _, hosts := range []string{"events.example.com", "events.example.com:8443"} {
		allow(hosts)
		w.awaits("b").Should(HaveKeyWithValue("Backend Ready", And(refused, HaveSuffix("; events are held back"))))
	}
	w.publish(r, 2, 4)
	w.g.Consistently(receiver.got, "500ms").Should(HaveLen(2))
	allow(u.Host)
	w.awaits("b").Should(good("http"))
	w.g.Eventually(receiver.got).Should(HaveLen(4))
	w.noCanary()
}

// With --require-secret-hosts a Secret without the annotation is sent nowhere.
func TestRequiredSecretHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.RequireSecretHosts = true
	receiver, other := w.receiver(), w.receiver()
	w.secret("key", map[string][]byte{"token": []byte(canary)})
	w.start(false)
	w.backend("b", receiver.spec("{secretRef: key}"))
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", ContainSubstring("has no annotation capstan.dev/allowed-hosts, which --require-secret-hosts requires")))
	w.backend("other", other.spec())
	w.awaits("other").Should(good("http")) // It has no Secret.
}

// deletedWithBacklog deletes a backend that has 7 events in its queue and whose receiver
// fails, and returns the receiver, and whether the object is removed.
func (w *world) deletedWithBacklog(name string) (*receiver, func() bool) {
	w.Helper()
	receiver := w.receiver()
	receiver.answer.Store(http.StatusServiceUnavailable)
	r := w.start(false)
	w.backend(name, receiver.spec("{retryBackoff: 100ms}", "{retryBackoffMax: 1s}"))
	w.awaits(name).Should(ready())
	w.publish(r, 0, 7)
	w.awaits(name).Should(HaveKeyWithValue("Publisher Proxy Ready", HavePrefix("False")))
	w.g.Expect(w.get(name).Finalizers).To(ConsistOf(eventingv1.BackendFinalizer))
	all := w.record(name)
	w.g.Expect(w.Delete(w.Context(), w.get(name))).To(Succeed())
	w.g.Eventually(all).Should(ContainElement(HaveKeyWithValue("Ready", "False Backend not ready: the backend is being deleted")))
	return receiver, func() bool {
		return apierrors.IsNotFound(w.Get(w.Context(), w.key(name), &eventingv1.EventingBackend{}))
	}
}

// Row 11: deletion with a backlog. An object whose receiver accepts events is deleted when
// the queue is empty.
func TestRow11DeletedWithBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	receiver, deleted := w.deletedWithBacklog("slow")
	w.g.Consistently(deleted, "300ms").Should(BeFalse())
	receiver.answer.Store(http.StatusNoContent)
	w.g.Eventually(deleted).Should(BeTrue())
	w.g.Expect(receiver.got()).To(HaveLen(7))
	w.g.Expect(w.events("slow")).NotTo(ContainElement(ContainSubstring("EventsDropped")))
}

// Row 11: an object whose receiver does not recover is deleted after Timings.DrainGrace,
// which is 30 s by default, and an Event says how many events were dropped.
func TestRow11DroppedAfterTheGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.g.Expect(backend.DefaultDrainGrace).To(Equal(30 * time.Second))
	w.options.Timings.DrainGrace = 3 * time.Second
	_, deleted := w.deletedWithBacklog("dead")
	w.g.Eventually(deleted).Should(BeTrue())
	w.g.Eventually(func() []string { return w.events("dead") }).Should(ContainElement(
		"Warning EventsDropped 7 events were still queued 3s after the deletion, and were dropped"))
}

// The status of a source is that of its reader. A changed role or type replaces reading by
// publishing and the reverse.
func TestSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	readings := map[types.NamespacedName]backend.Reading{}
	w.options.Reading = func(name types.NamespacedName) (backend.Reading, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		one, known := readings[name]
		return one, known
	}
	r := w.start(false)
	const spec = "{type: sqs, config: [{role: source}, {queueName: events}, {region: eu-west-1}]}"
	reads := func(one backend.Reading) {
		w.mu.Lock()
		readings[w.key("b")] = one
		w.mu.Unlock()
		r.Enqueue(w.key("b"))
	}
	b := w.backend("b", spec)
	w.awaits("b").Should(Equal(map[string]string{
		"type": "sqs", "eventingReady": "false", "Ready": "False Backend not ready: the backend has not answered yet",
		"Backend Ready":                 "False Backend not ready: the backend has not answered yet",
		"Publisher Proxy Ready":         "True Publisher proxy deployment ready: source-only backend",
		"Subscription Controller Ready": "False Subscription controller not ready: the backend has not answered yet",
	}))
	config, invalid := w.options.Registry.Resolve(b)
	w.g.Expect(invalid).To(BeEmpty())
	reads(backend.Reading{Config: config, Message: "ReceiveMessage: denied"})
	w.awaits("b").Should(And(
		HaveKeyWithValue("Backend Ready", "False Backend not ready: ReceiveMessage: denied"),
		HaveKeyWithValue("Subscription Controller Ready", "False Subscription controller not ready: ReceiveMessage: denied")))
	reads(backend.Reading{Config: config, Ready: true})
	isRead := Equal(map[string]string{
		"type": "sqs", "eventingReady": "true", "Backend Ready": "True Backend ready: ", "Ready": "True Backend ready: ",
		"Publisher Proxy Ready":         "True Publisher proxy deployment ready: source-only backend",
		"Subscription Controller Ready": "True Subscription controller started: ",
	})
	w.awaits("b").Should(isRead)
	w.g.Expect(w.get("b").Finalizers).To(BeEmpty())

	w.change("b", "{type: sqs, config: [{role: source}, {queueName: events}, {colour: red}]}")
	w.awaits("b").Should(And(
		HaveKeyWithValue("Backend Ready", "False The provided spec.config has validation errors: colour: config does not exist for backend type sqs; the last good configuration is in use"),
		HaveKeyWithValue("Subscription Controller Ready", "True Subscription controller started: ")))
	w.change("b", spec)
	w.awaits("b").Should(isRead)
	receiver := w.receiver()
	w.mu.Lock()
	delete(readings, w.key("b"))
	w.mu.Unlock()
	w.change("b", receiver.spec())
	w.awaits("b").Should(good("http"))
	reads(backend.Reading{Config: config, Ready: true})
	w.change("b", spec)
	w.awaits("b").Should(isRead)
	w.g.Eventually(func() bool { _, known := r.Publisher().Status(w.key("b").String()); return known }).Should(BeFalse())
	w.g.Expect(w.Delete(t.Context(), w.get("b"))).To(Succeed())
	w.g.Eventually(func() error { return w.Get(t.Context(), w.key("b"), b) }).Should(MatchError(ContainSubstring("not found")))
}

// Errors about the dead letter backend, and its use.
func TestDeadLetterBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.Timings.Recheck = 50 * time.Millisecond // Otherwise Eventually waits a minute for an Event.
	broken, spare := w.receiver(), w.receiver()
	broken.answer.Store(http.StatusBadRequest)
	r := w.start(false)
	w.backend("b", broken.spec("{deadLetterBackend: b}"))
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", "False The provided spec.config has validation errors: deadLetterBackend: must be the name of another EventingBackend"))
	w.g.Expect(w.get("b").Status.BackendType).To(Equal("http"))
	w.change("b", broken.spec("{deadLetterBackend: spare}"))
	w.awaits("b").Should(HaveKeyWithValue("Publisher Proxy Ready",
		"False Publisher proxy deployment not ready: EventingBackend spare of deadLetterBackend does not exist in namespace "+w.namespace))
	w.backend("spare", spare.spec("{eventTypes: [none]}"))
	w.awaits("b").Should(good("http"))
	w.awaits("spare").Should(good("http"))
	w.publish(r, 0, 3)
	w.g.Eventually(func() int { return len(spare.got()) }).Should(Equal(3))
	// With retryMaxAttempts 0, a transient failure is also a dead letter, as soon as another
	// event has shown that the receiver answers.
	broken.failing.Store(w.sample(4).Subject())
	broken.answer.Store(http.StatusNoContent)
	w.change("b", broken.spec("{deadLetterBackend: spare}", "{retryMaxAttempts: 0}", "{retryBackoff: 100ms}"))
	w.uses("b")
	w.publish(r, 4, 5)
	others := 1000
	w.g.Eventually(func() int {
		others++
		w.publish(r, others, others+1)
		return len(spare.got())
	}).Should(Equal(4))
	broken.answer.Store(http.StatusBadRequest)
	w.change("b", broken.spec())
	w.uses("b")
	w.publish(r, 3, 4)
	w.g.Eventually(func() []string { return w.events("b") }).Should(ContainElement("Warning EventsDropped 1 events were dropped, the last one with error http-400"))
}

// What was given up is in the status, on this leader and on the next one.
func TestDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.Timings.Delivery, w.options.Timings.Recheck = 50*time.Millisecond, 100*time.Millisecond
	receiver := w.receiver()
	r := w.start(true)
	w.backend("b", receiver.spec())
	w.awaits("b").Should(good("http"))
	w.publish(r, 0, 2)
	w.g.Eventually(func() *eventingv1.Delivery { return w.get("b").Status.Delivery }).Should(And(Not(BeNil()), HaveField("LastSuccess", Not(BeNil()))))
	refuse := func(r *replica, from, total int) {
		receiver.answer.Store(http.StatusBadRequest)
		w.publish(r, from, from+1)
		w.g.Eventually(func() int64 { return w.get("b").Status.Delivery.GivenUp }).Should(BeEquivalentTo(total))
		w.g.Expect(w.get("b").Status.Delivery.LastGivenUp.Reason).To(Equal("http-400"))
		w.awaits("b").Should(HaveKeyWithValue("Publisher Proxy Ready",
			HavePrefix(fmt.Sprintf("True Publisher proxy deployment ready: %d events were given up so far, the last one at ", total))))
		receiver.answer.Store(http.StatusNoContent)
	}
	refuse(r, 10, 1)
	refuse(r, 11, 2)
	r.stop()
	next := w.start(true)
	w.g.Eventually(next.elected).Should(BeClosed())
	w.g.Eventually(func() bool { _, known := next.Publisher().Status(w.key("b").String()); return known }).Should(BeTrue())
	refuse(next, 12, 3)
	receiver.answer.Store(0) // Events wait.
	w.publish(next, 20, 23)
	w.g.Eventually(func() *eventingv1.Delivery { return w.get("b").Status.Delivery }).Should(And(HaveField("Waiting", BeEquivalentTo(3)), HaveField("OldestWaiting", Not(BeNil()))))
	receiver.answer.Store(http.StatusNoContent)
	w.g.Eventually(func() int64 { return w.get("b").Status.Delivery.Waiting }).Should(BeZero())
}

// Only the leader writes the status. A new leader writes nothing while nothing has
// changed. Each replica publishes its own events.
func TestReplicas(t *testing.T) {
	plane.Get(t)
	leaks.AtEnd(t) // The test is not parallel: no other replica runs.
	w := newWorld(t)
	receiver := w.receiver()
	first := w.start(true)
	w.g.Eventually(first.elected).Should(BeClosed())
	second := w.start(true)
	w.backend("b", receiver.spec())
	w.awaits("b").Should(good("http"))
	w.g.Eventually(func() bool { _, known := second.Publisher().Status(w.key("b").String()); return known }).Should(BeTrue())
	w.publish(first, 0, 3)
	w.publish(second, 3, 6)
	w.g.Eventually(func() int { return len(receiver.got()) }).Should(Equal(6))
	all := w.record("b")
	w.g.Eventually(all).Should(HaveLen(1))
	first.stop()
	w.g.Eventually(second.elected).Should(BeClosed())
	w.g.Consistently(all, "1s").Should(HaveLen(1))
	receiver.CloseClientConnections()
	receiver.Close()
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", HavePrefix("False Backend not ready: unreachable: ")))
	third := w.start(true)
	w.g.Eventually(func() bool { _, known := third.Publisher().Status(w.key("b").String()); return known }).Should(BeTrue())
	second.stop()
	w.g.Eventually(third.elected).Should(BeClosed())
	w.change("b", "{type: nothing}")
	w.awaits("b").Should(HaveKeyWithValue("Backend Ready", "False The provided spec.config has validation errors: type: must be one of nats, beb, sqs, http, flux, slack, msteams, commitstatus; the last good configuration is in use"))
	w.g.Expect(w.get("b").Status.ValidationErrors).To(HaveLen(1))
}

// All conditions of a spec that was never valid are False.
func TestNeverValid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	types, err := schema.Types(schema.Options{NATSURL: "nats://127.0.0.1:1"})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.options.Registry = types
	w.start(false)
	w.backend("b", "{type: nats, config: [{maxInFlightMessages: ten, password: "+canary+"}]}")
	w.awaits("b").Should(Equal(map[string]string{
		"type": "nats", "eventingReady": "false",
		"Backend Ready":                 "False The provided spec.config has validation errors: maxInFlightMessages: should be of type int",
		"Publisher Proxy Ready":         "False Publisher proxy deployment not ready: there was no valid configuration since the hub started",
		"Subscription Controller Ready": "False Subscription controller not ready: there was no valid configuration since the hub started",
		"Ready":                         "False The provided spec.config has validation errors: maxInFlightMessages: should be of type int",
	}))
	w.g.Eventually(func() []string { return w.events("b") }).Should(HaveLen(1))
	w.noCanary()
}
