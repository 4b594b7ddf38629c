package instancestate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	backends "github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/eventnote"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	region  = "us-east-1"
	account = "123456789012"
	infra   = "infrastructure.cluster.x-k8s.io/v1beta2"
)

// world is a namespace of a management cluster, AWS, and replicas of the hub's part.
type world struct {
	testing.TB
	g *WithT
	client.Client
	plane     *controlplane.Shared
	namespace string
	// core is the version of Cluster API that objects are written in.
	core     string
	aws      *aws.Server
	sqs      *sqs.Service
	queues   *api.Client
	registry *prometheus.Registry
	logger   logr.Logger
	// patches of AWSMachines and pools that the API server has taken.
	patches atomic.Int64
	// fault, if set, may answer a call of a replica instead of the API server.
	fault atomic.Pointer[func(*http.Request) *http.Response]
	// What tests change before a start.
	config  *rest.Config
	options instancestate.Options
	// pivoted is set with self-managed clusters; wide to watch all namespaces.
	pivoted, wide bool
	// maxLocalObjects of a kind; the default when 0.
	maxLocalObjects int
	// connections of the replicas, in the order of prepare.
	connections []*clusters.Manager
}

var worlds atomic.Int64

func newWorld(t testing.TB, on *controlplane.Shared) *world {
	t.Helper()
	return newWorldAt(t, on, nil)
}

// newWorldAt is newWorld with a clock for SQS.
func newWorldAt(t testing.TB, on *controlplane.Shared, c clock.Clock) *world {
	t.Helper()
	w := &world{TB: t, g: NewWithT(t), plane: on, core: "v1beta2", registry: prometheus.NewRegistry(), logger: logr.Discard()}
	if on == oldest {
		w.core = "v1beta1"
	}
	w.config = on.Get(t).Config()
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return trip{w, next} })
	w.Client = clientOf(t, on)
	w.namespace = fmt.Sprintf("world-%d", worlds.Add(1))
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	// CAPA creates it, for all namespaces.
	capaItself := object(infra, "AWSClusterControllerIdentity", "", "default", map[string]any{"allowedNamespaces": map[string]any{}})
	w.g.Expect(client.IgnoreAlreadyExists(w.Client.Create(t.Context(), capaItself))).To(Succeed())
	w.sqs = sqs.New(sqs.Options{Seed: 1, Clock: c})
	var err error
	w.aws, err = aws.Start(aws.Options{Services: []aws.Service{w.sqs, sts.New(sts.Role{ARN: "arn:aws:iam::222222222222:role/hub"})}})
	w.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.aws.Stop)
	w.queues = api.New(api.Options{
		Region: region, BaseEndpoint: sdk.String(w.aws.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(aws.AccessKeyID, aws.SecretAccessKey, ""),
	})
	return w
}

// trip is the transport of replicas to the API server.
type trip struct {
	w    *world
	next http.RoundTripper
}

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) {
	if fault := t.w.fault.Load(); fault != nil {
		if answer := (*fault)(r); answer != nil {
			return answer, nil
		}
	}
	answer, err := t.next.RoundTrip(r)
	if labels(r) && err == nil && answer.StatusCode == http.StatusOK {
		t.w.patches.Add(1)
	}
	return answer, err
}

// labels reports whether a call is a patch of an AWSMachine or pool.
func labels(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/infrastructure.cluster.x-k8s.io/")
}

