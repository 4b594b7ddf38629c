// Package openid runs a real OpenID Connect provider inside the process.
//
// Purpose: tests of the sign-in need a provider that issues ID tokens which a real API server
// accepts. The protocol is that of github.com/zitadel/oidc; users, clients and tokens are in
// memory.
//
// Contract: Start returns when the provider serves on loopback over TLS, by a certificate of
// an authority of its own (CAFile). Stop ends it, and Serve starts it again at the same address
// with the same users, clients, tokens and keys. Its login page asks for a user name only. Each
// refresh token can be used once: it is replaced by another one.
//
// Locking: Provider.mu guards the server, storage.mu the rest. All methods can be called
// concurrently.
//
// Trade-offs: Alter changes the claims of ID tokens and signs them again, so that tests can show
// what a faulty or hostile provider would send.
package openid

import (
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
	"html/template"
	"log/slog" //nolint:depguard // The provider's library logs through it; the log is discarded.
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/capstan-hub/capstan/playground/ports"
)

const (
	headerTimeout = 10 * time.Second
	stopTimeout   = 10 * time.Second
	certificate   = 24 * time.Hour
	ownerOnly     = 0o600
)

// discard is the log of the library and of the server.
var discard = logr.ToSlogHandler(logr.Discard())

// Provider is an OpenID Connect provider.
type Provider struct {
	*storage
	// Issuer is the URL of the provider.
	Issuer string
	// CAFile has the PEM certificate of its authority, and CA the same as a pool.
	CAFile string
	CA     *x509.CertPool

	address string
	tls     *tls.Config
	handler http.Handler

	// mu guards the field that follows.
	mu            sync.Mutex
	lockedRunning *running
}

// running is a server that runs; ended is closed when its listener is closed.
type running struct {
	server *http.Server
	ended  chan struct{}
}

// Start starts a provider. It writes the certificate of its authority into folder.
func Start(folder string) (*Provider, error) {
	address, err := ports.Free()
	if err != nil {
		return nil, err
	}
	p := &Provider{Issuer: "https://" + address, CAFile: filepath.Join(folder, "issuer-ca.crt"), address: address}
	if err := p.certify(); err != nil {
		return nil, fmt.Errorf("making the certificate of the provider: %w", err)
	}
	if p.storage, err = newStorage(); err != nil {
		return nil, err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // It never fails.
	served, err := op.NewProvider(&op.Config{
		CryptoKey: secret, CodeMethodS256: true, AuthMethodPost: true, GrantTypeRefreshToken: true,
		SupportedScopes: []string{"openid", "profile", "email", "groups", "offline_access"},
	}, p.storage, op.StaticIssuer(p.Issuer), op.WithLogger(slog.New(discard)))
	if err != nil {
		return nil, fmt.Errorf("making the provider: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", p.altered(served))
	mux.HandleFunc("GET "+loginPath, p.loginForm)
	mux.HandleFunc("POST "+loginPath, func(w http.ResponseWriter, r *http.Request) {
		if err := p.login(r.PostFormValue("id"), r.PostFormValue("user")); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, op.AuthCallbackURL(served)(op.ContextWithIssuer(r.Context(), p.Issuer), r.PostFormValue("id")), http.StatusSeeOther)
	})
	p.handler = mux
	return p, p.Serve()
}

// Serve serves, after Stop.
func (p *Provider) Serve() error {
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return fmt.Errorf("serving the provider: %w", err)
	}
	r := &running{&http.Server{Handler: p.handler, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(discard, slog.LevelError)}, make(chan struct{})}
	p.mu.Lock()
	p.lockedRunning = r
	p.mu.Unlock()
	// It ends when Stop closes the server.
	go func() {
		defer close(r.ended)
		_ = r.server.Serve(tls.NewListener(listener, p.tls))
	}()
	return nil
}

// Stop ends the server. Connections are refused until Serve.
func (p *Provider) Stop() error {
	p.mu.Lock()
	r := p.lockedRunning
	p.lockedRunning = nil
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := r.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = r.server.Close()
	}
	<-r.ended
	if err != nil {
		return fmt.Errorf("stopping the provider: %w", err)
	}
	return nil
}

// certify makes the authority, which is also the certificate of the server.
func (p *Provider) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	own := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "playground issuer"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-certificate), NotAfter: now.Add(certificate), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, own, own, key.Public(), key)
	if err != nil {
		return err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	p.CA = x509.NewCertPool()
	p.CA.AppendCertsFromPEM(encoded)
	p.tls = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	return os.WriteFile(p.CAFile, encoded, ownerOnly)
}

const loginPath = "/login"

func loginURL(id string) string { return loginPath + "?" + url.Values{"id": {id}}.Encode() }

var loginTemplate = template.Must(template.New("login").Parse(`<!doctype html><html lang="en"><title>Log in</title><main><h1>Log in</h1>
<form method="post"><input type="hidden" name="id" value="{{.}}"><label>User <input name="user" autofocus></label> <button>Log in</button></form></main></html>`))

func (*Provider) loginForm(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = loginTemplate.Execute(w, r.URL.Query().Get("id")) // It fails only when the client disconnected.
}
