package transport_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/clusters/transport"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
	"github.com/capstan-hub/capstan/playground/leaks"
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	os.Exit(leaks.MainAll(m.Run))
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// server is an HTTPS server with HTTP/2 that counts its TCP connections.
type server struct {
	*httptest.Server
	open, accepted atomic.Int64
}

func serve(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(handler)}
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = nil
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
			s.accepted.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *server) config(t *testing.T, token string) *kubeconfig.Config {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &kubeconfig.Config{Server: u, CAData: ca, Token: token}
}

func clientCertificate(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

type fixture struct {
	*transport.Transport
	client *http.Client
	clock  *testclock.FakeClock
	server *server
}

func connect(t *testing.T, s *server, config *kubeconfig.Config, edit func(*transport.Options)) *fixture {
	t.Helper()
	f := &fixture{clock: testclock.NewFakeClock(epoch), server: s}
	o := transport.Options{Server: config.Server, Clock: f.clock, AllowLoopback: true}
	if edit != nil {
		edit(&o)
	}
	tr, err := transport.New(o, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	tr.SetOpen(true)
	f.Transport, f.client = tr, &http.Client{Transport: tr}
	return f
}

func (f *fixture) do(ctx context.Context, method, path string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, f.server.URL+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := f.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// streams answers /watch with the lines sent to it, and else with who asks.
type streams struct{ lines chan string }

func (s streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := r.Header.Get("Authorization")
	if len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	if r.URL.Path != "/watch" {
		_, _ = io.WriteString(w, who)
		return
	}
	fmt.Fprintln(w, who)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case line, ok := <-s.lines:
			if !ok {
				return
			}
			fmt.Fprintln(w, line)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func (f *fixture) watch(ctx context.Context, t *testing.T) (*bufio.Scanner, io.Closer) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.server.URL+"/watch?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := f.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return bufio.NewScanner(response.Body), response.Body
}

// TestTokenSwapKeepsStreams: rotating a token twenty times neither ends an open
// watch nor opens a TCP connection.
func TestTokenSwapKeepsStreams(t *testing.T) {
	g := NewWithT(t)
	lines := make(chan string)
	s := serve(t, streams{lines}.ServeHTTP)
	f := connect(t, s, s.config(t, "token-0"), nil)
	scanner, _ := f.watch(t.Context(), t)
	g.Expect(scanner.Scan()).To(BeTrue())
	g.Expect(scanner.Text()).To(Equal("Bearer token-0"))
	for i := 1; i <= 20; i++ {
		token := fmt.Sprintf("token-%d", i)
		g.Expect(f.SetCredentials(s.config(t, token), kubeconfig.TokenOnly)).To(Succeed())
		_, who, err := f.do(t.Context(), http.MethodGet, "/who")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(who).To(Equal("Bearer " + token))
		lines <- token
		g.Expect(scanner.Scan()).To(BeTrue())
		g.Expect(scanner.Text()).To(Equal(token))
	}
	g.Expect(s.accepted.Load()).To(BeEquivalentTo(1))
}

// TestCertificateSwapDrains: a new client certificate is used by the next request;
// open watches stay on the old connection, which closes with the last of them.
func TestCertificateSwapDrains(t *testing.T) {
	g := NewWithT(t)
	lines := make(chan string)
	s := serve(t, streams{lines}.ServeHTTP)
	with := func(name string) *kubeconfig.Config {
		config := s.config(t, "")
		config.CertData, config.KeyData = clientCertificate(t, name)
		return config
	}
	f := connect(t, s, with("cert-0"), nil)
	scanner, body := f.watch(t.Context(), t)
	g.Expect(scanner.Scan()).To(BeTrue())
	g.Expect(scanner.Text()).To(Equal("cert-0"))
	for i := 1; i <= 5; i++ {
		name := fmt.Sprintf("cert-%d", i)
		g.Expect(f.SetCredentials(with(name), kubeconfig.ClientCert)).To(Succeed())
		_, who, err := f.do(t.Context(), http.MethodGet, "/who")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(who).To(Equal(name))
		lines <- name
		g.Expect(scanner.Scan()).To(BeTrue(), "the watch on the first certificate goes on")
	}
	g.Eventually(s.open.Load).Should(BeEquivalentTo(2), "idle generations are closed, the one with a watch is not")
	g.Expect(body.Close()).To(Succeed())
	g.Eventually(s.open.Load).Should(BeEquivalentTo(1), "the last watch gone, its connection closes")
	g.Expect(f.SetCredentials(with("x"), kubeconfig.Endpoint)).NotTo(Succeed())
}

func TestUnauthorized(t *testing.T) {
	var valid atomic.Value
	valid.Store("new")
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+string(body))
	}

	t.Run("read again and tried once more", func(t *testing.T) {
		g := NewWithT(t)
		s := serve(t, handler)
		var f *fixture
		var calls atomic.Int64
		f = connect(t, s, s.config(t, "old"), func(o *transport.Options) {
			o.AllowPatch = func(*http.Request) bool { return true }
			o.Reauthenticate = func(context.Context) {
				calls.Add(1)
				_ = f.SetCredentials(s.config(t, "new"), kubeconfig.TokenOnly)
			}
		})
		code, answer, err := f.do(t.Context(), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(code).To(Equal(http.StatusOK))
		g.Expect(answer).To(Equal("GET"))
		g.Expect(calls.Load()).To(BeEquivalentTo(1))

		// A PATCH brings its body again.
		g.Expect(f.SetCredentials(s.config(t, "old"), kubeconfig.TokenOnly)).To(Succeed())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, s.URL, strings.NewReader("body"))
		g.Expect(err).NotTo(HaveOccurred())
		response, err := f.client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		read, _ := io.ReadAll(response.Body)
		g.Expect(string(read)).To(Equal("PATCHbody"))
	})
	t.Run("rejected again: the answer stands", func(t *testing.T) {
		g := NewWithT(t)
		var requests atomic.Int64
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { requests.Add(1); handler(w, r) })
		f := connect(t, s, s.config(t, "old"), func(o *transport.Options) { o.Reauthenticate = func(context.Context) {} })
		code, _, err := f.do(t.Context(), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(code).To(Equal(http.StatusUnauthorized))
		g.Expect(requests.Load()).To(BeEquivalentTo(2))
		g.Expect(f.LastContact()).To(BeZero(), "a 401 is no contact")
	})
	t.Run("rejected for a moment: tried once more with the same credentials", func(t *testing.T) {
		g := NewWithT(t)
		var accepts atomic.Bool
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if !accepts.Load() {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
		f := connect(t, s, s.config(t, "same"), func(o *transport.Options) {
			o.Reauthenticate = func(context.Context) { accepts.Store(true) }
		})
		code, _, err := f.do(t.Context(), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(code).To(Equal(http.StatusOK))
	})
	t.Run("gate shut meanwhile: held until it opens", func(t *testing.T) {
		g := NewWithT(t)
		s := serve(t, handler)
		var f *fixture
		shut := make(chan struct{})
		f = connect(t, s, s.config(t, "old"), func(o *transport.Options) {
			o.Reauthenticate = func(context.Context) { f.SetOpen(false); close(shut) }
		})
		done := make(chan int, 1)
		go func() {
			code, _, _ := f.do(t.Context(), http.MethodGet, "/")
			done <- code
		}()
		<-shut
		g.Consistently(done, "50ms").ShouldNot(Receive())
		g.Expect(f.SetCredentials(s.config(t, "new"), kubeconfig.TokenOnly)).To(Succeed())
		f.SetOpen(true)
		g.Eventually(done).Should(Receive(Equal(http.StatusOK)))
	})
	t.Run("a probe takes it for an answer", func(t *testing.T) {
		g := NewWithT(t)
		s := serve(t, handler)
		f := connect(t, s, s.config(t, "old"), func(o *transport.Options) {
			o.Reauthenticate = func(context.Context) { t.Error("called for a probe") }
		})
		code, _, err := f.do(transport.WithProbe(t.Context()), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(code).To(Equal(http.StatusUnauthorized))
	})
}

func TestGate(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

	t.Run("parks, and passes when opened", func(t *testing.T) {
		g := NewWithT(t)
		f := connect(t, s, s.config(t, "t"), nil)
		f.SetOpen(false)
		before := s.accepted.Load()
		done := make(chan error, 10)
		for range 10 {
			go func() { _, _, err := f.do(t.Context(), http.MethodGet, "/"); done <- err }()
		}
		g.Consistently(done, "50ms").ShouldNot(Receive())
		g.Expect(s.accepted.Load()).To(Equal(before), "nothing is dialled")
		_, answer, err := f.do(transport.WithProbe(t.Context()), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer).To(Equal("ok"), "probes pass")
		f.SetOpen(true)
		for range 10 {
			g.Eventually(done).Should(Receive(BeNil()))
		}
	})
	t.Run("a context ends the wait", func(t *testing.T) {
		g := NewWithT(t)
		f := connect(t, s, s.config(t, "t"), nil)
		f.SetOpen(false)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, _, err := f.do(ctx, http.MethodGet, "/"); done <- err }()
		g.Consistently(done, "20ms").ShouldNot(Receive())
		cancel()
		g.Eventually(done).Should(Receive(MatchError(context.Canceled)))
	})
	t.Run("the end fails those who wait, those who come, and open streams", func(t *testing.T) {
		g := NewWithT(t)
		lines := make(chan string)
		s := serve(t, streams{lines}.ServeHTTP)
		f := connect(t, s, s.config(t, "t"), nil)
		scanner, _ := f.watch(t.Context(), t)
		g.Expect(scanner.Scan()).To(BeTrue())
		f.SetOpen(false)
		done := make(chan error, 1)
		go func() { _, _, err := f.do(t.Context(), http.MethodGet, "/"); done <- err }()
		g.Consistently(done, "20ms").ShouldNot(Receive())
		f.Close()
		g.Eventually(done).Should(Receive(MatchError(transport.ErrClosed)))
		g.Expect(scanner.Scan()).To(BeFalse())
		_, _, err := f.do(transport.WithProbe(t.Context()), http.MethodGet, "/")
		g.Expect(err).To(MatchError(transport.ErrClosed))
	})
}

// TestReadOnly: nothing but reading leaves the hub, and only to the server that the
// credentials are for.
func TestReadOnly(t *testing.T) {
	var seen sync.Map
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.Method, true) })
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the other server was called") })
	var refused []transport.RefusedReason
	f := connect(t, s, s.config(t, "t"), func(o *transport.Options) {
		o.Refused = func(r transport.RefusedReason) { refused = append(refused, r) }
		o.AllowPatch = func(r *http.Request) bool { return r.URL.Path == "/labels" }
	})
	for _, tc := range []struct {
		method, url string
		upgrade     bool
		reason      transport.RefusedReason
	}{
		{method: http.MethodGet, url: s.URL + "/a"},
		{method: http.MethodHead, url: s.URL + "/a"},
		{method: http.MethodPatch, url: s.URL + "/labels"},
		{method: http.MethodPatch, url: s.URL + "/a", reason: transport.RefusedWrite},
		{method: http.MethodPost, url: s.URL + "/a", reason: transport.RefusedWrite},
		{method: http.MethodPut, url: s.URL + "/a", reason: transport.RefusedWrite},
		{method: http.MethodDelete, url: s.URL + "/a", reason: transport.RefusedWrite},
		{method: http.MethodConnect, url: s.URL + "/a", reason: transport.RefusedWrite},
		{method: http.MethodGet, url: s.URL + "/exec", upgrade: true, reason: transport.RefusedUpgrade},
		{method: http.MethodGet, url: other.URL + "/a", reason: transport.RefusedHost},
		{method: http.MethodGet, url: strings.Replace(s.URL, "https", "http", 1), reason: transport.RefusedHost},
	} {
		t.Run(tc.method+" "+string(tc.reason), func(t *testing.T) {
			g := NewWithT(t)
			refused = nil
			request, err := http.NewRequestWithContext(t.Context(), tc.method, tc.url, nil)
			g.Expect(err).NotTo(HaveOccurred())
			if tc.upgrade {
				request.Header.Set("Connection", "Upgrade")
				request.Header.Set("Upgrade", "websocket")
			}
			response, err := f.client.Do(request)
			if tc.reason == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(response.Body.Close()).To(Succeed())
				return
			}
			g.Expect(err).To(MatchError(transport.ErrRefused))
			var typed *transport.RefusedError
			g.Expect(errors.As(err, &typed)).To(BeTrue())
			g.Expect(typed.Reason).To(Equal(tc.reason))
			g.Expect(refused).To(Equal([]transport.RefusedReason{tc.reason}))
		})
	}
	g := NewWithT(t)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		_, arrived := seen.Load(method)
		g.Expect(arrived).To(BeFalse())
	}
}

