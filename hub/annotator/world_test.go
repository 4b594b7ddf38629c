package annotator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/eventnote"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
)

// world is a namespace of a management cluster, AWS, and an annotator for it.
type world struct {
	*testing.T
	g *WithT
	client.Client
	plane     *controlplane.Shared
	namespace string
	// core is the version of Cluster API that objects are written in.
	core     string
	aws      *cloud
	options  annotator.Options
	registry *prometheus.Registry
	// config of the annotator, and wiring around it.
	config  *rest.Config
	cluster func(*clusters.Options)
	logger  logr.Logger
}

var worlds atomic.Int64

func newWorld(t *testing.T, on *controlplane.Shared) *world {
	t.Helper()
	w := &world{T: t, g: NewWithT(t), plane: on, core: "v1beta2", registry: prometheus.NewRegistry(), logger: logr.Discard()}
	if on == oldest {
		w.core = "v1beta1"
	}
	w.config = on.Get(t).Config()
	w.Client = clientOf(t, on)
	w.namespace = fmt.Sprintf("world-%d", worlds.Add(1))
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	// CAPA creates it, for all namespaces.
	capaItself := object(infrastructure+"/v1beta2", "AWSClusterControllerIdentity", "", "default", map[string]any{"allowedNamespaces": map[string]any{}})
	w.g.Expect(client.IgnoreAlreadyExists(w.Create(t.Context(), capaItself))).To(Succeed())
	w.aws = newCloud(t)
	return w
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(s), capstanv1.AddToScheme(s)); err != nil {
		panic(err)
	}
	return s
}

func clientOf(t *testing.T, p *controlplane.Shared) client.Client {
	t.Helper()
	config := p.Get(t).Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start an annotator. The function returned ends it, as the end of the test does. Objects that
// exist before are all known at the first reconciliation; later ones may be seen in any order.
func (w *world) start() (stop func()) {
	w.Helper()
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: scheme(), Logger: w.logger, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	o := clusters.Options{Local: w.config, Namespaces: []string{w.namespace}, LocalOnly: true, AllowLoopback: true, Logger: w.logger.WithName("clusters"), Timings: clusters.Timings{
		ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeRetry: 200 * time.Millisecond, Silence: time.Second,
		UnreachableRetry: 200 * time.Millisecond, KindRetry: 200 * time.Millisecond, Linger: 500 * time.Millisecond, ReleaseSpread: 20 * time.Millisecond,
	}}
	if w.cluster != nil {
		w.cluster(&o)
	}
	connections, err := clusters.New(o)
	w.g.Expect(err).NotTo(HaveOccurred())
	watching := watchers.New(watchers.Options{
		Clusters: connections, Index: index.New(), Namespaces: []string{w.namespace}, SourcesIn: connections.SelfManaged, Logger: w.logger.WithName("watchers"),
		Kinds: func(gk schema.GroupKind) watchers.Kind {
			k, ours := annotator.Kind(gk)
			w.g.Expect(ours).To(BeTrue())
			return k
		},
		Timings: watchers.Timings{Check: 50 * time.Millisecond, Retry: time.Second, RetryMax: 4 * time.Second, TransientRetry: 100 * time.Millisecond, Linger: 500 * time.Millisecond},
	})
	connections.AddListener(watching)
	multi, err := mcmanager.WithMultiCluster(mgr, connections)
	w.g.Expect(err).NotTo(HaveOccurred())
	connections.SetAware(multi)
	w.g.Expect(mgr.Add(connections)).To(Succeed())
	w.g.Expect(mgr.Add(watching)).To(Succeed())

	options := w.options
	options.Watchers, options.Recorder, options.Registerer = watching, eventnote.Bounded(mgr.GetEventRecorder("capa-annotator")), w.registry
	options.Logger = w.logger
	options.Catalogue = w.aws.catalogue(w.T, mgr)
	if counting, is := w.options.Catalogue.(*gets); is {
		counting.Catalogue, options.Catalogue = options.Catalogue, counting
	}
	w.g.Expect(annotator.SetupWithManager(multi, options)).To(Succeed())

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- multi.Start(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			w.g.Eventually(ended).Should(Receive(BeNil()))
		}
	}
	w.Cleanup(stop)
	return stop
}

// create creates an object, which is deleted at the end of the test.
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

const (
	infrastructure = "infrastructure.cluster.x-k8s.io"
	controlPlane   = "controlplane.cluster.x-k8s.io"
)

// ref is a reference in the words of the version of Cluster API.
func (w *world) ref(group, kind, name string) map[string]any {
	if w.core == "v1beta1" {
		return map[string]any{"apiVersion": group + "/v1beta2", "kind": kind, "name": name}
	}
	return map[string]any{"apiGroup": group, "kind": kind, "name": name}
}

// group is a MachineDeployment, MachineSet or MachinePool of the Cluster "c".
func (w *world) group(kind, name string, infra map[string]any) *unstructured.Unstructured {
	template := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"a": "b", "node-role.kubernetes.io/worker": "", "team": "x"}},
		"spec":     map[string]any{"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"}, "infrastructureRef": infra},
	}
	spec := map[string]any{"clusterName": "c", "template": template}
	if kind != "MachinePool" {
		spec["selector"] = map[string]any{"matchLabels": map[string]any{"a": "b"}}
	}
	return object("cluster.x-k8s.io/"+w.core, kind, w.namespace, name, spec)
}

