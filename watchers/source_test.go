package watchers_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// crane is a kind without its own reader, which is not in the index.
var crane = schema.GroupKind{Group: "harbour.example.org", Kind: "Crane"}

// kinds reads applications, and everything else as it is.
func kinds(gk schema.GroupKind) watchers.Kind {
	if gk == apps.HelmRelease || gk == apps.Kustomization {
		return apps.Kind(gk)
	}
	return watchers.Kind{GroupKind: gk}
}

// installCranes makes the kind be served.
// installing is held while the CRD is installed: parallel tests would both create it.
var installing sync.Mutex

func installCranes(t *testing.T, p *controlplane.Shared) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	preserve := true
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "cranes.harbour.example.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crane.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "cranes", Singular: "crane", Kind: crane.Kind, ListKind: "CraneList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", false), version("v1", true)},
		},
	}
	if _, err := envtest.InstallCRDs(p.Get(t).Config(), envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
		t.Fatal(err)
	}
}

func newCrane(namespace, name string, labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"load": int64(5)}}}
	u.SetAPIVersion("harbour.example.org/v1")
	u.SetKind(crane.Kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(labels)
	return u
}

// reconciled remembers requests.
type reconciled struct {
	mu   sync.Mutex
	seen []string
}

func (r *reconciled) Reconcile(_ context.Context, request mcreconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, string(request.ClusterName)+" "+request.Name)
	return reconcile.Result{}, nil
}

func (r *reconciled) has(cluster, name string) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Contains(r.seen, cluster+" "+name)
	}
}

func (r *reconciled) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// TestReader reads from the stores, in both forms of a list, and gets an error if the kind
// is not synced.
func TestReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.Kinds = kinds })
	installCranes(t, home)
	cluster := w.admin("prod", home)
	reader := w.watcher.Reader(cluster)
	into := newCrane("", "", nil)
	at := client.ObjectKey{Namespace: w.namespace, Name: "a"}
	w.g.Expect(reader.Get(t.Context(), at, into)).To(MatchError(watchers.ErrNotSynced))

	elsewhere := w.newNamespace(home)
	for _, u := range []*unstructured.Unstructured{
		newCrane(w.namespace, "a", map[string]string{"dock": "a"}), newCrane(w.namespace, "b", nil), newCrane(elsewhere, "c", map[string]string{"dock": "a"}),
	} {
		w.g.Expect(w.hub.Create(t.Context(), u)).To(Succeed())
	}
	w.watcher.SetDemand("one", []watchers.Demand{{Cluster: cluster, Kind: crane, Namespace: w.namespace, Name: "a"}})
	w.g.Eventually(func() error { return reader.Get(t.Context(), at, into) }).Should(Succeed())
	w.g.Expect(into.GetLabels()).To(Equal(map[string]string{"dock": "a"}))
	w.g.Expect(into.GetManagedFields()).To(BeEmpty())
	into.SetLabels(nil)
	w.g.Expect(reader.Get(t.Context(), at, into)).To(Succeed())
	w.g.Expect(into.GetLabels()).NotTo(BeEmpty(), "a copy was given")
	b := client.ObjectKey{Namespace: w.namespace, Name: "b"}
	w.g.Expect(client.IgnoreNotFound(reader.Get(t.Context(), b, into))).To(Succeed())

	// All of a namespace, then of the cluster: what was stored as keys is listed again.
	list := func(options ...client.ListOption) func() ([]string, error) {
		return func() ([]string, error) {
			l := &unstructured.UnstructuredList{}
			l.SetAPIVersion("harbour.example.org/v1")
			l.SetKind("CraneList")
			err := reader.List(t.Context(), l, options...)
			var names []string
			for _, u := range l.Items {
				names = append(names, u.GetName())
			}
			slices.Sort(names)
			return names, err
		}
	}
	w.watcher.SetDemand("namespace", []watchers.Demand{{Cluster: cluster, Kind: crane, Namespace: w.namespace}})
	w.g.Eventually(list(client.InNamespace(w.namespace))).Should(Equal([]string{"a", "b"}))
	w.g.Expect(list(client.InNamespace(elsewhere))()).To(BeEmpty())
	w.watcher.SetDemand("all", []watchers.Demand{{Cluster: cluster, Kind: crane}})
	w.g.Eventually(list()).Should(ContainElements("a", "b", "c"))
	w.g.Expect(list(client.MatchingLabels{"dock": "a"})()).To(ContainElements("a", "c"))
	w.g.Expect(list(client.MatchingLabels{"dock": "a"}, client.InNamespace(w.namespace))()).To(Equal([]string{"a"}))

	typed := &metav1.PartialObjectMetadata{}
	typed.SetGroupVersionKind(crane.WithVersion("v1"))
	w.g.Expect(reader.Get(t.Context(), at, typed)).To(Succeed())
	w.g.Expect(typed.GetName()).To(Equal("a"))
	for _, o := range []string{"one", "namespace", "all"} {
		w.watcher.SetDemand(o, nil)
	}
	w.g.Eventually(func() error { return reader.Get(t.Context(), at, into) }).Should(MatchError(watchers.ErrNotSynced))
}

// TestSourceEndsWithItsEngagement: when the context of its start ends, the demand ends, and
// the source delivers nothing more.
func TestSourceEndsWithItsEngagement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) { o.Kinds = kinds })
	installCranes(t, home)
	cluster := w.admin("prod", home)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	source, engage, err := w.watcher.Source(crane, mchandler.TypedEnqueueRequestForObject[client.Object]()).ForCluster(cluster, nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(engage).To(BeTrue())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.g.Expect(source.Start(ctx, queue)).To(Succeed())
	w.g.Expect(w.hub.Create(t.Context(), newCrane(w.namespace, "web", nil))).To(Succeed())
	w.g.Eventually(queue.Len).Should(BeNumerically(">", 0))
	w.g.Eventually(func() float64 { return w.meter("capstan_informers") }).Should(BeEquivalentTo(1))

	cancel()
	w.g.Eventually(func() float64 { return w.meter("capstan_informers") }).Should(BeZero())
	w.g.Eventually(func() capstanv1.ConnectionState { s, _ := w.manager.Snapshot(cluster); return s.State }).
		Should(Equal(capstanv1.ConnectionUnused), "the connection is released")
}
