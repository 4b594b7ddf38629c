package faults

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/simulated"
	"github.com/capstan-hub/capstan/watchers"
)

// applications' namespace in the fleet's clusters.
const applications = "apps"

// freshFor of the hubs here; an outage longer than it makes targets stale.
const freshFor = 3 * time.Second

// linger of connections and informers without demand.
const linger = 500 * time.Millisecond

// world is a fleet, declared in a namespace of the management cluster, and the hub
// that serves that namespace.
type world struct {
	*testing.T
	g         *WithT
	namespace string
	fleet     *simulated.Fleet
	clusters  []*simulated.Cluster
	registry  *prometheus.Registry
	clock     clock.WithTicker
	config    *rest.Config
	// blind is watchers.Timings.Blind.
	blind time.Duration
	// spread is clusters.Timings.ReleaseSpread; 100 ms if zero.
	spread time.Duration
}

// newWorld makes the fleet and declares its clusters. The hub is not started.
func newWorld(t *testing.T, o simulated.Options) *world {
	t.Helper()
	f, err := simulated.New(o)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(f.Close)
	w := &world{T: t, g: g, fleet: f, clusters: f.Clusters(), clock: clock.RealClock{}, config: management.Config()}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fleet-"}}
	g.Expect(admin.Create(t.Context(), namespace)).To(Succeed())
	w.namespace = namespace.Name
	for _, c := range w.clusters {
		w.declare(c)
	}
	return w
}

// declare creates the CAPI Cluster and its Secret.
func (w *world) declare(c *simulated.Cluster) {
	w.Helper()
	w.g.Expect(admin.Create(w.Context(), &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: c.Name()},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
	})).To(Succeed())
	w.g.Expect(admin.Create(w.Context(), w.secret(c))).To(Succeed())
}

// withdraw deletes them.
func (w *world) withdraw(c *simulated.Cluster) {
	w.Helper()
	w.g.Expect(admin.Delete(w.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: c.Name()}})).To(Succeed())
	w.g.Expect(admin.Delete(w.Context(), w.secret(c))).To(Succeed())
}

func (w *world) secret(c *simulated.Cluster) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: c.Name() + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: c.Name()},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": c.Kubeconfig()},
	}
}

// renew writes the current kubeconfig of a cluster to its Secret.
func (w *world) renew(c *simulated.Cluster) {
	w.Helper()
	s := w.secret(c)
	w.g.Expect(admin.Update(w.Context(), s)).To(Succeed())
}

// start starts a hub; the function returned ends it, and is called at the end of the
// test if not before.
func (w *world) start() (stop func()) {
	w.Helper()
	w.registry = prometheus.NewRegistry()
	h, err := hub.New(hub.Options{
		Config:        w.config,
		Namespaces:    []string{w.namespace},
		AllowLoopback: true,
		Registerer:    w.registry,
		Logger:        logr.Discard(),
		Clock:         w.clock,
		ClusterTimings: clusters.Timings{
			ProbeInterval: time.Second, ProbeTimeout: time.Second, ProbeRetry: 200 * time.Millisecond,
			Silence: time.Second, UnreachableRetry: 200 * time.Millisecond, UnreachableRetryMax: time.Second,
			AuthRetry: 500 * time.Millisecond, AuthRetryMax: time.Second,
			KindRetry: 500 * time.Millisecond, WriteDelay: 50 * time.Millisecond, Linger: linger,
			ReleaseSpread: cmp.Or(w.spread, 100*time.Millisecond),
		},
		WatcherTimings: watchers.Timings{
			FreshFor: freshFor, Check: 100 * time.Millisecond, Retry: 500 * time.Millisecond, RetryMax: time.Second,
			TransientRetry: 100 * time.Millisecond, Call: 2 * time.Second, Linger: linger, Blind: w.blind,
		},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		w.g.Expect(<-done).To(Succeed())
	}
	w.Cleanup(stop)
	return stop
}

// pipeline declares a Pipeline of app-<n> with one environment for each cluster, in
// this order.
func (w *world) pipeline(name string, app int, over ...*simulated.Cluster) *pipelinesv1.Pipeline {
	w.Helper()
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: fmt.Sprintf("app-%d", app)},
		},
	}
	for _, c := range over {
		p.Spec.Environments = append(p.Spec.Environments, pipelinesv1.Environment{
			Name: c.Name(),
			Targets: []pipelinesv1.Target{{
				Namespace:  applications,
				ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: c.Name()},
			}},
		})
	}
	w.g.Expect(admin.Create(w.Context(), p)).To(Succeed())
	return p
}

// pipelines declares one Pipeline for each cluster, of its app-0.
func (w *world) pipelines() {
	w.Helper()
	for _, c := range w.clusters {
		w.pipeline(c.Name(), 0, c)
	}
}

