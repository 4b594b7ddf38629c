package simulated

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// door is the listener of a server. It can be shut and opened again at the same
// address, and keep silent.
type door struct {
	address string
	conns   chan net.Conn
	done    chan struct{}

	accepting   sync.WaitGroup
	mu          sync.Mutex
	lockedState struct {
		listener net.Listener // nil while shut
		open     map[*wire]struct{}
		silent   bool
		closed   bool
	}
}

func newDoor() (*door, error) {
	d := &door{address: "127.0.0.1:0", conns: make(chan net.Conn), done: make(chan struct{})}
	d.lockedState.open = map[*wire]struct{}{}
	if err := d.listen(); err != nil {
		return nil, err
	}
	return d, nil
}

// listen opens the door, if it is shut.
func (d *door) listen() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lockedState.listener != nil || d.lockedState.closed {
		return nil
	}
	l, err := net.Listen("tcp", d.address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	d.address, d.lockedState.listener = l.Addr().String(), l
	d.accepting.Go(func() { d.accept(l) })
	return nil
}

func (d *door) accept(l net.Listener) {
	for {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		w := &wire{Conn: raw, door: d, closed: make(chan struct{})}
		d.mu.Lock()
		d.lockedState.open[w] = struct{}{}
		d.mu.Unlock()
		select {
		case d.conns <- w:
		case <-d.done:
			_ = w.Close()
		}
	}
}

// shut has connections refused, and breaks those that are open.
func (d *door) shut() {
	d.mu.Lock()
	l := d.lockedState.listener
	d.lockedState.listener = nil
	d.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	d.sever()
}

// sever breaks all open connections.
func (d *door) sever() {
	d.mu.Lock()
	open := make([]*wire, 0, len(d.lockedState.open))
	for w := range d.lockedState.open {
		open = append(open, w)
	}
	d.mu.Unlock()
	for _, w := range open {
		_ = w.Close()
	}
}

// setSilent begins or ends silence. Connections do not outlive it.
func (d *door) setSilent(silent bool) {
	d.mu.Lock()
	ends := d.lockedState.silent && !silent
	d.lockedState.silent = silent
	d.mu.Unlock()
	if ends {
		d.sever()
	}
}

func (d *door) isSilent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lockedState.silent
}

func (d *door) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lockedState.open)
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr {
	address, _ := net.ResolveTCPAddr("tcp", d.address) // It was listened on.
	return address
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.mu.Lock()
	was := d.lockedState.closed
	d.lockedState.closed = true
	d.mu.Unlock()
	if !was {
		close(d.done)
	}
	d.shut()
	d.accepting.Wait()
	return nil
}

// errSilent ends a connection that was silenced.
var errSilent = errors.New("the connection was silent")

// wire is a connection that the door can silence.
type wire struct {
	net.Conn
	door   *door
	once   sync.Once
	closed chan struct{}
}

// Read holds what comes while the door is silent.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.door.isSilent() {
		<-w.closed
		return 0, errSilent
	}
	return n, err
}

// Write drops what goes while the door is silent.
func (w *wire) Write(p []byte) (int, error) {
	if w.door.isSilent() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Close breaks the connection.
func (w *wire) Close() error {
	w.once.Do(func() {
		w.door.mu.Lock()
		delete(w.door.lockedState.open, w)
		w.door.mu.Unlock()
		close(w.closed)
	})
	return w.Conn.Close()
}
