package egress_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/egress/egresstest"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
)

// made is a made-up host: only the proxy of a test knows where it is.
const made = "made-up.example.com:6443"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func proxy(t *testing.T, o egress.Options) *egress.Proxy {
	t.Helper()
	o.Flag = "git-proxy"
	p, err := egress.New(o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return p
}

// target is an HTTPS server with HTTP/2 and httptest's certificate, which is for example.com.
func target(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// get requests https://host:port/ over a dialer. name is the name in the server's certificate.
func get(t *testing.T, d egress.Dialer, to *httptest.Server, hostPort, name string) (string, error) {
	t.Helper()
	roots := to.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if d.Timeout == 0 {
		d.Timeout = 5 * time.Second
	}
	transport := &http.Transport{
		DialContext: d.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+hostPort+"/", http.NoBody)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// TestThrough: HTTP/2 and TLS are end to end, so a certificate of another name is refused.
func TestThrough(t *testing.T) {
	g := NewWithT(t)
	server := target(t)
	between := egresstest.Start(t, map[string]string{made: server.Listener.Addr().String()})
	d := egress.Dialer{Proxy: proxy(t, egress.Options{URL: between.URL})}
	g.Expect(get(t, d, server, made, "example.com")).To(Equal("HTTP/2.0"))
	_, err := get(t, d, server, made, "another.test")
	var certificate *tls.CertificateVerificationError
	g.Expect(errors.As(err, &certificate)).To(BeTrue(), "%v", err)
	g.Expect(between.Targets()).To(Equal([]string{made, made}))
}

// TestThroughTLS: the proxy's certificate is checked with the system's authorities and its own name, not
// with those of the target.
func TestThroughTLS(t *testing.T) {
	g := NewWithT(t)
	server := target(t)
	between := egresstest.StartTLS(t, map[string]string{made: server.Listener.Addr().String()})
	// A process reads the system's authorities once. No other test of this package uses them.
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	g.Expect(os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: between.Certificate().Raw}), 0o600)).To(Succeed())
	t.Setenv("SSL_CERT_FILE", bundle)
	g.Expect(get(t, egress.Dialer{Proxy: proxy(t, egress.Options{URL: between.URL})}, server, made, "example.com")).To(Equal("HTTP/2.0"))

	// The certificate is for 127.0.0.1 and example.com.
	named := strings.Replace(between.URL, "127.0.0.1", "localhost", 1)
	_, err := get(t, egress.Dialer{Proxy: proxy(t, egress.Options{URL: named})}, server, made, "example.com")
	g.Expect(err).To(MatchError(And(ContainSubstring("the proxy "+named+" does not make a TLS connection"), ContainSubstring("not localhost"))))
	g.Expect(between.Targets()).To(Equal([]string{made}))
}

func TestCredentials(t *testing.T) {
	g := NewWithT(t)
	server := target(t)
	between := egresstest.Start(t, map[string]string{made: server.Listener.Addr().String()})
	between.RequireUser("robot:correct-horse")
	file := filepath.Join(t.TempDir(), "credentials")
	d := egress.Dialer{Proxy: proxy(t, egress.Options{URL: between.URL, CredentialsFile: file})}

	for content, want := range map[string]string{
		"":                  "does not contain user:password",
		"canary-secret":     "does not contain user:password",
		"robot:canary-pass": "answers 407 Proxy Authentication Required: give valid credentials in the file of --git-proxy-credentials-file",
	} {
		g.Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
		_, err := get(t, d, server, made, "example.com")
		g.Expect(err).To(MatchError(And(ContainSubstring(between.URL), ContainSubstring(want), Not(ContainSubstring("canary")))))
	}
	// The file is read again for the next connection.
	g.Expect(os.WriteFile(file, []byte("robot:correct-horse\n"), 0o600)).To(Succeed())
	g.Expect(get(t, d, server, made, "example.com")).To(Equal("HTTP/2.0"))
	g.Expect(os.Remove(file)).To(Succeed())
	_, err := get(t, d, server, made, "example.com")
	g.Expect(err).To(MatchError(ContainSubstring("reading its credentials")))
}

// TestFailures: each names the proxy and what to do, and is the same text each time.
func TestFailures(t *testing.T) {
	server := target(t)
	down := egresstest.Start(t, nil)
	down.Stop()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	between := egresstest.Start(t, nil)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\ncanary")
		_ = conn.Close()
	}))
	t.Cleanup(plain.Close)
	closing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
	}))
	t.Cleanup(closing.Close)
	for name, c := range map[string]struct {
		url    string
		status int
		want   string
	}{
		"down":       {url: down.URL, want: "cannot be reached: dial: connect: connection refused; check --git-proxy"},
		"no name":    {url: "http://proxy.invalid:3128", want: "cannot be reached: "},
		"silent":     {url: "http://" + silent.Addr().String(), want: "does not answer: no answer in time"},
		"no tunnel":  {url: plain.URL, want: "does not forward bytes unchanged"},
		"closes":     {url: closing.URL, want: "it closes the connection"},
		"unknown":    {url: between.URL, want: "cannot connect to " + made + ": it answers 502 Bad Gateway"},
		"forbidden":  {url: between.URL, status: 403, want: "refuses to connect to " + made + ": it answers 403 Forbidden; allow the host there"},
		"redirected": {url: between.URL, status: 302, want: "it answers 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			between.Answer(c.status)
			d := egress.Dialer{Proxy: proxy(t, egress.Options{URL: c.url}), Timeout: time.Second}
			_, first := get(t, d, server, made, "example.com")
			_, second := get(t, d, server, made, "example.com")
			var failure *egress.Error
			g.Expect(errors.As(first, &failure)).To(BeTrue(), "%v", first)
			g.Expect(failure.Proxy).To(Equal(c.url))
			g.Expect(first).To(MatchError(And(HavePrefix("the proxy "+c.url+" "), ContainSubstring(c.want), Not(ContainSubstring("canary")))))
			g.Expect(second).To(MatchError(first.Error()))
		})
	}
}

