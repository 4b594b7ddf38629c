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
	// maxConnections at a time: each API server keeps a few.
	maxConnections = 256
	// timeout of a call, which does no I/O. idleTimeout is that of an idle connection.
	timeout     = 10 * time.Second
	idleTimeout = 90 * time.Second
	// maxHeader and maxBody limit a call, in bytes. An object has at most 1.5 MiB, and the
	// call has its old and new version.
	maxHeader = 16 << 10
	maxBody   = 4 << 20
)

// Options of a Server.
type Options struct {
	// BindAddress is the address to listen on, such as ":9443".
	BindAddress string
	// Keeper of the certificate; nil when CertFile and KeyFile are set, which another
	// program renews.
	Keeper            *Keeper
	CertFile, KeyFile string
	// Scheme contains EventingBackends.
	Scheme   *runtime.Scheme
	Registry *schema.Registry
	// Namespaces whose EventingBackends are validated; all if there are none. Several hubs share the webhooks, and
	// each has its own settings.
	Namespaces []string
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

// NewServer returns a Server with the options.
func NewServer(o Options) *Server { return &Server{o} }

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because
// the Service sends calls to every replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends. It returns an error when it cannot listen, or
// cannot read the files of the certificate.
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
	for path, handler := range handlers(s.Options) {
		mux.Handle("POST "+path, http.MaxBytesHandler(handler, maxBody))
	}
	return mux
}
