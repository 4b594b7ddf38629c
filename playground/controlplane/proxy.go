package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
)

// ProxyMode is how a Proxy handles connections.
type ProxyMode int

// Modes of a Proxy.
const (
	// Pass forwards bytes in both directions.
	Pass ProxyMode = iota
	// Refuse closes all open connections, and each new one at once.
	Refuse
	// Swallow keeps connections open and forwards nothing.
	Swallow
)

// Proxy forwards TCP connections to a control plane, depending on its mode.
//
// Locking: mu guards mode and conns; no I/O is done under it.
type Proxy struct {
	target   string
	listener net.Listener
	dialling context.Context // ends with Close
	end      context.CancelFunc
	done     sync.WaitGroup

	// mu guards the fields that follow.
	mu    sync.Mutex
	gate  *sync.Cond
	mode  ProxyMode
	ended bool
	conns map[net.Conn]struct{}
}

// NewProxy listens on a free port of loopback for connections to the server with a URL.
func NewProxy(server string) (*Proxy, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("proxy to %q: %w", server, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy to %q: %w", server, err)
	}
	p := &Proxy{target: u.Host, listener: listener, conns: map[net.Conn]struct{}{}}
	p.dialling, p.end = context.WithCancel(context.Background())
	p.gate = sync.NewCond(&p.mu)
	p.done.Add(1)
	go p.accept()
	return p, nil
}

// URL returns the address that clients use in place of the server's.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Set changes the mode.
func (p *Proxy) Set(mode ProxyMode) {
	p.mu.Lock()
	p.mode = mode
	var open []net.Conn
	if mode == Refuse {
		for c := range p.conns {
			open = append(open, c)
		}
	}
	p.gate.Broadcast()
	p.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// Close ends the proxy and all its connections, and waits for its goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.ended = true
	open := make([]net.Conn, 0, len(p.conns))
	for c := range p.conns {
		open = append(open, c)
	}
	p.gate.Broadcast()
	p.mu.Unlock()
	p.end()
	err := p.listener.Close()
	for _, c := range open {
		_ = c.Close()
	}
	p.done.Wait()
	return err
}

func (p *Proxy) accept() {
	defer p.done.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		if !p.track(client) {
			_ = client.Close()
			continue
		}
		p.done.Add(1)
		go p.serve(client)
	}
}

// track adds a connection; false if the proxy refuses it.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.mode == Refuse {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

// pass waits while the mode is Swallow; false if the proxy has ended.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == Swallow && !p.ended {
		p.gate.Wait()
	}
	return !p.ended
}

func (p *Proxy) serve(client net.Conn) {
	defer p.done.Done()
	defer p.forget(client)
	if !p.pass() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(p.dialling, "tcp", p.target)
	if err != nil {
		return
	}
	if !p.track(server) {
		_ = server.Close()
		return
	}
	defer p.forget(server)

	var both sync.WaitGroup
	both.Add(2)
	carry := func(dst, src net.Conn) {
		defer both.Done()
		defer dst.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			if n > 0 {
				if !p.pass() {
					return
				}
				if _, werr := dst.Write(buf[:n]); werr != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	go carry(server, client)
	go carry(client, server)
	both.Wait()
}