// deployment is a MachineDeployment of an AWSMachineTemplate.
func (w *world) deployment(name, template string) *unstructured.Unstructured {
	return w.group("MachineDeployment", name, w.ref(infrastructure, "AWSMachineTemplate", template))
}

func (w *world) template(name, instanceType string) *unstructured.Unstructured {
	return object(infrastructure+"/v1beta2", "AWSMachineTemplate", w.namespace, name,
		map[string]any{"template": map[string]any{"spec": map[string]any{"instanceType": instanceType}}})
}

// cluster is the Cluster "c" with its infrastructure, and a control plane unless its
// kind is empty, of the same name.
func (w *world) capiCluster(infra, plane string) *unstructured.Unstructured {
	spec := map[string]any{"infrastructureRef": w.ref(infrastructure, infra, "c")}
	if plane != "" {
		spec["controlPlaneRef"] = w.ref(controlPlane, plane, "c")
	}
	return object("cluster.x-k8s.io/"+w.core, "Cluster", w.namespace, "c", spec)
}

func (w *world) awsCluster(region string) *unstructured.Unstructured {
	return object(infrastructure+"/v1beta2", "AWSCluster", w.namespace, "c", map[string]any{"region": region})
}

// usual makes a Cluster in a region with its AWSCluster.
func (w *world) usual(region string) {
	w.Helper()
	w.create(w.awsCluster(region))
	w.create(w.capiCluster("AWSCluster", ""))
}

// annotations of an object, as the API server has them.
func (w *world) annotations(o client.Object) map[string]string {
	w.Helper()
	return w.annotationsIn(w.Client, o)
}

func (w *world) annotationsIn(c client.Client, o client.Object) map[string]string {
	w.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	w.g.Expect(c.Get(w.Context(), client.ObjectKeyFromObject(o), u)).To(Succeed())
	return u.GetAnnotations()
}

// awaits annotations of an object.
func (w *world) awaits(o client.Object) AsyncAssertion {
	w.Helper()
	return w.g.Eventually(func() map[string]string { return w.annotations(o) })
}

// patch an object by a merge patch.
func (w *world) patch(o client.Object, patch string) {
	w.Helper()
	w.patchIn(w.Client, o, patch)
}

func (w *world) patchIn(c client.Client, o client.Object, patch string) {
	w.Helper()
	w.g.Expect(c.Patch(w.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// events of an object, each as "type reason note", with the number of its repetitions
// when it was made more than once.
func (w *world) events(name string) []string {
	w.Helper()
	var list eventsv1.EventList
	w.g.Expect(w.List(w.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
	var all []string
	for _, e := range list.Items {
		if e.Regarding.Name != name {
			continue
		}
		s := fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Note)
		if e.Series != nil {
			s += fmt.Sprintf(" (%d times)", e.Series.Count)
		}
		all = append(all, s)
	}
	return all
}

func (w *world) awaitsEvents(name string) AsyncAssertion {
	w.Helper()
	return w.g.Eventually(func() []string { return w.events(name) })
}

// metric is the sum of a metric's values with the labels given, each as "name=value".
func (w *world) metric(name string, labels ...string) float64 {
	w.Helper()
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for _, want := range labels {
				key, value, _ := strings.Cut(want, "=")
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == key && l.GetValue() == value
				}
				if !found {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func (w *world) written() float64 {
	return w.metric("capstan_annotator_patches_total", "outcome=written")
}

// gone deletes an object and waits until it is removed.
func (w *world) gone(o client.Object) {
	w.Helper()
	w.g.Expect(w.Delete(w.Context(), o)).To(Succeed())
	w.g.Eventually(func() bool {
		return apierrors.IsNotFound(w.Get(w.Context(), client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)))
	}).Should(BeTrue())
}

// Expected annotations of types, without the record.
func m5(region string) map[string]string {
	return map[string]string{
		annotation.CPU: "2", annotation.Memory: "8192Mi",
		annotation.Labels:     "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node-role.kubernetes.io/worker=,node.kubernetes.io/instance-type=m5.large,topology.kubernetes.io/region=" + region,
		annotation.LegacyVCPU: "2", annotation.LegacyMemoryMb: "8192", annotation.LegacyGPU: "0",
	}
}

func g5(region string) map[string]string {
	return map[string]string{
		annotation.CPU: "4", annotation.Memory: "16384Mi", annotation.GPUType: "nvidia.com/gpu", annotation.GPUCount: "1",
		annotation.Labels:     "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node-role.kubernetes.io/worker=,node.kubernetes.io/instance-type=g5.xlarge,topology.kubernetes.io/region=" + region,
		annotation.LegacyVCPU: "4", annotation.LegacyMemoryMb: "16384", annotation.LegacyGPU: "1",
	}
}

// equal annotations but for the record, which has to be there.
func equal(want map[string]string) OmegaMatcher {
	return WithTransform(func(got map[string]string) map[string]string {
		got = maps.Clone(got)
		if got[annotation.Applied] == "" {
			return map[string]string{"no record": ""}
		}
		delete(got, annotation.Applied)
		return got
	}, Equal(want))
}