// TestDialler proves the policy of internal/netguard: the address that a name resolved
// to counts. Other tests prove that loopback is dialled where it is allowed.
func TestDialler(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	hosts := map[string]bool{"localhost": false, "2852039166": true}
	for _, a := range netguardtest.Loopback {
		hosts[a.Host()] = false
	}
	for _, a := range netguardtest.Forbidden {
		hosts[a.Host()] = true
	}
	for host, allowLoopback := range hosts {
		t.Run(host, func(t *testing.T) {
			g := NewWithT(t)
			config := s.config(t, "t")
			config.Server = &url.URL{Scheme: "https", Host: host + ":" + s.Listener.Addr().String()[len("127.0.0.1:"):]}
			f := connect(t, s, config, func(o *transport.Options) { o.AllowLoopback = allowLoopback })
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Server.String(), nil)
			g.Expect(err).NotTo(HaveOccurred())
			response, err := f.client.Do(request)
			if err == nil {
				response.Body.Close()
			}
			if host == "2852039166" { // some resolvers know no such name
				g.Expect(err).To(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(transport.ErrRefused))
			g.Expect(err).To(MatchError(netguard.ErrForbidden))
		})
	}
}

func TestLastContact(t *testing.T) {
	g := NewWithT(t)
	lines := make(chan string)
	var code atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			streams{lines}.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(int(code.Load()))
		_, _ = io.WriteString(w, "body")
	})
	f := connect(t, s, s.config(t, "t"), nil)
	g.Expect(f.LastContact()).To(BeZero())
	for _, tc := range []struct {
		code    int64
		contact bool
	}{{200, true}, {503, false}, {404, true}, {401, false}, {403, true}, {500, false}, {429, true}} {
		before := f.LastContact()
		f.clock.Step(time.Second)
		code.Store(tc.code)
		_, _, err := f.do(t.Context(), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		if tc.contact {
			g.Expect(f.LastContact()).To(BeTemporally("==", f.clock.Now()), "%d", tc.code)
		} else {
			g.Expect(f.LastContact()).To(Equal(before), "%d", tc.code)
		}
	}
	scanner, _ := f.watch(t.Context(), t)
	g.Expect(scanner.Scan()).To(BeTrue())
	f.clock.Step(time.Minute)
	lines <- "bookmark"
	g.Expect(scanner.Scan()).To(BeTrue())
	g.Expect(f.LastContact()).To(BeTemporally("==", f.clock.Now()))
}

