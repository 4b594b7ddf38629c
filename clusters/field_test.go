package clusters_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// serves connects a Cluster to a server of the test's own.
func (w *world) serves(name string, server *httptest.Server) *clusters.Connection {
	w.t.Helper()
	w.createCluster(name)
	w.secret(name+"-kubeconfig", "value", kubeconfigOf(w.t, server, "token"))
	w.manager.Demand(w.clusterName(name), "test")
	w.reaches(name, capstanv1.ConnectionReady, clusters.ReasonConnected)
	connection, err := w.manager.Connection(w.clusterName(name))
	w.g.Expect(err).NotTo(HaveOccurred())
	return connection
}

// request sends a GET over a connection and returns the code of the answer.
func (w *world) request(connection *clusters.Connection, path string) <-chan int {
	w.t.Helper()
	code := make(chan int, 1)
	go func() {
		request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, connection.Config().Host+path, nil)
		if err != nil {
			w.t.Error(err)
		}
		response, err := connection.HTTPClient().Do(request)
		if err != nil {
			code <- 0
			return
		}
		_ = response.Body.Close()
		code <- response.StatusCode
	}()
	return code
}

// TestUnauthorizedForAMoment: while the webhook that checks tokens is unavailable, an API
// server answers 401. A request waits until that is over. The cluster stays Ready, its open
// watches continue, and requests that wait do not shorten the time until it is AuthFailed.
func TestUnauthorizedForAMoment(t *testing.T) {
	t.Parallel()
	var rejects atomic.Bool
	watching := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") == "true":
			rw.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(rw).Flush()
			close(watching)
			<-r.Context().Done()
		case rejects.Load():
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, func(o *clusters.Options) { o.Timings.AuthRecheck = 600 * time.Millisecond })
	w.start()
	connection := w.serves("prod", server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/watch?watch=true", nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	watch, err := connection.HTTPClient().Do(request) //nolint:bodyclose // It is closed below.
	w.g.Expect(err).NotTo(HaveOccurred())
	defer watch.Body.Close()
	<-watching
	severed := make(chan error, 1)
	go func() { _, err := io.ReadAll(watch.Body); severed <- err }()

	rejects.Store(true)
	var codes []<-chan int
	for range 5 {
		codes = append(codes, w.request(connection, "/version"))
	}
	w.g.Consistently(codes[0], 500*time.Millisecond).ShouldNot(Receive(), "it waits")
	rejects.Store(false)
	for _, code := range codes {
		w.g.Eventually(code).Should(Receive(Equal(http.StatusOK)))
	}
	w.g.Expect(w.listener.of(w.clusterName("prod"))).NotTo(ContainElement(HavePrefix("Ready>")))
	w.g.Expect(severed).NotTo(Receive(), "the watch continues")

	rejects.Store(true)
	code := w.request(connection, "/version")
	w.reaches("prod", capstanv1.ConnectionAuthFailed, clusters.ReasonUnauthorized)
	w.g.Expect(code).NotTo(Receive())
}

// TestNotReadyDoesNotSeverWatches: an API server that answers 500 to /readyz works otherwise.
// Its watches may have nothing to deliver for half a minute.
func TestNotReadyDoesNotSeverWatches(t *testing.T) {
	t.Parallel()
	var notReady atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if notReady.Load() && r.URL.Path == "/readyz" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, nil)
	w.start()
	connection := w.serves("prod", server)
	notReady.Store(true)
	seen := w.reaches("prod", capstanv1.ConnectionDegraded, clusters.ReasonProbeFailing)
	w.g.Expect(seen.Message).To(ContainSubstring("500"))
	w.g.Consistently(func() capstanv1.ConnectionState {
		s, _ := w.manager.Snapshot(w.clusterName("prod"))
		return s.State
	}, time.Second).Should(Equal(capstanv1.ConnectionDegraded), "it does not become Unreachable")
	w.g.Eventually(w.request(connection, "/version")).Should(Receive(Equal(http.StatusOK)))
	notReady.Store(false)
	w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
}

// TestSlowIdentityDoesNotDelayReady: a cluster that answers probes, but not the requests for
// its version and identity.
func TestSlowIdentityDoesNotDelayReady(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	w := newWorld(t, func(o *clusters.Options) { o.Timings.ProbeTimeout = 2 * patience }) // Else it is Ready after it.
	w.start()
	w.serves("prod", server)
}

