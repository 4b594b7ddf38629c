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

// world is one server, and what it says of itself.
type world struct {
	*WithT
	server serving.Server
	where  chan string
	ended  chan error
	stop   context.CancelFunc
}

func newWorld(t *testing.T, handle http.HandlerFunc) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{WithT: NewWithT(t), where: make(chan string, 1), ended: make(chan error, 1)}
	w.SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	w.server = serving.Server{
		Name: "pages", BindAddress: "127.0.0.1:0", Handler: handle, MaxConnections: 4, MaxHeader: 4 << 10,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		Logger: logr.New(&sink{funcr.New(func(string, string) {}, funcr.Options{}).GetSink(), w.where}),
	}
	return w
}

// sink notes where it is served.
type sink struct {
	logr.LogSink
	where chan string
}

func (s *sink) Info(_ int, said string, about ...any) {
	if said == "serving pages" {
		s.where <- about[1].(string)
	}
}

func (w *world) run(t *testing.T, beside ...func(context.Context) error) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() { w.ended <- w.server.Run(ctx, beside...) }()
	t.Cleanup(cancel)
	var where string
	w.Eventually(w.where).Should(Receive(&where))
	return where
}

// get a page by a connection of its own.
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

// A call that is under way when the server is to end is answered, and its context lives.
func TestCallsUnderWayEnd(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(to http.ResponseWriter, r *http.Request) {
		close(begun)
		<-proceed
		if r.Context().Err() == nil {
			_, _ = io.WriteString(to, "done")
		}
	})
	where := w.run(t)
	said := make(chan string, 1)
	go func() {
		body, _ := w.get("http://"+where, nil)
		said <- body
	}()
	w.Eventually(begun).Should(BeClosed())
	w.stop()
	w.Eventually(func() error { // It takes no more.
		c, err := net.Dial("tcp", where)
		if err == nil {
			_ = c.Close()
		}
		return err
	}).Should(HaveOccurred())
	close(proceed)
	w.Eventually(said).Should(Receive(Equal("HTTP/1.1 done")))
	w.Eventually(w.ended).Should(Receive(BeNil()))
}

// A certificate is read again when its files change, and HTTP/2 is spoken where asked for.
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
	w.Expect(w.server.Run(t.Context())).To(MatchError(ContainSubstring(certFile)), "there is none yet")
	issue("old.example.org")
	where := w.run(t)
	served := func() string {
		c, err := tls.Dial("tcp", where, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Which one it is is asked.
		if err != nil {
			return err.Error()
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	w.Expect(served()).To(Equal("old.example.org"))
	w.Expect(w.get("https://"+where, &tls.Config{InsecureSkipVerify: true})).To(Equal("HTTP/2.0 hello")) //nolint:gosec // As above.
	issue("new.example.org")
	w.Eventually(served).WithTimeout(time.Minute).Should(Equal("new.example.org"))
	w.stop()
	w.Eventually(w.ended).Should(Receive(BeNil()))
}

// What runs beside ends with the server, and the server with it.
func TestBeside(t *testing.T) {
	w := newWorld(t, http.NotFound)
	breaks, ended := make(chan struct{}), make(chan struct{})
	w.run(t, func(context.Context) error {
		<-breaks
		return errors.New("it broke")
	}, func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	close(breaks)
	w.Eventually(w.ended).Should(Receive(MatchError("pages: it broke")))
	w.Expect(ended).To(BeClosed())
}

// An address that is taken is an error that names who wanted it.
func TestAddressTaken(t *testing.T) {
	w := newWorld(t, http.NotFound)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	w.Expect(err).NotTo(HaveOccurred())
	defer taken.Close()
	w.server.BindAddress = taken.Addr().String()
	w.Expect(w.server.Run(t.Context())).To(MatchError(ContainSubstring("pages: listen tcp " + w.server.BindAddress)))
}

// No more connections are served than there may be.
func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, func(to http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(to, "hello") })
	w.server.MaxConnections = 1
	where := w.run(t)
	idle, err := net.Dial("tcp", where)
	w.Expect(err).NotTo(HaveOccurred())
	said := make(chan string, 1)
	go func() {
		body, _ := w.get("http://"+where, nil)
		said <- body
	}()
	w.Consistently(said, "200ms").ShouldNot(Receive())
	w.Expect(idle.Close()).To(Succeed())
	w.Eventually(said).Should(Receive(Equal("HTTP/1.1 hello")))
	w.stop()
	w.Eventually(w.ended).Should(Receive(BeNil()))
}
