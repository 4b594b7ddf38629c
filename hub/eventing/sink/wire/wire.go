package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/capstan-hub/capstan/internal/allowedhosts"
	"github.com/capstan-hub/capstan/internal/netguard"
)

// Keys of a Secret.
const (
	KeyCA   = "ca.crt"
	KeyCert = "tls.crt"
	KeyKey  = "tls.key"
)

const (
	// dialTimeout and tlsTimeout bound the setup of a connection. A healthy distant broker
	// needs well under 1 s.
	dialTimeout = 5 * time.Second
	tlsTimeout  = 5 * time.Second
	// keepAlive is the interval in which dead peers are detected.
	keepAlive = 30 * time.Second
	// idle is how long unused connections are kept: events come in bursts.
	idle = 90 * time.Second
	// maxHeader bounds the headers of an answer, of which only a few lines are used.
	maxHeader = 64 << 10
)

// ErrSecret is the class of errors about a Secret that cannot be used.
var ErrSecret = errors.New("Secret cannot be used")

// CheckHosts returns an error of class ErrSecret if the credentials of a Secret may not be sent to the host of a URL.
func CheckHosts(allowed allowedhosts.Rule, urls ...string) error {
	if err := allowed.Check(urls...); err != nil {
		return fmt.Errorf("%w: it %w", ErrSecret, err)
	}
	return nil
}

// Secretf returns an error of class ErrSecret that says what is wrong with a key.
func Secretf(key, format string, values ...any) error {
	return fmt.Errorf("%w: key %s %s", ErrSecret, key, fmt.Sprintf(format, values...))
}

// Dialer returns a dialer that refuses the addresses which internal/netguard forbids,
// with an error of class netguard.ErrForbidden.
func Dialer(allowLoopback bool) *net.Dialer {
	return &net.Dialer{
		Timeout: dialTimeout, KeepAlive: keepAlive, Control: netguard.Policy{AllowLoopback: allowLoopback}.Control,
	}
}

// TLS returns the configuration for a Secret's ca.crt, tls.crt and tls.key. Without ca.crt, the
// system's authorities are trusted. The second result is whether the Secret has any of the
// keys.
func TLS(secret map[string][]byte) (*tls.Config, bool, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, cert, key := secret[KeyCA], secret[KeyCert], secret[KeyKey]
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, false, Secretf(KeyCA, "contains no PEM certificate")
		}
	}
	switch {
	case len(cert) > 0 && len(key) > 0:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil { // The error may quote the Secret.
			return nil, false, Secretf(KeyCert, "and key %s are not a PEM certificate with its private key", KeyKey)
		}
		config.Certificates = []tls.Certificate{pair}
	case len(cert) > 0:
		return nil, false, Secretf(KeyKey, "is missing: %s needs it", KeyCert)
	case len(key) > 0:
		return nil, false, Secretf(KeyCert, "is missing: %s needs it", KeyKey)
	}
	return config, len(ca)+len(cert)+len(key) > 0, nil
}

// Connect makes a connection to the host of a URL, with the TLS handshake of https, and closes it.
// It tests whether a receiver is reachable that must only answer a POST. The error is a
// CallError.
func Connect(ctx context.Context, dialer *net.Dialer, secure *tls.Config, to *url.URL) error {
	port := to.Port()
	if port == "" {
		port = to.Scheme
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return CallError(to.Host, err)
	}
	defer conn.Close()
	if to.Scheme != "https" {
		return nil
	}
	config := secure.Clone()
	config.ServerName = to.Hostname()
	if err := tls.Client(conn, config).HandshakeContext(ctx); err != nil {
		return CallError(to.Host, err)
	}
	return nil
}

// HTTPOptions of a client.
type HTTPOptions struct {
	// TLS is not changed.
	TLS           *tls.Config
	AllowLoopback bool
	// Proxy to use; nil for none. Proxies in the environment are not used.
	Proxy *url.URL
	// Connections is the maximum number of connections to the host.
	Connections int
}

// HTTPClient returns a client that follows no redirects. Deadlines come from contexts.
func HTTPClient(o HTTPOptions) *http.Client {
	transport := &http.Transport{
		// The first request of a transport changes its configuration: it adds the protocols for ALPN.
		DialContext: Dialer(o.AllowLoopback).DialContext, TLSClientConfig: o.TLS.Clone(), TLSHandshakeTimeout: tlsTimeout,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: o.Connections, MaxConnsPerHost: o.Connections, IdleConnTimeout: idle,
		MaxResponseHeaderBytes: maxHeader,
	}
	if o.Proxy != nil {
		transport.Proxy = http.ProxyURL(o.Proxy)
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Bare returns the error of an HTTP call without the URL, whose path or query may be secret.
func Bare(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
