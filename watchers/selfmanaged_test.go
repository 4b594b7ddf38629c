package watchers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/watchers"
)

var machineDeployment = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineDeployment"}

func newMachineDeployment(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec": map[string]any{
			"clusterName": "c", "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec": map[string]any{
					"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"},
					"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "x"},
				},
			},
		},
	}}
	u.SetGroupVersionKind(machineDeployment)
	return u
}

// The source of controllers that act in self-managed clusters: a cluster without the kind's
// CRD delays no other, and delivers when the CRD is installed. multicluster-runtime's own
// source would wait for it under the controller's lock. Only clusters for which SourcesIn is
// true are read, and in the management cluster only Options.Namespaces.
func TestSourceDoesNotWaitForAClusterWithoutTheKind(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	lacking, err := controlplane.Start(controlplane.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = lacking.Stop() })

	scheme := runtime.NewScheme()
	g.Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	g.Expect(capstanv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(home.Get(t).Config(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	const namespace = "self-managed"
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	for name, of := range map[string]*controlplane.ControlPlane{"lacking": lacking, "having": home.Get(t)} {
		raw, err := of.Kubeconfig("")
		g.Expect(err).NotTo(HaveOccurred())
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
			"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{clusters.SelfManagedLabel: "true"}},
			"spec":     map[string]any{"controlPlaneEndpoint": map[string]any{"host": "127.0.0.1", "port": int64(6443)}},
		}}
		g.Expect(c.Create(t.Context(), u)).To(Succeed())
		g.Expect(c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": raw}})).To(Succeed())
	}
	g.Expect(c.Create(t.Context(), newMachineDeployment("before"))).To(Succeed())
	t.Cleanup(func() { _ = c.Delete(context.Background(), newMachineDeployment("before")) })

	mgr, err := ctrl.NewManager(home.Get(t).Config(), ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	connections, err := clusters.New(clusters.Options{Local: home.Get(t).Config(), Namespaces: []string{namespace}, AllowLoopback: true})
	g.Expect(err).NotTo(HaveOccurred())
	watcher := watchers.New(watchers.Options{
		Clusters: connections, Index: index.New(), Kinds: kinds, Wake: (&wakes{}).add,
		SourcesIn: connections.SelfManaged, Namespaces: []string{namespace},
		Timings: watchers.Timings{Check: 50 * time.Millisecond, Retry: 300 * time.Millisecond, Linger: 300 * time.Millisecond},
	})
	connections.AddListener(watcher)
	multi, err := mcmanager.WithMultiCluster(mgr, connections)
	g.Expect(err).NotTo(HaveOccurred())
	connections.SetAware(multi)
	g.Expect(mgr.Add(connections)).To(Succeed())
	g.Expect(mgr.Add(watcher)).To(Succeed())
	seen := &reconciled{}
	controller, err := mccontroller.New("self-managed", multi, mccontroller.Options{Reconciler: seen, SkipNameValidation: ptr.To(true)})
	g.Expect(err).NotTo(HaveOccurred())
	from := watcher.Source(machineDeployment.GroupKind(), mchandler.TypedEnqueueRequestForObject[client.Object]())
	g.Expect(controller.MultiClusterWatch(from)).To(Succeed())
	local, _, err := from.ForCluster(clusters.LocalName, mgr)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(controller.Watch(local)).To(Succeed())
	here := newMachineDeployment("here")
	here.SetNamespace(namespace)
	g.Expect(c.Create(t.Context(), here)).To(Succeed())
	t.Cleanup(func() { _ = c.Delete(context.Background(), here) })

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- multi.Start(ctx) }()
	defer func() {
		cancel()
		g.Eventually(ended).Should(Receive(BeNil()))
	}()

	const having, without = multicluster.ClusterName("Cluster/self-managed/having"), multicluster.ClusterName("Cluster/self-managed/lacking")
	g.Eventually(seen.has(string(having), "before")).Should(BeTrue(), "what was there")
	g.Eventually(func() capstanv1.ConnectionState {
		s, _ := connections.Snapshot(without)
		return s.State
	}).Should(Equal(capstanv1.ConnectionDegraded), "the other one is engaged, and lacks the kind")
	g.Expect(c.Create(t.Context(), newMachineDeployment("after"))).To(Succeed())
	t.Cleanup(func() { _ = c.Delete(context.Background(), newMachineDeployment("after")) })
	g.Eventually(seen.has(string(having), "after")).Should(BeTrue(), "a live one")

	reader := watcher.Reader(having)
	got := newMachineDeployment("")
	// Objects are delivered before the Reader is synced.
	g.Eventually(func() error {
		return reader.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "after"}, got)
	}).Should(Succeed())
	g.Expect(got.GetName()).To(Equal("after"))
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(machineDeployment)
	g.Eventually(func() error { return reader.List(t.Context(), all, client.InNamespace("default")) }).Should(Succeed())
	g.Expect(all.Items).To(HaveLen(2))
	err = watcher.Reader(without).Get(t.Context(), client.ObjectKey{Name: "x"}, got)
	g.Expect(err).To(MatchError(watchers.ErrNotSynced))
	var unsynced *watchers.NotSyncedError
	g.Expect(errors.As(err, &unsynced)).To(BeTrue())
	g.Expect(unsynced).To(Equal(&watchers.NotSyncedError{
		Kind: machineDeployment.GroupKind(), Cluster: without, Demanded: true,
		Reason: watchers.ReasonNotInstalled, Message: unsynced.Message,
	}))
	g.Expect(err).To(MatchError(ContainSubstring("install its CRD there")))

	g.Eventually(seen.has(string(clusters.LocalName), "here")).Should(BeTrue(), "of the management cluster")
	g.Eventually(func() error { return watcher.Reader(clusters.LocalName).List(t.Context(), all) }).Should(Succeed())
	g.Expect(all.Items).To(HaveLen(1), "of SourceNamespace alone")
	g.Expect(all.Items[0].GetName()).To(Equal("here"))

	seen.forget()
	g.Expect(c.Delete(t.Context(), newMachineDeployment("after"))).To(Succeed())
	g.Eventually(seen.has(string(having), "after")).Should(BeTrue(), "a deletion")

	_, err = envtest.InstallCRDs(lacking.Config(), envtest.CRDInstallOptions{Paths: controlplane.CRDs("cluster-api")})
	g.Expect(err).NotTo(HaveOccurred())
	late, err := client.New(lacking.Config(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(late.Create(t.Context(), newMachineDeployment("late"))).To(Succeed())
	g.Eventually(seen.has(string(without), "late")).Should(BeTrue(), "the kind came, and is delivered")

	pivotedNoMore := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster"}}
	pivotedNoMore.SetNamespace(namespace)
	pivotedNoMore.SetName("having")
	g.Expect(c.Patch(t.Context(), pivotedNoMore, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`)))).To(Succeed())
	g.Eventually(func() bool {
		err := reader.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "before"}, got)
		return errors.As(err, &unsynced) && !unsynced.Demanded
	}).Should(BeTrue(), "SourcesIn says no")
	g.Eventually(func() error {
		return watcher.Reader(without).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "late"}, got)
	}).Should(Succeed(), "the other is still read")
}
