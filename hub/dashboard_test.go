package hub_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/hub/dashboard"
	"github.com/capstan-hub/capstan/playground/nats"
	"github.com/capstan-hub/capstan/playground/ports"
)

// freeAddress of this machine.
func freeAddress(g *WithT) string {
	address, err := ports.Free()
	g.Expect(err).NotTo(HaveOccurred())
	return address
}

// startHub starts a hub, which stops at the end of the test.
func startHub(t *testing.T, o hub.Options) {
	t.Helper()
	g := NewWithT(t)
	h, err := hub.New(o)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Start(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		g.Expect(<-done).To(Succeed())
	})
}

// What the hub finds of event backends is on its dashboard, in the words of the status;
// and the page about it says which of its parts are served where.
func TestBackendsOnTheDashboard(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(eventsLimit)
	server, err := nats.Start(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Stop)
	cfg := withAWS.Get(t).Config()
	c, err := client.New(cfg, client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	const ns = "backends"
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
	address, discovery := freeAddress(g), freeAddress(g)
	startHub(t, hub.Options{
		Config: cfg, Namespaces: []string{ns}, Registerer: prometheus.NewRegistry(), Logger: logr.Discard(),
		Eventing:  hub.Eventing{NATSURL: server.URL(), APIBindAddress: discovery, AllowLoopback: true},
		Dashboard: hub.Dashboard{BindAddress: address, Auth: dashboard.AuthNone, Version: "v1.2.3"},
	})

	page := func(path string) string {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return string(body)
	}
	markup := regexp.MustCompile(`<[^>]*>`)
	// shown is the entry of a backend, as it is read.
	shown := func(name string) func() string {
		return func() string {
			_, entry, _ := strings.Cut(page("/backends"), `<tr id="backend/`+ns+"/"+name+`"`)
			_, entry, _ = strings.Cut(entry, ">")
			entry, _, _ = strings.Cut(entry, `<tr id="backend/`)
			return strings.Join(strings.Fields(markup.ReplaceAllString(entry, " ")), " ")
		}
	}
	configure := func(name, spec string) {
		// The hub writes status and record of the object at any time.
		g.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			b := &eventingv1.EventingBackend{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			err := c.Get(t.Context(), client.ObjectKeyFromObject(b), b)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			b.Spec = eventingv1.EventingBackendSpec{}
			g.Expect(yaml.UnmarshalStrict([]byte(spec), &b.Spec)).To(Succeed())
			if err != nil {
				return c.Create(t.Context(), b)
			}
			return c.Update(t.Context(), b)
		})).To(Succeed())
	}

	configure("bus", "{type: nats, config: [{maxInFlightMessages: 10}]}")
	g.Eventually(shown("bus")).Should(And(HavePrefix("backends/bus nats Ready "),
		ContainSubstring("Backend Ready is True: Backend ready"),
		ContainSubstring("Publisher Proxy Ready is True: Publisher proxy deployment ready"),
		ContainSubstring("Subscription Controller Ready is True: Subscription controller started, publish-only backend"),
		MatchRegexp(`\bReady is True: Backend ready \(since`), ContainSubstring("EventingReady the backend of type nats is ready")))

	// The proposal's mistakes, with its words; a backend that never was right is used for nothing.
	configure("mistaken", `{type: nats, config: [{maxInFlightMessages: "ten"}, {foo: "bar"}]}`)
	g.Eventually(shown("mistaken")).Should(And(HavePrefix("backends/mistaken nats Invalid "),
		ContainSubstring("maxInFlightMessages : should be of type int ten invalid-data-type-error"),
		ContainSubstring("foo : config does not exist for backend type nats bar unsupported-config-error"),
		ContainSubstring("Backend Ready is False: The provided spec.config has validation errors, maxInFlightMessages: should be of type int (since"),
		ContainSubstring("Publisher Proxy Ready is False: Publisher proxy deployment not ready, there was no valid configuration since the hub started"),
		ContainSubstring("Subscription Controller Ready is False: Subscription controller not ready"),
		ContainSubstring("Warning: InvalidConfig")))
	g.Expect(page("/backends")).To(And(ContainSubstring("2 EventingBackends"), MatchRegexp(`(?s)id="backend/backends/mistaken".*id="backend/backends/bus"`)), "worst first")

	// One that was right stays in use when it is made wrong, and it is said which.
	configure("bus", `{type: http, config: [{foobar: 1}]}`)
	g.Eventually(shown("bus")).Should(And(HavePrefix("backends/bus http Invalid "), ContainSubstring("The hub still uses its last valid configuration, of type nats."),
		ContainSubstring("foobar : config does not exist for backend type http 1 unsupported-config-error"),
		ContainSubstring("; the last good configuration is in use"), ContainSubstring("Publisher Proxy Ready is True")))
	configure("mistaken", "{type: nats, config: [{maxInFlightMessages: 10}]}")
	g.Eventually(shown("mistaken")).Should(And(HavePrefix("backends/mistaken nats Ready "), Not(ContainSubstring("unsupported-config-error"))))

	g.Expect(page("/about")).To(And(ContainSubstring("v1.2.3"), ContainSubstring("leader: it connects to the clusters"), ContainSubstring("<dd>only "+ns+"</dd>"),
		ContainSubstring(fmt.Sprintf("/backend and /schemas at %s", discovery)),
		MatchRegexp("<dt>Promotion hook</dt><dd>not served</dd>"), MatchRegexp("<dt>Instances</dt><dd>disabled: there is no AWS configuration")))
}

// A replica that waits for the lease shows on its dashboard that the lease has expired: the
// other replica has not renewed it for an hour. This one waits for its whole duration first.
func TestStandbyShowsThatTheLeaseHasExpired(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(eventsLimit)
	cfg := withAWS.Get(t).Config()
	c, err := client.New(cfg, client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	const ns = "leaderless"
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
	renewed := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	g.Expect(c.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: hub.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](600), AcquireTime: &renewed, RenewTime: &renewed,
		},
	})).To(Succeed())
	address := freeAddress(g)
	startHub(t, hub.Options{
		Config: cfg, Namespaces: []string{ns}, LeaderElect: true, LeaderElectionNamespace: ns, LeaderElectionLease: 10 * time.Minute,
		Registerer: prometheus.NewRegistry(), Logger: logr.Discard(),
		Dashboard: hub.Dashboard{BindAddress: address, Auth: dashboard.AuthNone},
	})
	g.Eventually(func() (string, error) {
		response, err := http.Get("http://" + address + "/")
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}).Should(And(ContainSubstring("No replica leads at present"), ContainSubstring(renewed.UTC().Format(time.RFC3339)[:16])))
}
