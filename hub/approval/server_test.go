package approval

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/serving"
	"github.com/capstan-hub/capstan/playground/ports"
)

// listening is a started server at a free port.
func listening(t *testing.T, o Options) (address string, stop func() error) {
	t.Helper()
	g := NewWithT(t)
	var err error
	o.BindAddress, err = ports.Free()
	g.Expect(err).NotTo(HaveOccurred())
	stop = started(t, New(o))
	g.Eventually(func() error {
		connection, err := net.Dial("tcp", o.BindAddress)
		if err == nil {
			err = connection.Close()
		}
		return err
	}).WithTimeout(10 * time.Second).Should(Succeed())
	return o.BindAddress, stop
}

func TestRunsOnEveryReplica(t *testing.T) {
	NewWithT(t).Expect((&Server{}).NeedLeaderElection()).To(BeFalse())
}

// A server that ends answers the waiting calls at once, and leaves no goroutine.
func TestStopsOrderly(t *testing.T) {
	w := newWorld(t)
	verifyNone(t)
	w.promotion(w.pipeline("slow"), 1, "1.1.0", waiting)
	address, stop := listening(t, w.options)
	done := make(chan answer, 1)
	go func() { done <- w.approve("http://"+address, "slow", "1.1.0") }()
	w.Consistently(done, time.Second).ShouldNot(Receive())
	begun := time.Now()
	w.Expect(stop()).To(Succeed())
	w.Eventually(done).Should(Receive(Equal(answer{204, "", ""})))
	w.Expect(time.Since(begun)).To(BeNumerically("<", patience-time.Second))
}

func TestAddressInUse(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	err = New(Options{BindAddress: listener.Addr().String(), Logger: logr.Discard()}).Start(t.Context())
	g.Expect(err).To(MatchError(And(ContainSubstring("promotion hook"), ContainSubstring("address already in use"))))
}

func TestHealth(t *testing.T) {
	g := NewWithT(t)
	recorder := httptest.NewRecorder()
	New(Options{Logger: logr.Discard()}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	g.Expect(recorder.Code).To(Equal(200))
	g.Expect(recorder.Body.String()).To(Equal("ok"))
}

// A certificate that is replaced on disk is served without a restart.
func TestTLS(t *testing.T) {
	g := NewWithT(t)
	verifyNone(t)
	dir := t.TempDir()
	cert, private := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(name string) {
		certPEM, keyPEM := certificate(t, name)
		g.Expect(os.WriteFile(private, keyPEM, 0o600)).To(Succeed())
		g.Expect(os.WriteFile(cert, certPEM, 0o600)).To(Succeed())
	}
	write("first")
	address, stop := listening(t, Options{CertFile: cert, KeyFile: private, Logger: logr.Discard()})
	served := func() (string, error) {
		connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return "", err
		}
		defer func() { _ = connection.Close() }()
		return connection.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
	}
	g.Eventually(served).WithTimeout(10 * time.Second).Should(Equal("first"))
	write("second")
	g.Eventually(served).WithTimeout(30 * time.Second).Should(Equal("second"))
	_, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}) //nolint:gosec // The server must refuse it.
	g.Expect(err).To(HaveOccurred())
	g.Expect(stop()).To(Succeed())
}

func TestTLSWithoutCertificate(t *testing.T) {
	err := New(Options{BindAddress: "127.0.0.1:0", CertFile: "/none/tls.crt", KeyFile: "/none/tls.key", Logger: logr.Discard()}).Start(t.Context())
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("/none/tls.crt")))
}

func certificate(t *testing.T, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	g := NewWithT(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	rawKey, err := x509.MarshalECPrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})
}

// Calls above the number of slots are refused, not queued.
func TestBusy(t *testing.T) {
	w := newWorld(t)
	s := New(w.options)
	for range maxCalls {
		s.slots <- struct{}{}
	}
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/approval/a/b/c/d", nil))
	w.Expect(recorder.Code).To(Equal(503))
	w.Expect(recorder.Header().Get("Retry-After")).To(Equal(busyFor))
	<-s.slots
	recorder = httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/approval/a/b/c/d", nil))
	w.Expect(recorder.Code).To(Equal(404), "a slot was given back")
	w.Expect(s.slots).To(HaveLen(maxCalls - 1))
}

// Clients that send their bodies slowly hold connections, but no slots.
func TestSlowBodiesHoldNoSlot(t *testing.T) {
	w := newWorld(t)
	address, _ := listening(t, w.options)
	for range maxCalls + 10 {
		connection, err := net.Dial("tcp", address)
		w.Expect(err).NotTo(HaveOccurred())
		defer connection.Close()
		_, err = fmt.Fprint(connection, "POST /promotion/a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
		w.Expect(err).NotTo(HaveOccurred())
	}
	w.pipeline("prompt")
	w.Consistently(func() int { return w.approve("http://"+address, "prompt", "1.1.0").Code }).WithTimeout(2 * time.Second).Should(Equal(422))
}

// Large bodies are read a few at a time, so that their memory is bounded.
func TestLargeBodiesAreCounted(t *testing.T) {
	w := newWorld(t)
	s := New(w.options)
	post := func(size int) int {
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/promotion/a/b/c", strings.NewReader(strings.Repeat("x", size))))
		return recorder.Code
	}
	w.Expect(post(smallBody)).To(Equal(404))
	w.Expect(post(smallBody + 1)).To(Equal(404))
	w.Expect(post(MaxBody)).To(Equal(404))
	w.Expect(post(MaxBody + 1)).To(Equal(413))
	w.Expect(s.large).To(BeEmpty(), "each place was given back")
	for range maxLarge {
		s.large <- struct{}{}
	}
	w.Expect(post(smallBody)).To(Equal(404))
	w.Expect(post(smallBody + 1)).To(Equal(503))
}

// The server closes the connection of a client that sends slowly, or a header that is too large.
func TestSlowAndLargeCallers(t *testing.T) {
	g := NewWithT(t)
	verifyNone(t)
	address, _ := listening(t, Options{Logger: logr.Discard()})
	connection, err := net.Dial("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	defer connection.Close()
	_, err = fmt.Fprint(connection, "POST /approval/a/b/c/d HTTP/1.1\r\nHost: x\r\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(connection.SetReadDeadline(time.Now().Add(serving.HeaderTimeout + 5*time.Second))).To(Succeed())
	_, err = connection.Read(make([]byte, 1024))
	g.Expect(err).NotTo(MatchError(os.ErrDeadlineExceeded), "the server has cut it off")

	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+address+"/", nil)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("X-Large", strings.Repeat("x", 2*maxHeader))
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(response.StatusCode).To(Equal(431))
}

// N10: of concurrent approvals of one caller, one is recorded. The others are repetitions.
func TestTwoApprovalsAtOnce(t *testing.T) {
	w := newWorld(t)
	promotion := w.promotion(w.pipeline("twice"), 1, "1.1.0", waiting)
	w.becomes(promotion, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
	url := w.serve()
	path := ApprovalPath(w.ns, "twice", "prod", "1.1.0")
	const callers = 6
	codes := make(chan int, callers)
	for i := range callers {
		headers := Sign(key, http.MethodPost, path, time.Now().Add(time.Duration(i)*time.Second), nil)
		go func() { codes <- w.post(url, path, headers, "").Code }()
	}
	got := map[int]int{}
	for range callers {
		got[<-codes]++
	}
	w.Expect(got).To(Equal(map[int]int{204: callers}))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	w.Expect(promotion.Labels).To(HaveLen(2), "the label of the Pipeline, and one signature")
}
