// Package nats is a real NATS server with JetStream, inside the process.
//
// Purpose: tests and the playground need a broker that is the one that people run.
//
// Contract: Start returns when the server takes connections, on loopback. Stop returns
// when it has ended; Restart ends it and starts it again, on the same port and files, as
// a broker does that is upgraded. The files are the caller's to remove.
//
// Locking: a Server belongs to one goroutine; what Inside returns may be used by many.
//
// Trade-offs: the server's own log goes nowhere.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// patience with the start: a cold machine takes a second.
	patience = 20 * time.Second
	// maxMemory and maxStore bound JetStream, whose own bounds are by the machine's size.
	maxMemory, maxStore = 64 << 20, 4 << 30
)

// Server of NATS.
type Server struct {
	options server.Options
	running *server.Server
}

// Start a server that keeps its streams in a folder.
func Start(folder string) (*Server, error) {
	s := &Server{options: server.Options{
		ServerName: "playground", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: folder, JetStreamMaxMemory: maxMemory, JetStreamMaxStore: maxStore,
	}}
	return s, s.start()
}

func (s *Server) start() error {
	options := s.options
	running, err := server.NewServer(&options)
	if err != nil {
		return fmt.Errorf("making a NATS server: %w", err)
	}
	running.Start()
	s.running = running
	if !running.ReadyForConnections(patience) {
		s.Stop()
		return errors.New("the NATS server takes no connections")
	}
	if address, ok := running.Addr().(*net.TCPAddr); ok {
		s.options.Port = address.Port // Which it chose itself, at the first start.
	}
	return nil
}

// Stop the server.
func (s *Server) Stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// Restart the server.
func (s *Server) Restart() error {
	s.Stop()
	return s.start()
}

// URL of the server.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.options.Port) }

// Inside is a client of JetStream that goes through no network; close ends it.
func (s *Server) Inside() (client jetstream.JetStream, closed func(), err error) {
	connection, err := nats.Connect("", nats.InProcessServer(s.running))
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the NATS server: %w", err)
	}
	client, err = jetstream.New(connection)
	if err != nil {
		connection.Close()
		return nil, nil, fmt.Errorf("using JetStream: %w", err)
	}
	return client, connection.Close, nil
}

// Messages that a stream holds, the oldest first.
func (s *Server) Messages(ctx context.Context, stream string) ([]*jetstream.RawStreamMsg, error) {
	client, closed, err := s.Inside()
	if err != nil {
		return nil, err
	}
	defer closed()
	of, err := client.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	state := of.CachedInfo().State
	all := make([]*jetstream.RawStreamMsg, 0, state.Msgs)
	for n := state.FirstSeq; n <= state.LastSeq && state.Msgs > 0; n++ {
		m, err := of.GetMsg(ctx, n)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("message %d of stream %s: %w", n, stream, err)
		}
		all = append(all, m)
	}
	return all, nil
}
