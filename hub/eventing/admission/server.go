package admission

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/serving"
)

const (
	// maxConnections at a time: API servers keep a few each.
	maxConnections = 256
	// timeout of a call, which does no I/O; and of one that is idle.
	timeout     = 10 * time.Second
	idleTimeout = 90 * time.Second
	// maxHeader and maxBody of a call: an object is 1.5 MiB at most, and comes twice.
	maxHeader = 16 << 10
	maxBody   = 4 << 20
)

// Options of a Server.
type Options struct {
	// BindAddress, such as ":9443".
	BindAddress string
	// Keeper of the certificate; nil where CertFile and KeyFile, which somebody else
	// keeps fresh, are served.
	Keeper            *Keeper
	CertFile, KeyFile string
	// Scheme has EventingBackends.
	Scheme     *runtime.Scheme
	Registry   *schema.Registry
	Validation Validation
	Defaulting Defaulting
	Logger     logr.Logger
}

// Server of the webhooks. It is a Runnable of the manager, on every replica.
type Server struct{ Options }

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// NewServer makes a Server.
func NewServer(o Options) *Server { return &Server{o} }

// NeedLeaderElection implements manager.LeaderElectionRunnable: a Service sends a call to
// any replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. That it cannot listen, or cannot read the
// certificate's files, is an error.
func (s *Server) Start(ctx context.Context) error {
	server := serving.Server{
		Name: "webhooks", BindAddress: s.BindAddress, Handler: s.handler(), CertFile: s.CertFile, KeyFile: s.KeyFile,
		ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: idleTimeout, MaxConnections: maxConnections, MaxHeader: maxHeader,
		Logger: s.Logger.WithValues("validation", s.Validation, "defaulting", s.Defaulting),
	}
	if s.Keeper != nil {
		server.CertFile, server.Certificate = "", s.Keeper
	}
	return server.Run(ctx)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, handler := range handlers(s.Scheme, s.Registry, s.Validation, s.Defaulting) {
		mux.Handle("POST "+path, http.MaxBytesHandler(handler, maxBody))
	}
	return mux
}