// fails answers matching calls with a code.
func (w *world) fails(code int, match func(*http.Request) bool) {
	fault := func(r *http.Request) *http.Response {
		if !match(r) {
			return nil
		}
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"on purpose","code":%d}`, code)
		return &http.Response{
			StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
		}
	}
	w.fault.Store(&fault)
}

func (w *world) recovers() { w.fault.Store(nil) }

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(s), capstanv1.AddToScheme(s), eventingv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

func clientOf(t testing.TB, p *controlplane.Shared) client.Client {
	t.Helper()
	config := p.Get(t).Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// replica of the hub's part.
type replica struct {
	*instancestate.Labeler
	manager mcmanager.Manager
	stop    func()
}

// start a replica that leads.
func (w *world) start() *replica {
	w.Helper()
	r := w.prepare(false)
	r.run(w)
	return r
}

// prepare a replica. With an election, the first one leads.
func (w *world) prepare(election bool) *replica {
	w.Helper()
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: scheme(), Logger: w.logger, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		LeaderElection: election, LeaderElectionID: "hub", LeaderElectionNamespace: w.namespace, LeaderElectionReleaseOnCancel: true,
		// Ignore the EventingBackends of other tests.
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	multi, watching := w.watchers(mgr)
	config, err := awsconfig.Load(w.Context(), awsconfig.Options{Attempts: 1, LoadOptions: w.aws.LoadOptions()})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.Cleanup(config.Close)
	types, err := backends.Types(backends.Options{SQSSourceNamespaces: []string{w.namespace}})
	w.g.Expect(err).NotTo(HaveOccurred())
	options := w.options
	options.Watchers, options.AWS, options.Backends = watching, config, types
	options.Recorder, options.Registerer, options.Logger = eventnote.Bounded(mgr.GetEventRecorder("capstan")), w.registry, w.logger
	made, err := instancestate.SetupWithManager(multi, options)
	w.g.Expect(err).NotTo(HaveOccurred())
	return &replica{Labeler: made, manager: multi}
}

// watchers of the management cluster on every replica, and of self-managed clusters on the
// leader: the same stack as in the hub.
func (w *world) watchers(mgr manager.Manager) (mcmanager.Manager, *watchers.Watcher) {
	kinds := func(gk schema.GroupKind) watchers.Kind {
		k, ours := instancestate.Kind(gk)
		w.g.Expect(ours).To(BeTrue())
		return k
	}
	namespaces := []string{w.namespace}
	if w.wide {
		namespaces = nil
	}
	connections, err := clusters.New(clusters.Options{
		Local: w.config, Namespaces: namespaces, LocalOnly: !w.pivoted, Elected: mgr.Elected(), AllowLoopback: true, Logger: w.logger.WithName("clusters"),
		Timings: clusters.Timings{
			ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeRetry: 200 * time.Millisecond, Silence: time.Second,
			UnreachableRetry: 200 * time.Millisecond, KindRetry: 200 * time.Millisecond, Linger: 500 * time.Millisecond, ReleaseSpread: 20 * time.Millisecond,
		},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	watching := watchers.New(watchers.Options{
		Clusters: connections, Index: index.New(), Namespaces: namespaces, SourcesIn: connections.SelfManaged, EveryReplica: true, MaxLocalObjects: w.maxLocalObjects, Kinds: kinds, Logger: w.logger.WithName("watchers"),
		Timings: watchers.Timings{Check: 50 * time.Millisecond, Retry: 300 * time.Millisecond, RetryMax: time.Second, TransientRetry: 100 * time.Millisecond, Linger: 500 * time.Millisecond},
	})
	connections.AddListener(watching)
	w.connections = append(w.connections, connections)
	multi, err := mcmanager.WithMultiCluster(mgr, connections)
	w.g.Expect(err).NotTo(HaveOccurred())
	connections.SetAware(multi)
	w.g.Expect(errors.Join(mgr.Add(connections), mgr.Add(watching))).To(Succeed())
	return multi, watching
}

// run a replica until its stop, or the end of the test.
func (r *replica) run(w *world) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.manager.Start(ctx) }()
	stopped := false
	r.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			w.g.Eventually(ended).Should(Receive(BeNil()))
		}
	}
	w.Cleanup(r.stop)
}

// create an object, which is deleted at the end of the test.
func (w *world) create(o client.Object) {
	w.Helper()
	w.createIn(w.Client, o)
}

func (w *world) createIn(c client.Client, o client.Object) {
	w.Helper()
	w.g.Expect(c.Create(w.Context(), o)).To(Succeed())
	w.Cleanup(func() { _ = c.Delete(context.Background(), o) })
}

func object(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func (w *world) ref(apiVersion, kind, name string) map[string]any {
	if w.core == "v1beta1" {
		return map[string]any{"apiVersion": apiVersion, "kind": kind, "name": name}
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	w.g.Expect(err).NotTo(HaveOccurred())
	return map[string]any{"apiGroup": gv.Group, "kind": kind, "name": name}
}

// usual creates the Cluster "c" with its AWSCluster, which has another name: row 9 of the
// matrix.
func (w *world) usual() {
	w.Helper()
	w.create(object(infra, "AWSCluster", w.namespace, "c-x7k2p", map[string]any{"region": region}))
	w.create(object("cluster.x-k8s.io/"+w.core, "Cluster", w.namespace, "c", map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", "c-x7k2p")}))
}

// owned returns an AWSMachine, which is not created yet, and the Machine that owns it.
func (w *world) owned(name, id string) (m, owner *unstructured.Unstructured) {
	w.Helper()
	owner = object("cluster.x-k8s.io/"+w.core, "Machine", w.namespace, name, map[string]any{
		"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"}, "infrastructureRef": w.ref(infra, "AWSMachine", name),
	})
	w.create(owner)
	m = w.machine(name, id)
	m.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: "Machine", Name: name, UID: owner.GetUID()}})
	return m, owner
}

// machine is an AWSMachine of the Cluster "c"; without an id it has no instance yet.
func (w *world) machine(name, id string) *unstructured.Unstructured {
	spec := map[string]any{"instanceType": "m5.large"}
	if id != "" {
		spec["instanceID"], spec["providerID"] = id, "aws:///us-east-1a/"+id
	}
	u := object(infra, "AWSMachine", w.namespace, name, spec)
	u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
	return u
}

// pool is an AWSMachinePool of the Cluster "c".
func (w *world) pool(name, arn string, ids ...string) *unstructured.Unstructured {
	spec := map[string]any{"minSize": int64(0), "maxSize": int64(3), "awsLaunchTemplate": map[string]any{"instanceType": "m5.large", "ami": map[string]any{}}}
	if arn != "" {
		spec["providerID"] = arn
	}
	var list []any
	for _, id := range ids {
		list = append(list, "aws:///us-east-1a/"+id)
	}
	if list != nil {
		spec["providerIDList"] = list
	}
	u := object(infra, "AWSMachinePool", w.namespace, name, spec)
	u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
	return u
}

// queue of a name, with attributes: name, value, name, value.
func (w *world) queue(name string, attributes ...string) string {
	w.Helper()
	in := &api.CreateQueueInput{QueueName: sdk.String(name), Attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		in.Attributes[attributes[i]] = attributes[i+1]
	}
	out, err := w.queues.CreateQueue(w.Context(), in)
	w.g.Expect(err).NotTo(HaveOccurred())
	return *out.QueueUrl
}

// source is an EventingBackend that has a queue read; config: name, value, name, value.
func (w *world) source(name string, config ...any) *eventingv1.EventingBackend {
	b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	b.Spec.Type = "sqs"
	config = append([]any{"role", "source", "waitTimeSeconds", 1}, config...)
	for i := 0; i < len(config); i += 2 {
		b.Spec.Config = append(b.Spec.Config, entry(config[i].(string), config[i+1]))
	}
	return b
}

func entry(key string, value any) eventingv1.ConfigEntry {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return eventingv1.ConfigEntry{key: {Raw: raw}}
}

// events is a queue with dead letters behind it, and its source; more: its configuration.
func (w *world) events(more ...any) {
	w.Helper()
	w.queue("dead")
	url := w.queue("events", "RedrivePolicy", fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":20}`, sqs.ARN(region, "dead")))
	w.create(w.source("events", append([]any{"queueUrl", url, "region", region, "accounts", []string{account}}, more...)...))
}