// TestEndOfContext: a proxy that does not answer keeps no caller beyond its context.
func TestEndOfContext(t *testing.T) {
	g := NewWithT(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer silent.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			accepted <- conn
		}
	}()
	d := egress.Dialer{Proxy: proxy(t, egress.Options{URL: "http://" + silent.Addr().String()}), Timeout: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := d.DialContext(ctx, "tcp", made)
		done <- err
	}()
	conn := <-accepted
	defer conn.Close()
	cancel()
	g.Eventually(done).WithTimeout(time.Minute).Should(Receive(MatchError(context.Canceled)))
}

// TestPolicy: forbidden targets never reach the proxy, in whatever form they are written.
func TestPolicy(t *testing.T) {
	between := egresstest.Start(t, nil)
	d := egress.Dialer{Proxy: proxy(t, egress.Options{URL: between.URL}), Timeout: time.Second}
	hosts := []string{
		"metadata.google.internal", "metadata", "localhost", "a.localhost", "localhost.localdomain", "ip6-loopback", "LOCALHOST..",
		"2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "169.254.43518", "0xa9fea9fe", "169.254.169.254.", "1.2.3.4.5", "0x",
		"", "a b", "a\r\nHost: b", "exämple.com", "a/b", "a%31",
	}
	for _, a := range append(append([]netguardtest.Address{}, netguardtest.Forbidden...), netguardtest.Loopback...) {
		hosts = append(hosts, a.IP)
	}
	for _, host := range hosts {
		_, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "443"))
		// Loopback is dialled directly, and httpproxy uses no proxy for an empty host.
		if host != "" {
			NewWithT(t).Expect(err).To(MatchError(netguard.ErrForbidden), host)
		}
		NewWithT(t).Expect(err).To(HaveOccurred(), host)
	}
	NewWithT(t).Expect(between.Targets()).To(BeEmpty())
	for _, host := range []string{"example.com", "a_b.example.com", "xn--exmple-cua.com", "192.0.2.1", "2001:db8::1", "10.0.0.1", "1e100.net", "0xy", "a1"} {
		_, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "443"))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("502")), host)
	}
}

// TestExceptions: they are connected to directly, where the policy judges the address.
func TestExceptions(t *testing.T) {
	g := NewWithT(t)
	server := target(t)
	between := egresstest.Start(t, nil)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	p := proxy(t, egress.Options{URL: between.URL, NoProxy: []string{"intern.example.com", ".corp.example.com", "10.0.0.0/8", "a.example.com:8443"}})
	for hostPort, through := range map[string]bool{
		"intern.example.com:443": false, "x.corp.example.com:443": false, "corp.example.com:443": true, "10.1.2.3:6443": false,
		"11.1.2.3:6443": true, "example.com:443": true, "a.example.com:8443": false, "a.example.com:443": true,
		"localhost:443": false, "127.0.0.1:443": false, "[::1]:443": false,
	} {
		g.Expect(p.Serves(hostPort)).To(Equal(through), hostPort)
	}
	allow := egress.Dialer{Proxy: p, Policy: netguard.Policy{AllowLoopback: true}}
	g.Expect(get(t, allow, server, "127.0.0.1:"+port, "example.com")).To(Equal("HTTP/2.0"))
	_, err := get(t, egress.Dialer{Proxy: p}, server, "127.0.0.1:"+port, "example.com")
	g.Expect(err).To(MatchError(netguard.ErrForbidden))
	g.Expect(proxy(t, egress.Options{URL: between.URL, NoProxy: []string{"*"}}).Serves("example.com:443")).To(BeFalse())
	var none *egress.Proxy
	g.Expect(none.Serves("example.com:443")).To(BeFalse())
	g.Expect(none.String()).To(BeEmpty())
	g.Expect(between.Targets()).To(BeEmpty())
}

func TestOptions(t *testing.T) {
	for _, o := range []egress.Options{
		{URL: "proxy:3128"}, {URL: "socks5://proxy:1080"}, {URL: "http://"}, {URL: "http://robot:canary@proxy:3128"}, {URL: "http://robot@proxy:3128"},
		{URL: "http://proxy:3128/path"}, {URL: "http://proxy:3128?a=canary"}, {URL: "http://pro xy:3128"}, {URL: "http://a,b:3128"}, {URL: "http://proxy:canary"},
		{CredentialsFile: "/file"},
		{NoProxy: []string{""}}, {NoProxy: []string{"http://a"}}, {NoProxy: []string{"a b"}}, {NoProxy: []string{"10.0.0.0/33"}}, {NoProxy: []string{"a/8"}},
	} {
		p, err := egress.New(o)
		NewWithT(t).Expect(err).To(MatchError(Not(ContainSubstring("canary"))), "%+v", o)
		NewWithT(t).Expect(p).To(BeNil())
	}
	for given, want := range map[string]string{"": "", "http://proxy:3128": "http://proxy:3128", "https://proxy/": "https://proxy", "http://[2001:db8::1]:3128": "http://[2001:db8::1]:3128"} {
		g := NewWithT(t)
		p, err := egress.New(egress.Options{URL: given, NoProxy: []string{"*.example.com", ".example.com", "10.0.0.0/8", "2001:db8::/32", "*"}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.String()).To(Equal(want))
		g.Expect(strings.Contains(p.String(), "@")).To(BeFalse())
	}
}
