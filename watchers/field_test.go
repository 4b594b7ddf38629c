package watchers_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
	"github.com/capstan-hub/capstan/watchers/apps"
)

// olderServer makes a Cluster that leads to a server without streamed lists, as Kubernetes was
// before 1.32. list answers the list of HelmReleases.
func (w *world) olderServer(name string, list http.HandlerFunc) string {
	w.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/apis/helm.toolkit.fluxcd.io":
			_, _ = io.WriteString(rw, `{"kind":"APIGroup","apiVersion":"v1","name":"helm.toolkit.fluxcd.io","versions":[{"version":"v2"}],"preferredVersion":{"version":"v2"}}`)
		case r.URL.Path == "/apis/helm.toolkit.fluxcd.io/v2":
			_, _ = io.WriteString(rw, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"helmreleases","kind":"HelmRelease","namespaced":true}]}`)
		case !strings.HasSuffix(r.URL.Path, "/helmreleases"):
		case q.Get("sendInitialEvents") == "true":
			rw.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}`)
		case q.Get("watch") == "true":
			rw.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		case q.Get("limit") == "1":
			_, _ = io.WriteString(rw, `{"kind":"HelmReleaseList","apiVersion":"helm.toolkit.fluxcd.io/v2","metadata":{"resourceVersion":"1"},"items":[]}`)
		default:
			list(rw, r)
		}
	}))
	w.t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	w.g.Expect(err).NotTo(HaveOccurred())
	return string(w.cluster(name, raw))
}

// TestServerThatStreamsNoLists: a server that refuses streamed lists is healthy. While client-go
// makes a list instead, the cluster is not Degraded.
func TestServerThatStreamsNoLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	answer := make(chan struct{})
	listing := make(chan string, 10)
	name := w.olderServer("older", func(rw http.ResponseWriter, r *http.Request) {
		listing <- r.URL.Query().Get("resourceVersion")
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(rw, `{"kind":"HelmReleaseList","apiVersion":"helm.toolkit.fluxcd.io/v2","metadata":{"resourceVersion":"1"},"items":[]}`)
	})
	cluster := clusters.Ref{Kind: "Cluster", Namespace: w.namespace, Name: "older"}.ClusterName()
	app := w.release(cluster, "web")
	w.g.Expect(string(cluster)).To(Equal(name))
	w.use("shop", app)
	w.g.Eventually(listing).Should(Receive(BeEmpty()), "the newest state, and not any that a cache has")
	w.g.Consistently(func() capstanv1.ConnectionState {
		s, _ := w.manager.Snapshot(cluster)
		return s.State
	}, 500*time.Millisecond).Should(Equal(capstanv1.ConnectionReady))
	w.g.Expect(w.freshness(app).Reason).To(Equal(watchers.ReasonNotSynced))
	close(answer)
	w.g.Eventually(w.sight(app)).Should(Equal(absent))
}

// TestAListThatWaitsIsNotSlow: a cluster is Degraded while its own list takes long, and not while its list has
// to wait for the lists of other clusters.
func TestAListThatWaitsIsNotSlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *watchers.Options) {
		o.Lists, o.Timings.SlowList, o.Timings.ListSlot = 1, 300*time.Millisecond, patience
	})
	state := func(c multicluster.ClusterName) func() capstanv1.ConnectionState {
		return func() capstanv1.ConnectionState {
			s, _ := w.manager.Snapshot(c)
			return s.State
		}
	}
	answer := make(chan struct{})
	slow := multicluster.ClusterName(w.olderServer("slow", func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(rw, `{"kind":"HelmReleaseList","apiVersion":"helm.toolkit.fluxcd.io/v2","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	first := w.release(slow, "web")
	w.use("first", first)
	w.g.Eventually(func() string { return w.freshness(first).Reason }).Should(Equal(watchers.ReasonSlow))
	w.g.Eventually(state(slow)).Should(Equal(capstanv1.ConnectionDegraded))
	w.g.Eventually(func() (string, error) { k, err := w.reported("slow", apps.HelmRelease)(); return k.Message, err }).
		Should(ContainSubstring("takes longer than 300ms"))

	waiting := w.admin("waiting", home)
	second := w.release(waiting, "web")
	w.use("second", second)
	w.g.Eventually(func() string { return w.freshness(second).Message }).Should(ContainSubstring("waits"))
	w.g.Consistently(func() string { return w.freshness(second).Reason }, time.Second).Should(Equal(watchers.ReasonNotSynced))
	w.g.Expect(state(waiting)()).To(Equal(capstanv1.ConnectionReady))
	close(answer)
	for _, o := range []index.Object{first, second} {
		w.g.Eventually(w.sight(o)).Should(Equal(absent))
	}
	w.g.Eventually(state(slow)).Should(Equal(capstanv1.ConnectionReady))
}

// TestTenThousandLargeApplications: 10,000 applications of 8 KiB are 80 MiB. They are read one
// by one, and what is stored of them is small.
func TestTenThousandLargeApplications(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	// The same text in every item, made once: 80 MB of it are formatted slowly.
	values := `"},"spec":{"values":{"text":"` + strings.Repeat("v", 8<<10) + `"}}}`
	w.olderServer("large", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `{"kind":"HelmReleaseList","apiVersion":"helm.toolkit.fluxcd.io/v2","metadata":{"resourceVersion":"1"},"items":[`)
		for i := range 10_000 {
			if i > 0 {
				_, _ = io.WriteString(rw, ",")
			}
			_, _ = fmt.Fprintf(rw, `{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{"namespace":%q,"name":"app-%d","resourceVersion":"1`, w.namespace, i)
			_, _ = io.WriteString(rw, values)
		}
		_, _ = io.WriteString(rw, `]}`)
	})
	cluster := clusters.Ref{Kind: "Cluster", Namespace: w.namespace, Name: "large"}.ClusterName()
	app := w.release(cluster, "app-9999")
	w.use("shop", app)
	w.g.Eventually(w.sight(app), 5*patience).Should(Equal(unready("")), func() string { return w.freshness(app).Message })
	w.g.Eventually(func() (bool, error) { k, err := w.reported("large", apps.HelmRelease)(); return k.Synced, err }).Should(BeTrue())
}