// send bodies to a queue.
func (w *world) send(queue string, bodies ...string) {
	w.Helper()
	w.g.Expect(w.sqs.Put(region, queue, bodies...)).To(BeNil())
}

// stateChange is an event of EC2, at so many seconds after ten o'clock.
func stateChange(id, state string, seconds int) string {
	return event("aws.ec2", "EC2 Instance State-change Notification", seconds, fmt.Sprintf(`{"instance-id":%q,"state":%q}`, id, state))
}

func spot(id string, seconds int) string {
	return event("aws.ec2", "EC2 Spot Instance Interruption Warning", seconds, fmt.Sprintf(`{"instance-id":%q,"instance-action":"terminate"}`, id))
}

var ids atomic.Int64

var begin = time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)

func event(source, detailType string, seconds int, detail string) string {
	return eventOf(account, region, source, detailType, begin.Add(time.Duration(seconds)*time.Second), detail)
}

func eventOf(account, region, source, detailType string, at time.Time, detail string) string {
	return fmt.Sprintf(`{"version":"0","id":"e-%d","source":%q,"detail-type":%q,"account":%q,"region":%q,"time":%q,"resources":[],"detail":%s}`,
		ids.Add(1), source, detailType, account, region, at.Format(time.RFC3339), detail)
}

// get an object as the API server has it.
func (w *world) getIn(c client.Client, o client.Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	if err := c.Get(w.Context(), client.ObjectKeyFromObject(o), u); err != nil {
		w.g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}
	return u
}

