package hub_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/playground/aws"
)

// watchCounter counts the watches that are open at an API server, by kind. It stands in
// the transport of everything that a hub makes of its rest.Config.
type watchCounter struct {
	mu     sync.Mutex
	locked struct {
		open map[string]int
		// most of them that were open at one time.
		most map[string]int
	}
}

func newWatchCounter() *watchCounter {
	c := &watchCounter{}
	c.locked.open, c.locked.most = map[string]int{}, map[string]int{}
	return c
}

// resource is the path of a watch without the version and the namespace: the same kind in
// two namespaces, or two versions, is watched twice.
var resource = regexp.MustCompile(`^/apis?/(?:([^/]+\.[^/]+|apps|batch)/)?v[^/]+/(?:namespaces/[^/]+/)?([a-z]+)$`)

// kindOf a request's watch; empty when it is none. A watch of metadata alone is told apart.
func (c *watchCounter) kindOf(r *http.Request) string {
	if r.URL.Query().Get("watch") == "" {
		return ""
	}
	found := resource.FindStringSubmatch(r.URL.Path)
	if found == nil {
		return r.URL.Path
	}
	kind := found[2]
	if found[1] != "" {
		kind += "." + found[1]
	}
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		kind += " (metadata)"
	}
	return kind
}

func (c *watchCounter) add(kind string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked.open[kind] += n
	c.locked.most[kind] = max(c.locked.most[kind], c.locked.open[kind])
}

// most watches that were open at one time, by kind.
func (c *watchCounter) most() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.locked.most)
}

func (c *watchCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return &countingTransport{counter: c, next: next}
}

// countingTransport reports the watches that go through it.
type countingTransport struct {
	counter *watchCounter
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := t.counter.kindOf(r)
	if kind == "" {
		return t.next.RoundTrip(r)
	}
	t.counter.add(kind, 1)
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.counter.add(kind, -1)
		return response, err
	}
	response.Body = &closing{ReadCloser: response.Body, closed: sync.OnceFunc(func() { t.counter.add(kind, -1) })}
	return response, nil
}

// WrappedRoundTripper lets client-go close idle connections.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// closing is a body of which it is known when it ends.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c *closing) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if err != nil {
		c.closed()
	}
	return n, err
}

func (c *closing) Close() error {
	c.closed()
	return c.ReadCloser.Close()
}

// A hub with all of its parts watches each kind of the management cluster once, whether it
// leads or stands by: the annotator, instance state, the dashboard and the hub's own cache
// read the same watches.
//
// One kind is an exception, and it is named here: connections read the metadata of
// Clusters, a layer below the watchers, which read their spec.
func TestEachKindIsWatchedOnce(t *testing.T) {
	// What each part of a leading hub waits for before the watches are counted.
	const infrastructure = ".infrastructure.cluster.x-k8s.io"
	leads := []string{
		"pipelines.pipelines.weave.works", "promotions.capstan.dev", "clusterconnections.capstan.dev", "eventingbackends.eventing.kyma-project.io",
		"events.events.k8s.io", "clusters.cluster.x-k8s.io (metadata)", "clusters.cluster.x-k8s.io",
		"machinedeployments.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "machinepools.cluster.x-k8s.io",
		"awsmachines" + infrastructure, "awsmachinepools" + infrastructure, "awsmachinetemplates" + infrastructure,
		"awsmanagedmachinepools" + infrastructure, "rosamachinepools" + infrastructure, "awsclusters" + infrastructure,
		"awsclusterroleidentities" + infrastructure,
	}
	standsBy := []string{
		"pipelines.pipelines.weave.works", "promotions.capstan.dev", "clusterconnections.capstan.dev", "eventingbackends.eventing.kyma-project.io",
		"events.events.k8s.io", "clusters.cluster.x-k8s.io (metadata)", "clusters.cluster.x-k8s.io",
		"machinedeployments.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "machinepools.cluster.x-k8s.io",
		"awsmachines" + infrastructure, "awsmachinepools" + infrastructure, "awsclusters" + infrastructure,
		"awsmanagedmachinepools" + infrastructure, "rosamachinepools" + infrastructure, "awsclusterroleidentities" + infrastructure,
	}
	plane := withAWS.Get(t)
	cloud, err := aws.Start(aws.Options{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cloud.Stop)
	for name, value := range cloud.Env() {
		t.Setenv(name, value)
	}
	admin, err := client.New(plane.Config(), client.Options{Scheme: hub.Scheme()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	holdLease(t, NewWithT(t), admin)
	t.Cleanup(func() {
		NewWithT(t).Expect(admin.Delete(context.Background(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: hub.LeaseName}})).To(Succeed())
	})

	for name, want := range map[string][]string{"leads": leads, "stands by": standsBy} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			counter := newWatchCounter()
			config := rest.CopyConfig(plane.Config())
			config.Wrap(counter.wrap)
			loaded, err := awsconfig.Load(t.Context(), awsconfig.Options{})
			g.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(loaded.Close)
			h, err := hub.New(hub.Options{
				Config: config, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(), CloneDir: t.TempDir(),
				LeaderElect: name == "stands by", LeaderElectionNamespace: metav1.NamespaceDefault,
				AWS: loaded, Annotator: hub.Annotator{AWS: loaded},
				Hook:      hub.Hook{BindAddress: "127.0.0.1:0"},
				Dashboard: hub.Dashboard{BindAddress: "127.0.0.1:0", Auth: dashboard.AuthNone},
			})
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.Start(ctx) }()
			defer func() {
				cancel()
				g.Expect(<-ended).To(Succeed())
			}()
			g.Eventually(func() []string { return slices.Collect(maps.Keys(counter.most())) }, eventsLimit).Should(ContainElements(want))
			// A second watch of a kind may begin a moment after the first.
			g.Consistently(func(g Gomega) {
				for kind, n := range counter.most() {
					g.Expect(n).To(Equal(1), "%s are watched %d times", kind, n)
				}
			}).Should(Succeed())
			if name == "stands by" {
				g.Expect(counter.most()).NotTo(HaveKey("awsmachinetemplates" + infrastructure))
			}
		})
	}
}
