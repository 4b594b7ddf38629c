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

// HeaderTimeout is how long a caller may take to send the header of a call, and
// StopGrace how long calls that are under way may take when the hub ends.
const (
	HeaderTimeout = 5 * time.Second
	StopGrace     = 5 * time.Second
)

// Server on a port of its own.
type Server struct {
	// Name in errors and logs, such as "dashboard".
	Name string
	// BindAddress, such as ":8090".
	BindAddress string
	Handler     http.Handler
	// CertFile and KeyFile serve by TLS; they are read again when they change.
	CertFile, KeyFile string
	// Certificate is one that somebody else keeps, in their place. Plain HTTP when there
	// is neither.
	Certificate Certificate
	// HTTP2 is spoken by TLS, too.
	HTTP2 bool
	// ReadTimeout of a call, WriteTimeout of a call and its answer, and IdleTimeout of a
	// connection between two.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxConnections at a time, idle ones included: far below what the process may have
	// open.
	MaxConnections int
	// MaxHeader is room for a proxy's headers, in bytes.
	MaxHeader int
	Logger    logr.Logger
}

// Certificate is kept fresh by Start, until its context ends.
type Certificate interface {
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	Start(ctx context.Context) error
}

// Run serves until the context ends, with others beside it. That it cannot listen, or
// cannot read the certificate's files, is an error.
func (s Server) Run(ctx context.Context, beside ...func(context.Context) error) error {
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
		beside = append(beside, certificate.Start)
	}
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: HeaderTimeout,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,
		IdleTimeout:       s.IdleTimeout,
		MaxHeaderBytes:    s.MaxHeader,
		// What fails before a handler is called, such as a TLS handshake.
		ErrorLog:    klog.NewStandardLogger("INFO"),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range beside {
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