// label of an AWSMachine or pool.
func (w *world) label(o client.Object) string { return w.labelIn(w.Client, o) }

func (w *world) labelIn(c client.Client, o client.Object) string {
	key := instancestate.LabelASG
	if o.GetObjectKind().GroupVersionKind().Kind == "AWSMachine" {
		key = instancestate.LabelEC2
	}
	return w.getIn(c, o).GetLabels()[key]
}

func (w *world) awaits(o client.Object) AsyncAssertion {
	w.Helper()
	return w.g.Eventually(func() string { return w.label(o) })
}

// awaitsEmpty waits until nothing is left in a queue.
func (w *world) awaitsEmpty(queue string) {
	w.Helper()
	w.g.Eventually(func() string {
		s := w.sqs.Stats(region, queue)
		return fmt.Sprintf("%d left: %+v; retried %v, delete_failed %v, change_failed %v", s.Visible+s.InFlight+s.Delayed, s,
			w.metric("messages_total", "what=retried"), w.metric("messages_total", "what=delete_failed"), w.metric("messages_total", "what=change_failed"))
	}).Should(HavePrefix("0 left"))
}

// patch an object by a merge patch.
func (w *world) patch(o client.Object, patch string) {
	w.Helper()
	w.g.Expect(w.Patch(w.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// patchStatus of an object by a merge patch.
func (w *world) patchStatus(o client.Object, patch string) {
	w.Helper()
	w.g.Expect(w.Status().Patch(w.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// eventsOf an object, each as "type reason note".
func (w *world) eventsOf(name string) []string {
	w.Helper()
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

func (w *world) awaitsEvents(name string) AsyncAssertion {
	w.Helper()
	return w.g.Eventually(func() []string { return w.eventsOf(name) })
}

// reading of a source on a replica: "ready", why it is not, or "nothing is read".
func (r *replica) reading(w *world, name string) string {
	status, known := r.Source(types.NamespacedName{Namespace: w.namespace, Name: name})
	switch {
	case !known:
		return "nothing is read"
	case status.Ready:
		return "ready"
	}
	return status.Message
}

func (w *world) awaitsReading(r *replica, name string) AsyncAssertion {
	w.Helper()
	return w.g.Eventually(func() string { return r.reading(w, name) })
}

// metric is the sum of a metric's values, or counts, with the labels given.
func (w *world) metric(name string, labels ...string) float64 {
	w.Helper()
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "capstan_instancestate_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if has(m.GetLabel(), labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func has(all []*dto.LabelPair, want []string) bool {
	for _, text := range want {
		found := false
		for _, l := range all {
			found = found || l.GetName()+"="+l.GetValue() == text
		}
		if !found {
			return false
		}
	}
	return true
}

// context for clean-ups, which does not end with the test.
func (*world) context() context.Context { return context.Background() }
