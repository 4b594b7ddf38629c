package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// HeaderTimeout is the time for a client to send the header of a call. StopGrace is the
// time for running calls to finish when the hub stops.
const (
	HeaderTimeout = 5 * time.Second
	StopGrace     = 5 * time.Second
)

// Server is an HTTP server with its own port.
type Server struct {
	// Name of the server in errors and logs, such as "dashboard".
	Name string
	// BindAddress is the address to listen on, such as ":8090".
	BindAddress string
	Handler     http.Handler
	// CertFile and KeyFile enable TLS. They are read again when they change.
	CertFile, KeyFile string
	// Certificate enables TLS without files. When neither is set, the server uses plain
	// HTTP.
	Certificate Certificate
	// HTTP2 also enables HTTP/2, with TLS only.
	HTTP2 bool
	// ReadTimeout is that of reading a call, WriteTimeout that of a call and its answer,
	// and IdleTimeout that of a connection between two calls.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxConnections is the number of connections at a time, including idle ones. It must
	// be far below the limit of open files.
	MaxConnections int
	// MaxHeader limits the headers of a call, in bytes, including those of a proxy.
	MaxHeader int
	Logger    logr.Logger
}

// Certificate is a certificate that Start renews until its context ends.
type Certificate interface {
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	Start(ctx context.Context) error
}

// Run serves until the context ends. It runs the other functions next to the server. It
// returns an error when it cannot listen, or cannot read the files of the certificate.
func (s Server) Run(ctx context.Context, others ...func(context.Context) error) error {
	listener, err := net.Listen("tcp", s.BindAddress)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	certificate := s.Certificate
	if s.CertFile != "" {
		if certificate, err = certwatcher.New(s.CertFile, s.KeyFile); err != nil {
			_ = listener.Close()
			return fmt.Errorf("%s: reading the certificate %s with the key %s: %w", s.Name, s.CertFile, s.KeyFile, err)
		}
	}
	s.Logger.Info("serving "+s.Name, "address", listener.Addr().String(), "tls", certificate != nil)
	listener = netutil.LimitListener(listener, s.MaxConnections)
	if certificate != nil {
		protocols := []string{"http/1.1"}
		if s.HTTP2 {
			protocols = []string{"h2", "http/1.1"}
		}
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate, NextProtos: protocols,
		})
		others = append(others, certificate.Start)
	}
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: HeaderTimeout,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,
		IdleTimeout:       s.IdleTimeout,
		MaxHeaderBytes:    s.MaxHeader,
		// Errors before a handler is called, such as those of a TLS handshake.
		ErrorLog:    klog.NewStandardLogger("INFO"),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range others {
		group.Go(func() error {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			return server.Close()
		}
		return nil
	})
	return group.Wait()
}
