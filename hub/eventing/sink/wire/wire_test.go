package wire_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
)

// TestForbiddenAddresses proves the policy of internal/netguard for the two ways in which
// sinks connect, the dialer and the HTTP client, also for a proxy: every forbidden address
// is refused whatever the option is, and loopback only where it is not allowed.
func TestForbiddenAddresses(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	get := func(host string, o wire.HTTPOptions) error {
		client := wire.HTTPClient(o)
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", nil)
		g.Expect(err).NotTo(HaveOccurred(), host)
		_, err = wire.Do(client, request, now)
		return err
	}
	refused := func(a netguardtest.Address, allow bool) {
		_, err := wire.Dialer(allow).DialContext(t.Context(), "tcp", a.HostPort("1"))
		g.Expect(err).To(MatchError(netguard.ErrForbidden), a.IP)
		for _, err := range []error{
			get(a.HostPort("1"), wire.HTTPOptions{AllowLoopback: allow}),
			get("broker.example.com", wire.HTTPOptions{AllowLoopback: allow, Proxy: &url.URL{Scheme: "http", Host: a.HostPort("1")}}),
		} {
			g.Expect(sink.Of(err).Class).To(Equal(sink.Unavailable), "%s: %v", a.IP, err)
			g.Expect(sink.Of(err).Code).To(Equal(sink.CodeForbiddenAddress), "%s: %v", a.IP, err)
			g.Expect(err).To(MatchError(And(ContainSubstring(a.Reason), ContainSubstring("use another address"))), a.IP)
		}
	}
	for _, a := range netguardtest.Forbidden {
		refused(a, false)
		refused(a, true)
	}
	for _, a := range netguardtest.Loopback {
		refused(a, false)
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	g.Expect(get(host, wire.HTTPOptions{AllowLoopback: true})).To(Succeed())
	conn, err := wire.Dialer(true).DialContext(t.Context(), "tcp", host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conn.Close()).To(Succeed())
}

// TestTheTLSConfigurationIsNotChanged: a ping may copy it while the first request is sent.
func TestTheTLSConfigurationIsNotChanged(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	client := wire.HTTPClient(wire.HTTPOptions{TLS: secure, AllowLoopback: true})
	t.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = wire.Do(client, request, clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(secure.NextProtos).To(BeEmpty())
}

// TestRetryAfter: a broker gives the delay in seconds or as a date.
func TestRetryAfter(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "9": 9 * time.Second, now.Now().UTC().Add(time.Minute).Format(http.TimeFormat): time.Minute, "99999": time.Hour,
	} {
		answer := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {value}}}
		g.Expect(sink.Of(wire.StatusError("broker", answer, now)).RetryAfter).To(Equal(want), value)
	}
}