// TestWatchLosesConnection: a watch that is cut, and one that gets no answer, fail
// in the words after which a reflector resumes.
func TestWatchLosesConnection(t *testing.T) {
	g := NewWithT(t)
	lines := make(chan string)
	s := serve(t, streams{lines}.ServeHTTP)
	f := connect(t, s, s.config(t, "t"), nil)
	scanner, _ := f.watch(t.Context(), t)
	g.Expect(scanner.Scan()).To(BeTrue())
	f.CloseConnections()
	g.Expect(scanner.Scan()).To(BeFalse())
	g.Expect(scanner.Err()).To(Equal(io.ErrUnexpectedEOF))
	g.Eventually(s.open.Load).Should(BeZero())

	_, _, err := f.do(t.Context(), http.MethodGet, "/who")
	g.Expect(err).NotTo(HaveOccurred(), "the next request dials anew")

	s.CloseClientConnections()
	g.Expect(s.Listener.Close()).To(Succeed())
	f.CloseConnections()
	get := func(path string) error { _, _, err := f.do(t.Context(), http.MethodGet, path); return err }
	g.Expect(utilnet.IsConnectionRefused(get("/watch?watch=true"))).To(BeTrue())

	// A failed handshake is no refused connection, unless it is a watch's.
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 this is no TLS\r\n")
			_ = c.Close()
		}
	})
	defer done.Wait()
	defer garbage.Close()
	config := s.config(t, "t")
	config.Server = &url.URL{Scheme: "https", Host: garbage.Addr().String()}
	bad := connect(t, s, config, nil)
	call := func(query string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Server.String()+query, nil)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = bad.client.Do(request) //nolint:bodyclose // there is none
		return err
	}
	g.Expect(utilnet.IsConnectionRefused(call("/"))).To(BeFalse())
	g.Expect(utilnet.IsConnectionRefused(call("/?watch=1"))).To(BeTrue())
}

