// Package nats runs a real NATS server with JetStream inside the process.
//
// Purpose: tests and the playground need the same broker that users run.
//
// Contract: Start returns when the server accepts connections on loopback. Stop returns when
// the server has ended. Restart ends it and starts it again with the same port and files, like
// a broker that is upgraded; Change does so with other options. The caller must remove the files.
//
// Locking: a Server is used by one goroutine; the client that Inside returns is safe for
// concurrent use.
//
// Trade-offs: the log of the server is discarded.
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
	// patience is how long Start waits: a cold machine takes a second.
	patience = 20 * time.Second
	// maxMemory and maxStore bound JetStream, in bytes. Its defaults depend on the machine's
	// size.
	maxMemory, maxStore = 64 << 20, 4 << 30
)

// Server is a NATS server.
type Server struct {
	options server.Options
	running *server.Server
}

// Start starts a server that keeps its streams in a folder.
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
		return errors.New("the NATS server does not accept connections")
	}
	if address, ok := running.Addr().(*net.TCPAddr); ok {
		s.options.Port = address.Port // The server chose it at the first start.
	}
	return nil
}

// Stop ends the server and waits for its end.
func (s *Server) Stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// Restart ends the server and starts it again, with the same port and files.
func (s *Server) Restart() error {
	s.Stop()
	return s.start()
}

// Change restarts the server with options that change sets. A change of the port, the host or the
// files has no effect.
func (s *Server) Change(change func(*server.Options)) error {
	host, port, files := s.options.Host, s.options.Port, s.options.StoreDir
	change(&s.options)
	s.options.Host, s.options.Port, s.options.StoreDir = host, port, files
	return s.Restart()
}

// URL returns the address of the server.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.options.Port) }

// Inside returns a JetStream client with an in-process connection. The caller must call closed.
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

// Messages returns the messages of a stream, the oldest first.
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
