package dashboard

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// authority writes a certificate for this machine and its key, and returns a pool that
// trusts it.
func authority(g *WithT, folder, name string) (trust *x509.CertPool, cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	secret, err := x509.MarshalECPrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	cert, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	g.Expect(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600)).To(Succeed())
	parsed, err := x509.ParseCertificate(raw)
	g.Expect(err).NotTo(HaveOccurred())
	trust = x509.NewCertPool()
	trust.AddCert(parsed)
	return trust, cert, key
}

// With TLS, the session cookie is sent over TLS only, the tabs of a browser share a
// connection and all have a stream, plain HTTP is refused, and a renewed certificate is
// served.
func TestTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	trust, cert, key := authority(NewWithT(t), folder, "first")
	w := newWorld(t, func(o *Options) { o.Auth, o.CertFile, o.KeyFile = AuthToken, cert, key })
	token := w.account("ada")
	w.may(w.apps, w.subject("ada"), lists)
	by := func(trust *x509.CertPool) *browser {
		b := w.browser()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		b.client.Transport = transport
		return b
	}
	b := by(trust)
	signed := b.signIn(token)
	w.Expect(signed.Code).To(Equal(303))
	w.Expect(signed.Header.Values("Set-Cookie")).To(ContainElement(And(HavePrefix("__Host-"), ContainSubstring("; Secure"), ContainSubstring("HttpOnly"), ContainSubstring("SameSite=Strict"))))
	w.Expect(b.get("/pipelines").Code).To(Equal(200))

	response, err := b.client.Get(w.url + "/about")
	w.Expect(err).NotTo(HaveOccurred())
	response.Body.Close()
	w.Expect(response.ProtoMajor).To(Equal(2))
	version := versionInPage.FindStringSubmatch(b.get("/about").Body)[1]
	for range maxOwnStreams + 3 {
		response, err := b.client.Get(w.url + "/stream?" + url.Values{"page": {"/about"}, "from": {version}}.Encode())
		w.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		w.Expect(response.StatusCode).To(Equal(200), "a stream for each of seven tabs, on one connection")
	}

	plain, err := http.Get("http://" + strings.TrimPrefix(w.url, "https://") + "/signin")
	w.Expect(err).NotTo(HaveOccurred())
	plain.Body.Close()
	w.Expect(plain.StatusCode).To(Equal(400))
	old := &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // It is to be refused.
	_, err = tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), old)
	w.Expect(err).To(HaveOccurred())

	// A renewed certificate, of another authority.
	renewed, _, _ := authority(NewWithT(t), folder, "second")
	w.Eventually(func() error {
		response, err := by(renewed).client.Get(w.url + "/signin")
		if err == nil {
			response.Body.Close()
		}
		return err
	}, patience).Should(Succeed())
}

// With a certificate that cannot be read, or that does not match its key, the hub does not
// start, and the error names the file.
func TestTLSThatIsWrong(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	_, cert, key := authority(g, folder, "one")
	other := t.TempDir()
	_, _, otherKey := authority(g, other, "two")
	garbage := filepath.Join(other, "garbage.crt")
	g.Expect(os.WriteFile(garbage, bytes.Repeat([]byte("x"), 100), 0o600)).To(Succeed())
	for name, files := range map[string][2]string{"missing": {filepath.Join(folder, "no.crt"), key}, "garbage": {garbage, key}, "other-key": {cert, otherKey}} {
		s, err := New(Options{BindAddress: "127.0.0.1:0", Auth: AuthToken, CertFile: files[0], KeyFile: files[1]})
		g.Expect(err).NotTo(HaveOccurred())
		err = s.Start(t.Context())
		g.Expect(err).To(MatchError(And(ContainSubstring("reading the certificate"), ContainSubstring(files[0]))), name)
	}
}
