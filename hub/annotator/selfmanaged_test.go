package annotator_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// pivoted is a workload cluster whose own CAPI objects live inside it.
type pivoted struct {
	*world
	// inside is a client of it; namespace the one of its objects.
	inside  client.Client
	cluster *unstructured.Unstructured
}

// pivot declares a workload cluster in the management cluster, under a name, reached at
// a server, or its own when empty.
// A test takes the shared workload cluster before: the annotator acts on all its namespaces.
func (w *world) pivot(name string, of *controlplane.Shared, server string) *pivoted {
	w.Helper()
	w.cluster = func(o *clusters.Options) { o.LocalOnly = false }
	p := &pivoted{world: w, inside: clientOf(w.T, of)}
	raw, err := of.Get(w.T).Kubeconfig(server)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": raw}})
	p.cluster = object("cluster.x-k8s.io/v1beta2", "Cluster", w.namespace, name,
		map[string]any{"controlPlaneEndpoint": map[string]any{"host": "127.0.0.1", "port": int64(6443)}})
	p.cluster.SetLabels(map[string]string{clusters.SelfManagedLabel: "true"})
	w.create(p.cluster)
	return p
}

// workloadInUse is held by the test that has the workload cluster.
var workloadInUse sync.Mutex

// takeWorkload waits until no other test uses the workload cluster, and keeps it until the
// annotator of the test has stopped and its objects are deleted.
func takeWorkload(t *testing.T) {
	t.Helper()
	workloadInUse.Lock()
	t.Cleanup(workloadInUse.Unlock)
	workload.Get(t)
}

// fill the cluster with a namespace of node groups.
func (p *pivoted) fill(namespace string, groups int) {
	p.Helper()
	p.createIn(p.inside, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	all := []*unstructured.Unstructured{p.awsCluster(region), p.capiCluster("AWSCluster", ""), p.template("t", "m5.large")}
	for i := range groups {
		all = append(all, p.deployment(fmt.Sprintf("md-%d", i), "t"))
	}
	for _, o := range all {
		o.SetNamespace(namespace)
		p.createIn(p.inside, o)
	}
}

func (p *pivoted) awaitsInside(namespace, name string) AsyncAssertion {
	p.Helper()
	md := p.deployment(name, "t")
	md.SetNamespace(namespace)
	return p.g.Eventually(func() map[string]string { return p.annotationsIn(p.inside, md) })
}

// Node groups in a self-managed cluster are annotated there while the Cluster has the label.
// Their Events are created on the Cluster in the management cluster.
func TestSelfManagedCluster(t *testing.T) {
	t.Parallel()
	takeWorkload(t)
	w := newWorld(t, newest)
	p := w.pivot("prod", workload, "")
	w.patch(p.cluster, `{"metadata":{"labels":{"`+clusters.SelfManagedLabel+`":null}}}`)
	inside := w.namespace + "-inside"
	p.fill(inside, 1)
	w.start()
	w.usual(region)
	w.create(w.template("t", "m5.large"))
	home := w.deployment("home", "t")
	w.create(home)
	w.awaits(home).Should(equal(m5(region)))
	md := w.deployment("md-0", "t")
	md.SetNamespace(inside)
	w.g.Expect(w.annotationsIn(p.inside, md)).To(BeEmpty(), "without the label it is not looked at")

	w.patch(p.cluster, `{"metadata":{"labels":{"`+clusters.SelfManagedLabel+`":"true"}}}`)
	p.awaitsInside(inside, "md-0").Should(equal(m5(region)))
	lost := w.deployment("lost", "missing")
	lost.SetNamespace(inside)
	p.createIn(p.inside, lost)
	w.awaitsEvents("prod").Should(ContainElement(HavePrefix(
		fmt.Sprintf("Warning FailedUpdate MachineDeployment %s/lost: TemplateNotFound: failed to fetch AWSMachineTemplate %s/missing", inside, inside))))

	// The template is created, and the label is removed.
	template := w.template("missing", "g5.xlarge")
	template.SetNamespace(inside)
	p.createIn(p.inside, template)
	p.awaitsInside(inside, "lost").Should(equal(g5(region)))
	w.patch(p.cluster, `{"metadata":{"labels":{"`+clusters.SelfManagedLabel+`":null}}}`)
	w.g.Eventually(func() capstanv1.ConnectionState {
		var list capstanv1.ClusterConnectionList
		w.g.Expect(w.List(w.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
		for _, c := range list.Items {
			return c.Status.State
		}
		return capstanv1.ConnectionUnused // It is removed with the last demand.
	}).Should(Equal(capstanv1.ConnectionUnused))
	late := w.deployment("late", "t")
	late.SetNamespace(inside)
	p.createIn(p.inside, late)
	w.g.Consistently(func() map[string]string { return w.annotationsIn(p.inside, late) }, quiet).Should(BeEmpty())
}

// A cluster without Cluster API's CRDs does not affect other clusters. When it gets the CRDs,
// its node groups are annotated.
func TestClusterWithoutTheCRDs(t *testing.T) {
	t.Parallel()
	bare := controlplane.Share()
	bare.Get(t)
	t.Cleanup(func() { _ = bare.Get(t).Stop() })
	takeWorkload(t)
	w := newWorld(t, newest)
	w.pivot("bare", bare, "")
	p := w.pivot("prod", workload, "")
	inside := w.namespace + "-inside"
	p.fill(inside, 1)
	w.start()
	p.awaitsInside(inside, "md-0").Should(equal(m5(region)))
	// These CRDs serve one version of each kind. If a CRD serves two, the API server may list the
	// kind in v1beta1 a moment before v1beta2, and the hub then watches v1beta1. No webhook converts
	// objects here: an object written in v1beta2 has no groups in its references when it is read in
	// v1beta1, so a MachineDeployment or a Cluster refers to nothing.
	bare.Install(t, "cluster-api-old", "cluster-api-provider-aws-old")
	w.core = "v1beta1"
	late := &pivoted{world: w, inside: clientOf(t, bare)}
	late.fill("late", 1)
	late.awaitsInside("late", "md-0").Should(equal(m5(region)))
}

// A cluster that hangs holds no other up, and is annotated when it is back.
func TestClusterThatHangs(t *testing.T) {
	takeWorkload(t) // The test is not parallel: it measures a time.
	proxy, err := controlplane.NewProxy(workload.Get(t).Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	w := newWorld(t, newest)
	p := w.pivot("stuck", workload, proxy.URL())
	inside := w.namespace + "-inside"
	p.fill(inside, 1)
	w.start()
	p.awaitsInside(inside, "md-0").Should(equal(m5(region)))

	proxy.Set(controlplane.Swallow)
	for i := range 60 { // More than there are workers, when they are heard of.
		md := w.deployment(fmt.Sprintf("more-%d", i), "t")
		md.SetNamespace(inside)
		p.createIn(p.inside, md)
	}
	w.usual(region)
	w.create(w.template("t", "m5.large"))
	home := w.deployment("home", "t")
	begun := time.Now()
	w.create(home)
	w.awaits(home).Should(equal(m5(region)))
	w.g.Expect(time.Since(begun)).To(BeNumerically("<", 5*time.Second))
	proxy.Set(controlplane.Pass)
	p.awaitsInside(inside, "more-59").Should(equal(m5(region)))
}