// TestHubThatCannotConnectIsShown: a hub that was restarted cannot read the Secret of a
// cluster. The ClusterConnection does not continue to show Ready.
func TestHubThatCannotConnectIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	stop := w.start()
	w.connected("prod", "")
	w.shows("cluster.prod", capstanv1.ConnectionReady, clusters.ReasonConnected)
	stop()

	o := w.options
	o.Local = rest.CopyConfig(o.Local)
	o.Local.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/secrets/prod-kubeconfig") {
				return &http.Response{StatusCode: http.StatusInternalServerError, Body: io.NopCloser(strings.NewReader("")), Header: http.Header{}, Request: r}, nil
			}
			return inner.RoundTrip(r)
		})
	})
	var err error
	w.manager, err = clusters.New(o)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.start()
	w.manager.Demand(w.clusterName("prod"), "test")
	w.reaches("prod", capstanv1.ConnectionConnecting, clusters.ReasonHubUnreadable)
	w.shows("cluster.prod", capstanv1.ConnectionConnecting, clusters.ReasonHubUnreadable)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCARotationWithoutRightToTheIdentity: credentials that may not read the namespace
// kube-system. Its server gets another CA. The cluster stays Ready.
func TestCARotationWithoutRightToTheIdentity(t *testing.T) {
	t.Parallel()
	forbid := func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") {
			rw.WriteHeader(http.StatusForbidden)
		}
	}
	server, other := httptest.NewTLSServer(http.HandlerFunc(forbid)), httptest.NewTLSServer(http.HandlerFunc(forbid))
	t.Cleanup(server.Close)
	t.Cleanup(other.Close)
	w := newWorld(t, nil)
	w.start()
	old := w.serves("prod", server)
	w.g.Expect(w.reaches("prod", capstanv1.ConnectionReady, clusters.ReasonConnected).ClusterUID).To(BeEmpty())

	config, err := clientcmd.Load(kubeconfigOf(t, server, "token"))
	w.g.Expect(err).NotTo(HaveOccurred())
	// The bundle that an operator distributes during a rotation: the old CA and another one.
	more, err := workload.Get(t).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	another, err := clientcmd.Load(more)
	w.g.Expect(err).NotTo(HaveOccurred())
	for _, c := range another.Clusters {
		config.Clusters["c"].CertificateAuthorityData = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), c.CertificateAuthorityData...)
	}
	raw, err := clientcmd.Write(*config)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.secret("prod-kubeconfig", "value", raw)
	w.g.Eventually(func() int64 { s, _ := w.manager.Snapshot(w.clusterName("prod")); return s.Epoch }).Should(BeEquivalentTo(2))
	w.g.Expect(w.listener.of(w.clusterName("prod"))).NotTo(ContainElement(HavePrefix("Ready>Connecting")))
	w.g.Expect(old.Context().Err()).NotTo(HaveOccurred(), "the old connection drains")

	// Another address may be another cluster.
	w.secret("prod-kubeconfig", "value", kubeconfigOf(t, other, "token"))
	w.g.Eventually(func() []string { return w.listener.of(w.clusterName("prod")) }).Should(ContainElement("Ready>Connecting/EndpointChanged"))
}

// TestEngagesTheNewestEpochLast: an Engage of an old epoch that takes long does not overtake
// that of the new one. It would install what has ended.
func TestEngagesTheNewestEpochLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *clusters.Options) { o.Timings.Handover = 50 * time.Millisecond })
	hold := make(chan struct{})
	var calls, under, overlaps atomic.Int32
	var last atomic.Value
	w.manager.SetAware(&aware{engage: func(ctx context.Context, _ multicluster.ClusterName) error {
		if under.Add(1) > 1 {
			overlaps.Add(1)
		}
		if calls.Add(1) == 1 {
			<-hold
		}
		last.Store(ctx)
		under.Add(-1)
		return nil
	}})
	w.start()
	old := w.connected("prod", "")
	w.selfManaged("prod", true)
	w.g.Eventually(calls.Load).Should(BeEquivalentTo(1))
	w.secret("prod-kubeconfig", "value", w.kubeconfig(w.proxy().URL()))
	w.g.Eventually(old.Context().Done()).Should(BeClosed())
	w.g.Consistently(overlaps.Load, 300*time.Millisecond).Should(BeZero())
	close(hold)
	w.g.Eventually(calls.Load).Should(BeEquivalentTo(2), func() string { return fmt.Sprint(w.listener.of(w.clusterName("prod"))) })
	w.g.Eventually(under.Load).Should(BeZero())
	ctx, _ := last.Load().(context.Context)
	w.g.Expect(ctx.Err()).NotTo(HaveOccurred(), "that of the new epoch")
}
