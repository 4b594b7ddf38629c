package clusters_test

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// calls counts the requests for single ClusterConnections.
type calls struct {
	http.RoundTripper
	mu     sync.Mutex
	counts map[string]int
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, object, is := strings.Cut(r.URL.Path, "/clusterconnections"); is && (object != "" || r.Method == http.MethodPost) {
		c.mu.Lock()
		c.counts[r.Method]++
		c.mu.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

func (c *calls) now() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// TestRequestsForAClusterConnection: a new one takes two, and one that an earlier hub has left
// takes none while it is as it should be.
func TestRequestsForAClusterConnection(t *testing.T) {
	t.Parallel()
	counted := &calls{counts: map[string]int{}}
	w := newWorld(t, func(o *clusters.Options) {
		o.Timings.WriteDelay = 5 * time.Second // The cluster is Ready before the first write.
		o.Local.Wrap(func(next http.RoundTripper) http.RoundTripper {
			counted.RoundTripper = next
			return counted
		})
	})
	w.createCluster("prod")
	w.secret("prod-kubeconfig", "value", w.kubeconfig(""))
	w.manager.Demand(w.clusterName("prod"), "test")
	stop := w.start()
	shown := w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	stop()
	w.g.Expect(counted.now()).To(Equal(map[string]int{http.MethodPost: 1, http.MethodPatch: 1}))

	var err error
	w.manager, err = clusters.New(w.options)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.manager.Demand(w.clusterName("prod"), "test")
	w.start()
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Consistently(counted.now, "6s").Should(Equal(map[string]int{http.MethodPost: 1, http.MethodPatch: 1}))
	w.g.Expect(w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected).ResourceVersion).To(Equal(shown.ResourceVersion))
}

// An Event reports that a new cluster is connected. A start of the hub has none for each cluster
// that was there before.
func TestEventsOfFirstConnections(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{
		"only the last state is written":        brisk().WriteDelay,
		"the state before Ready is written too": time.Microsecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eventsOfFirstConnections(t, delay)
		})
	}
}

func eventsOfFirstConnections(t *testing.T, delay time.Duration) {
	t.Helper()
	w := newWorld(t, func(o *clusters.Options) { o.Timings.WriteDelay = delay })
	w.createCluster("old")
	w.secret("old-kubeconfig", "value", w.kubeconfig(""))
	next := time.Now().Truncate(time.Second).Add(time.Second) // Times of creation are in seconds.
	w.g.Eventually(time.Now).Should(BeTemporally(">", next))
	var err error
	w.manager, err = clusters.New(w.options)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.start()
	w.manager.Demand(w.clusterName("old"), "test")
	w.shows("cluster.old", capstanv1.ConnectionReady, clusters.ReasonConnected)

	w.g.Eventually(time.Now).Should(BeTemporally(">", next.Add(time.Second)))
	w.createCluster("new")
	w.secret("new-kubeconfig", "value", w.kubeconfig(""))
	w.manager.Demand(w.clusterName("new"), "test")
	w.shows("cluster.new", capstanv1.ConnectionReady, clusters.ReasonConnected)
	w.g.Eventually(w.recorder.Events).Should(Receive(Equal("Normal Ready Connected: connected")))
	w.g.Expect(w.recorder.Events).NotTo(Receive())
}
