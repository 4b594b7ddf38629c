package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/capstan-hub/capstan/internal/netguard"
)

// Keys of a Secret.
const (
	KeyCA   = "ca.crt"
	KeyCert = "tls.crt"
	KeyKey  = "tls.key"
)

const (
	// dialTimeout and tlsTimeout bound the making of a connection; a healthy broker far
	// away needs well under 1 s.
	dialTimeout = 5 * time.Second
	tlsTimeout  = 5 * time.Second
	// keepAlive finds a dead peer.
	keepAlive = 30 * time.Second
	// idle connections are kept this long: events come in bursts.
	idle = 90 * time.Second
	// maxHeader of an answer, of which a few lines are read.
	maxHeader = 64 << 10
)

// ErrSecret is the class of errors about a Secret that cannot be used.
var ErrSecret = errors.New("Secret cannot be used")

// Secretf is an error of class ErrSecret: what is wrong with a key.
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

// TLS from a Secret's ca.crt, tls.crt and tls.key; without ca.crt the system's
// authorities hold. The second result tells whether the Secret has any of the keys.
func TLS(secret map[string][]byte) (*tls.Config, bool, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, cert, key := secret[KeyCA], secret[KeyCert], secret[KeyKey]
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, false, Secretf(KeyCA, "holds no PEM certificate")
		}
	}
	switch {
	case len(cert) > 0 && len(key) > 0:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil { // Which may quote what it found.
			return nil, false, Secretf(KeyCert, "and key %s are no PEM certificate with its private key", KeyKey)
		}
		config.Certificates = []tls.Certificate{pair}
	case len(cert) > 0:
		return nil, false, Secretf(KeyKey, "is missing: %s needs it", KeyCert)
	case len(key) > 0:
		return nil, false, Secretf(KeyCert, "is missing: %s needs it", KeyKey)
	}
	return config, len(ca)+len(cert)+len(key) > 0, nil
}

// HTTPOptions of a client.
type HTTPOptions struct {
	TLS           *tls.Config
	AllowLoopback bool
	// Proxy to go through; nil for none. The environment's are not used.
	Proxy *url.URL
	// Connections to the host that are kept.
	Connections int
}

// HTTPClient makes a client that follows no redirects; its deadlines come from contexts.
func HTTPClient(o HTTPOptions) *http.Client {
	transport := &http.Transport{
		DialContext: Dialer(o.AllowLoopback).DialContext, TLSClientConfig: o.TLS, TLSHandshakeTimeout: tlsTimeout,
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

// Bare is the error of an HTTP call without the URL, whose path or query may be secret.
func Bare(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
