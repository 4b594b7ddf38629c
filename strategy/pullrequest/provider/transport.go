package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const (
	// dialTimeout of one connection; a service that is there answers a SYN at once.
	dialTimeout = 10 * time.Second
	// handshakeTimeout of TLS, likewise.
	handshakeTimeout = 10 * time.Second
	// headerMargin is how much longer a connection waits for an answer to begin than
	// the wire does for the whole of it, whose error says more. It is for Git.
	headerMargin = time.Second
	// idleTimeout keeps a connection over the requests of one promotion, not until
	// the next.
	idleTimeout = 30 * time.Second
	// maxHeader of an answer, in bytes. Honest ones are below 8 KiB.
	maxHeader = 64 << 10
	// maxConnections to one service.
	maxConnections = 4
)

// ErrForbiddenAddress is the cause where a URL leads to what the hub must not call: it
// is written by people who may create Pipelines, and the hub stands where they do not.
// It comes from Transport; errors of the API are ErrInvalid then.
var ErrForbiddenAddress = errors.New("the hub does not call this address")

// metadataAddresses are those of cloud metadata services outside the link-local
// ranges.
var metadataAddresses = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS
	netip.MustParseAddr("fd00:ec2::23"):    true, // AWS, Pod identity
	netip.MustParseAddr("fd20:ce::254"):    true, // Google
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
}

// nat64 carries an IPv4 address in its last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func newTransport(o Options) (*http.Transport, error) {
	roots, err := roots(o)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{
		Timeout: dialTimeout,
		// The address that is dialled, after the name was resolved: a name that leads
		// to loopback now and elsewhere before gets nowhere. So there is no proxy, of
		// the environment or else: what it dials, nobody here would see.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return checkAddress(address, o.AllowLoopback)
		},
	}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  o.Timeout + headerMargin,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        maxConnections,
		ForceAttemptHTTP2:      true,
	}, nil
}

// roots are the system's and those of the bundle; nil is the system's.
func roots(o Options) (*x509.CertPool, error) {
	if len(o.CABundle) == 0 {
		return nil, nil //nolint:nilnil // what crypto/tls takes for the system's roots
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(o.CABundle) {
		return nil, invalid(o.Type, "the CA bundle holds no certificate in PEM")
	}
	return pool, nil
}

func checkAddress(address string, allowLoopback bool) error {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrForbiddenAddress, address)
	}
	ip := parsed.Addr().Unmap().WithZone("")
	if nat64.Contains(ip) {
		bytes := ip.As16()
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	switch {
	case ip.IsLoopback():
		if !allowLoopback {
			return fmt.Errorf("%w: %s is loopback, the hub itself", ErrForbiddenAddress, ip)
		}
	case !ip.IsValid(), ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), metadataAddresses[ip]:
		return fmt.Errorf("%w: %s is unspecified, multicast, link-local or a cloud's metadata service", ErrForbiddenAddress, ip)
	}
	return nil
}