// kustomization declares a Pipeline that follows a kind which the clusters of the
// fleet serve and hold nothing of: one more informer.
func (w *world) kustomization(c *simulated.Cluster) {
	w.Helper()
	w.g.Expect(admin.Create(w.Context(), &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: c.Name() + "-kustomization"},
		Spec: pipelinesv1.PipelineSpec{
			AppRef: pipelinesv1.LocalAppReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Name: "none"},
			Environments: []pipelinesv1.Environment{{Name: c.Name(), Targets: []pipelinesv1.Target{{
				Namespace:  applications,
				ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: c.Name()},
			}}}},
		},
	})).To(Succeed())
}

// target returns the status of the only target of a Pipeline in a cluster.
func (w *world) target(pipeline string, c *simulated.Cluster) (pipelinesv1.TargetStatus, error) {
	p := &pipelinesv1.Pipeline{}
	if err := admin.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: pipeline}, p); err != nil {
		return pipelinesv1.TargetStatus{}, err
	}
	if env := p.Status.Environments[c.Name()]; env != nil && len(env.Targets) > 0 {
		return env.Targets[0], nil
	}
	return pipelinesv1.TargetStatus{}, fmt.Errorf("%s shows no target in %s", pipeline, c.Name())
}

// runs waits until a Pipeline shows a revision in a cluster, not stale.
func (w *world) runs(pipeline string, c *simulated.Cluster, revision string) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		target, err := w.target(pipeline, c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(target.Revision).To(Equal(revision))
		g.Expect(target.Stale).To(BeFalse())
	}).Should(Succeed(), func() string {
		target, _ := w.target(pipeline, c)
		connection, _ := w.connection(c)
		return fmt.Sprintf("%s in %s: %s; connection %s: %s: %s", pipeline, c.Name(), target.Error, connection.State, connection.Reason, connection.Message)
	})
}

// allRun is runs for every cluster's own Pipeline.
func (w *world) allRun(revision string, over ...*simulated.Cluster) {
	w.Helper()
	for _, c := range over {
		w.runs(c.Name(), c, revision)
	}
}

// staleAt waits until a Pipeline shows a revision as stale.
func (w *world) staleAt(c *simulated.Cluster, revision string) {
	w.Helper()
	w.g.Eventually(func(g Gomega) {
		target, err := w.target(c.Name(), c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(target.Revision).To(Equal(revision), "the last that was seen is kept")
		g.Expect(target.Stale).To(BeTrue())
	}).Should(Succeed(), c.Name())
}

// reaches waits until the ClusterConnection shows a state.
func (w *world) reaches(c *simulated.Cluster, state capstanv1.ConnectionState) capstanv1.ClusterConnectionStatus {
	w.Helper()
	var status capstanv1.ClusterConnectionStatus
	w.g.Eventually(func(g Gomega) {
		var err error
		status, err = w.connection(c)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.State).To(Equal(state), status.Reason+": "+status.Message)
	}).Should(Succeed(), c.Name())
	return status
}

func (w *world) connection(c *simulated.Cluster) (capstanv1.ClusterConnectionStatus, error) {
	all := &capstanv1.ClusterConnectionList{}
	if err := admin.List(w.Context(), all, client.InNamespace(w.namespace)); err != nil {
		return capstanv1.ClusterConnectionStatus{}, err
	}
	for _, one := range all.Items {
		if one.Spec.ClusterRef.Name == c.Name() {
			return one.Status, nil
		}
	}
	return capstanv1.ClusterConnectionStatus{}, fmt.Errorf("%s has no ClusterConnection", c.Name())
}

// promotions of a Pipeline, as "environment revision phase".
func (w *world) promotions(pipeline string) []string {
	w.Helper()
	all := &capstanv1.PromotionList{}
	w.g.Expect(admin.List(w.Context(), all, client.InNamespace(w.namespace))).To(Succeed())
	var found []string
	for _, p := range all.Items {
		if p.Spec.Pipeline.Name == pipeline {
			found = append(found, fmt.Sprintf("%s %s %s", p.Spec.Environment, p.Spec.Revision, p.Status.Phase))
		}
	}
	return found
}

// meter is the sum of a metric of the hub over its labels.
func (w *world) meter(name string) float64 {
	w.Helper()
	families, err := w.registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

// lists are the initial lists that the servers gave, streamed or not.
func (w *world) lists() int {
	sum := 0
	for _, c := range w.clusters {
		n := c.Counts()
		sum += int(n.Lists) + int(n.WatchLists)
	}
	return sum
}

func revision(n int) string { return strings.Join([]string{"2", fmt.Sprint(n), "0"}, ".") }