// TestNoAnswer: a request without an answer raises a doubt, waits while that is
// cleared up, and is sent once more.
func TestNoAnswer(t *testing.T) {
	var drops atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if drops.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, r.Method)
	})
	var doubts atomic.Int64
	var f *fixture
	shuts := false
	f = connect(t, s, s.config(t, "t"), func(o *transport.Options) {
		o.AllowPatch = func(*http.Request) bool { return true }
		o.CheckServer = func(context.Context) {
			doubts.Add(1)
			if shuts {
				f.SetOpen(false)
			}
		}
	})
	t.Run("the server is there: sent once more", func(t *testing.T) {
		g := NewWithT(t)
		drops.Store(1)
		_, answer, err := f.do(t.Context(), http.MethodGet, "/")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer).To(Equal("GET"))
		g.Expect(doubts.Load()).To(BeEquivalentTo(1))
	})
	t.Run("once, not repeatedly", func(t *testing.T) {
		g := NewWithT(t)
		drops.Store(5)
		_, _, err := f.do(t.Context(), http.MethodGet, "/")
		g.Expect(err).To(HaveOccurred())
		g.Expect(drops.Load()).To(BeEquivalentTo(3))
	})
	t.Run("never a write", func(t *testing.T) {
		g := NewWithT(t)
		drops.Store(1)
		_, _, err := f.do(t.Context(), http.MethodPatch, "/")
		g.Expect(err).To(HaveOccurred())
		g.Expect(drops.Load()).To(BeZero())
	})
	t.Run("the server is away: held until the gate opens", func(t *testing.T) {
		g := NewWithT(t)
		drops.Store(1)
		shuts = true
		done := make(chan error, 1)
		go func() { _, _, err := f.do(t.Context(), http.MethodGet, "/"); done <- err }()
		g.Consistently(done, "50ms").ShouldNot(Receive())
		f.SetOpen(true)
		g.Eventually(done).Should(Receive(BeNil()))
	})
}

// TestLocal: the management cluster's own credentials are used as they are, with
// the same gate, guard and contact.
func TestLocal(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, streams{}.ServeHTTP)
	config := s.config(t, "")
	local := &rest.Config{Host: s.URL, BearerToken: "local", TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}}
	clock := testclock.NewFakeClock(epoch)
	tr, err := transport.NewLocal(transport.Options{Server: config.Server, Clock: clock}, local)
	g.Expect(err).NotTo(HaveOccurred())
	defer tr.Close()
	f := &fixture{Transport: tr, client: &http.Client{Transport: tr}, clock: clock, server: s}
	_, who, err := f.do(transport.WithProbe(t.Context()), http.MethodGet, "/who")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(who).To(Equal("Bearer local"))
	g.Expect(f.LastContact()).To(BeTemporally("==", epoch))
	f.SetOpen(true)
	_, _, err = f.do(t.Context(), http.MethodDelete, "/who")
	g.Expect(err).To(MatchError(transport.ErrRefused))
	scanner, _ := f.watch(t.Context(), t)
	g.Expect(scanner.Scan()).To(BeTrue())
	f.CloseConnections()
	g.Expect(scanner.Scan()).To(BeFalse())
}
