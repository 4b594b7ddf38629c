package serving_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-hub/capstan/hub/serving"
	"github.com/capstan-hub/capstan/playground/leaks"
)

// world is one server, and its address from the log.
type world struct {
	*WithT
	server  serving.Server
	address chan string
	ended   chan error
	stop    context.CancelFunc
}

func newWorld(t *testing.T, handle http.HandlerFunc) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{WithT: NewWithT(t), address: make(chan string, 1), ended: make(chan error, 1)}
	w.SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be loaded.
	w.server = serving.Server{
		Name: "pages", BindAddress: "127.0.0.1:0", Handler: handle, MaxConnections: 4, MaxHeader: 4 << 10,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		Logger: logr.New(&sink{funcr.New(func(string, string) {}, funcr.Options{}).GetSink(), w.address}),
	}
	return w
}

// sink sends the address of the server.
type sink struct {
	logr.LogSink
	address chan string
}

func (s *sink) Info(_ int, said string, about ...any) {
	if said == "serving pages" {
		s.address <- about[1].(string)
	}
}

func (w *world) run(t *testing.T, others ...func(context.Context) error) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() { w.ended <- w.server.Run(ctx, others...) }()
	t.Cleanup(cancel)
	var address string
	w.Eventually(w.address).Should(Receive(&address))
	return address
}

// get a page over a new connection.
func (w *world) get(url string, config *tls.Config) (string, error) {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.Proto + " " + string(body), err
}

// A call that runs when the server stops is answered, and its context is not cancelled.
func TestCallsUnderWayEnd(t *testing.T) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(to http.ResponseWriter, r *http.Request) {
		close(entered)
		<-proceed
		if r.Context().Err() == nil {
			_, _ = io.WriteString(to, "done")
		}
	})
	address := w.run(t)
	said := make(chan string, 1)
	go func() {
		body, _ := w.get("http://"+address, nil)
		said <- body
	}()
	w.Eventually(entered).Should(BeClosed())
	w.stop()
	w.Eventually(func() error { // The server accepts no more connections.
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	}).Should(HaveOccurred())
	close(proceed)
	w.Eventually(said).Should(Receive(Equal("HTTP/1.1 done")))
	w.Eventually(w.ended).Should(Receive(BeNil()))
}

// A certificate is read again when its files change, and HTTP/2 is used when enabled.
func TestCertificate(t *testing.T) {
	w := newWorld(t, func(to http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(to, "hello") })
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	issue := func(host string) {
		c, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(errors.Join(os.WriteFile(certFile, c, 0o600), os.WriteFile(keyFile, key, 0o600))).To(Succeed())
	}
	w.server.CertFile, w.server.KeyFile, w.server.HTTP2 = certFile, keyFile, true
	w.Expect(w.server.Run(t.Context())).To(MatchError(ContainSubstring(certFile)), "the files do not exist yet")
	issue("old.example.org")
	address := w.run(t)
	served := func() string {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // The test reads which certificate it is.
		if err != nil {
			return err.Error()
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	w.Expect(served()).To(Equal("old.example.org"))
	w.Expect(w.get("https://"+address, &tls.Config{InsecureSkipVerify: true})).To(Equal("HTTP/2.0 hello")) //nolint:gosec // As above.
	issue("new.example.org")
	w.Eventually(served).WithTimeout(time.Minute).Should(Equal("new.example.org"))
	w.stop()
	w.Eventually(w.ended).Should(Receive(BeNil()))
}

// The other functions end with the server, and the server with them.
func TestOtherFunctions(t *testing.T) {
	w := newWorld(t, http.NotFound)
	breaks, ended := make(chan struct{}), make(chan struct{})
	w.run(t, func(context.Context) error {
		<-breaks
		return errors.New("it failed")
	}, func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	close(breaks)
	w.Eventually(w.ended).Should(Receive(MatchError("pages: it failed")))
	w.Expect(ended).To(BeClosed())
}

// An address in use is an error with the name of the server.
func TestAddressTaken(t *testing.T) {
	w := newWorld(t, http.NotFound)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	w.Expect(err).NotTo(HaveOccurred())
	defer taken.Close()
	w.server.BindAddress = taken.Addr().String()
	w.Expect(w.server.Run(t.Context())).To(MatchError(ContainSubstring("pages: listen tcp " + w.server.BindAddress)))
}

// The number of concurrent connections is limited.
func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, func(to http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(to, "hello") })
	w.server.MaxConnections = 1
	address := w.run(t)
	idle, err := net.Dial("tcp", address)
	w.Expect(err).NotTo(HaveOccurred())
	said := make(chan string, 1)
	go func() {
		body, _ := w.get("http://"+address, nil)
		said <- body
	}()
	w.Consistently(said, "200ms").ShouldNot(Receive())
	w.Expect(idle.Close()).To(Succeed())
	w.Eventually(said).Should(Receive(Equal("HTTP/1.1 hello")))
	w.stop()
	w.Eventually(w.ended).Should(Receive(BeNil()))
}
