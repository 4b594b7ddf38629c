package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/netguard"
)

const (
	// dialTimeout and tlsTimeout bound how long one connection attempt holds a
	// place to dial; a healthy server far away needs well under 1 s.
	dialTimeout = 5 * time.Second
	tlsTimeout  = 5 * time.Second
	// keepAlive finds a peer that does not respond, without HTTP/2's pings.
	keepAlive = 30 * time.Second
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newDialer returns a function that connects to what the policy of internal/netguard allows, directly
// or through a proxy. An error about a forbidden address is also of class ErrRefused.
func newDialer(allowLoopback bool, proxy *egress.Proxy) dialFunc {
	dialer := egress.Dialer{Proxy: proxy, Policy: netguard.Policy{AllowLoopback: allowLoopback}, Timeout: dialTimeout, KeepAlive: keepAlive}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if errors.Is(err, netguard.ErrForbidden) {
			return nil, fmt.Errorf("%w: dialling the server of the kubeconfig: %w", ErrRefused, err)
		}
		return conn, err
	}
}

// connections are the open connections of a Transport, of all generations.
type connections struct {
	mu          sync.Mutex
	lockedState struct {
		open  map[*connection]struct{}
		ended bool
	}
}

// connection removes itself from the set when it is closed. A read ends at the end of a TLS record:
// crypto/tls doubles its buffer, which it keeps, when it has received more than one record
// (44 KiB of an idle connection instead of 18 KiB). So it does not see an alert that follows a record
// in the same packet: over HTTP/1.1, a connection that the server closes may be used once more.
type connection struct {
	net.Conn
	of *connections
	// header of the next record, as far as it is read, and how much is left of the record after it.
	// Only Read uses them.
	header []byte
	left   int
}

// recordHeader of TLS: a type, a version, and two bytes with the length of what follows (RFC 8446,
// 5.1).
const recordHeader = 5

// Read reads at most to the end of a header or of a record.
func (c *connection) Read(p []byte) (int, error) {
	if c.left > 0 {
		n, err := c.Conn.Read(p[:min(len(p), c.left)])
		c.left -= n
		return n, err
	}
	n, err := c.Conn.Read(p[:min(len(p), recordHeader-len(c.header))])
	if c.header = append(c.header, p[:n]...); len(c.header) == recordHeader {
		c.left = int(binary.BigEndian.Uint16(c.header[recordHeader-2:]))
		c.header = c.header[:0]
	}
	return n, err
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.lockedState.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// through returns a function that dials and adds the connection to the set.
func (s *connections) through(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: raw, of: s}
		s.mu.Lock()
		ended := s.lockedState.ended
		if !ended {
			if s.lockedState.open == nil {
				s.lockedState.open = map[*connection]struct{}{}
			}
			s.lockedState.open[c] = struct{}{}
		}
		s.mu.Unlock()
		if ended {
			_ = raw.Close()
			return nil, ErrClosed
		}
		return c, nil
	}
}

// sever closes all open connections. With end, it also prevents new ones.
func (s *connections) sever(end bool) {
	s.mu.Lock()
	open := make([]*connection, 0, len(s.lockedState.open))
	for c := range s.lockedState.open {
		open = append(open, c)
	}
	s.lockedState.ended = s.lockedState.ended || end
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}
