// Package egresstest has an HTTP proxy for tests: it forwards the bytes of CONNECT, for made-up hosts
// only, so that a test proves that a connection went through it.
package egresstest

import (
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Proxy is an HTTP proxy on loopback.
//
// Locking: mu guards the fields after it; no I/O is done under it.
type Proxy struct {
	*httptest.Server
	tunnels sync.WaitGroup
	dialing context.Context // ends with the test

	mu            sync.Mutex
	lockedHosts   map[string]string
	lockedUser    string
	lockedStatus  int
	lockedTargets []string
	lockedOpen    map[net.Conn]struct{}
}

// Start returns a proxy that runs until the test ends. hosts maps each host:port that it serves to the
// host:port to connect to. It answers 502 to all others, as to hosts that it cannot resolve.
func Start(t *testing.T, hosts map[string]string) *Proxy {
	return start(t, hosts, (*httptest.Server).Start)
}

// StartTLS is Start for a proxy that is connected to by TLS, with httptest's certificate.
func StartTLS(t *testing.T, hosts map[string]string) *Proxy {
	return start(t, hosts, (*httptest.Server).StartTLS)
}

func start(t *testing.T, hosts map[string]string, begin func(*httptest.Server)) *Proxy {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p := &Proxy{dialing: ctx, lockedHosts: hosts, lockedOpen: map[net.Conn]struct{}{}}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	begin(p.Server)
	t.Cleanup(func() {
		cancel()
		p.Stop()
	})
	return p
}

// RequireUser makes the proxy answer 407 to all without "user:password"; none is required if empty.
func (p *Proxy) RequireUser(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lockedUser = user
}

// Answer makes the proxy answer each request with a status; 0 makes it connect.
func (p *Proxy) Answer(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lockedStatus = status
}

// Targets returns each host:port that was requested, in order, refused ones included.
func (p *Proxy) Targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lockedTargets...)
}

// Cut closes all tunnels.
func (p *Proxy) Cut() {
	p.mu.Lock()
	open := make([]net.Conn, 0, len(p.lockedOpen))
	for conn := range p.lockedOpen {
		open = append(open, conn)
	}
	p.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// Stop ends the proxy and its tunnels: it then refuses connections.
func (p *Proxy) Stop() {
	p.Close()
	p.Cut()
	p.tunnels.Wait()
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.lockedTargets = append(p.lockedTargets, r.Host)
	target, known := p.lockedHosts[r.Host]
	user, status := p.lockedUser, p.lockedStatus
	p.mu.Unlock()
	switch {
	case r.Method != http.MethodConnect:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case status != 0:
		w.WriteHeader(status)
		return
	case user != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(user)):
		w.Header().Set("Proxy-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	case !known:
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	far, err := (&net.Dialer{}).DialContext(p.dialing, "tcp", target)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = far.Close()
		return
	}
	p.mu.Lock()
	p.lockedOpen[near], p.lockedOpen[far] = struct{}{}, struct{}{}
	p.mu.Unlock()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		p.forget(near, far)
		return
	}
	p.tunnels.Go(func() {
		_, _ = io.Copy(far, buffered)
		p.forget(near, far)
	})
	p.tunnels.Go(func() {
		_, _ = io.Copy(near, far)
		p.forget(near, far)
	})
}

// forget closes both ends of a tunnel.
func (p *Proxy) forget(ends ...net.Conn) {
	for _, conn := range ends {
		_ = conn.Close()
		p.mu.Lock()
		delete(p.lockedOpen, conn)
		p.mu.Unlock()
	}
}
