package diagnostics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/serving"
	"github.com/capstan-hub/capstan/watchers"
)

const (
	readTimeout = 10 * time.Second
	// writeTimeout bounds an answer; pprof adds the duration of a profile.
	writeTimeout   = time.Minute
	idleTimeout    = time.Minute
	maxConnections = 16
	maxHeader      = 16 << 10
	// maxLevel is the maximum length, in bytes, of the name of a log level.
	maxLevel = 64
)

// ErrExposed is the error for an address that is not loopback.
var ErrExposed = errors.New("profiles and the state of the hub would be served to the network without sign-in")

// CheckExposure checks whether diagnostics may be served at an address, host:port. The error is
// an ErrExposed.
func CheckExposure(address string) error {
	if serving.Loopback(address) {
		return nil
	}
	return fmt.Errorf("%w: %q is not a loopback address: serve it on 127.0.0.1, and connect with kubectl port-forward", ErrExposed, address)
}

// Level is the level of the log.
type Level interface {
	// Name of the present level, such as "info".
	Name() string
	// Set changes the level. The error says which names there are.
	Set(name string) error
}

// Options of a Server.
type Options struct {
	// BindAddress, such as "127.0.0.1:6060".
	BindAddress string
	// Version of the hub.
	Version string
	// Level of the log; /log-level answers 404 if nil.
	Level Level
	// Leads returns whether this replica leads.
	Leads func() bool
	// Connections and Informers return their present states.
	Connections func() []clusters.Snapshot
	Informers   func() []watchers.InformerState
	// Metrics has the queues of controllers (workqueue_depth and others).
	Metrics prometheus.Gatherer
	Clock   clock.PassiveClock
	Logger  logr.Logger
}

// Server serves diagnostics.
type Server struct {
	options Options
	started time.Time
	handler http.Handler
}

// New returns a Server. The error is an ErrExposed.
func New(o Options) (*Server, error) {
	if err := CheckExposure(o.BindAddress); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	s := &Server{options: o, started: o.Clock.Now()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	mux.HandleFunc("GET /state", s.state)
	mux.HandleFunc("GET /log-level", s.level)
	mux.HandleFunc("PUT /log-level", s.setLevel)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	s.handler = mux
	return s, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a standby is examined, too.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends.
func (s *Server) Start(ctx context.Context) error {
	return serving.Server{
		Name: "diagnostics", BindAddress: s.options.BindAddress, Handler: s,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxConnections: maxConnections, MaxHeader: maxHeader, Logger: s.options.Logger,
	}.Run(ctx)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if !serving.OwnHost(r.Host) {
		http.Error(w, "diagnostics are only for this machine: use localhost or 127.0.0.1", http.StatusMisdirectedRequest)
		return
	}
	// CrossOriginProtection allows GET, by which another site could start a profile.
	site := r.Header.Get("Sec-Fetch-Site")
	foreign := site != "" && site != "none" && site != "same-origin"
	if foreign || http.NewCrossOriginProtection().Check(r) != nil {
		http.Error(w, "the request comes from another site", http.StatusForbidden)
		return
	}
	s.handler.ServeHTTP(w, r)
}

const index = `Diagnostics of the Capstan hub

/state                            connections, informers and queues
/log-level                        level of the log; change it: curl -X PUT -d debug http://HOST/log-level
/debug/pprof/                     profiles: go tool pprof http://HOST/debug/pprof/heap
/debug/pprof/profile?seconds=30   CPU
/debug/pprof/goroutine?debug=1    goroutines, with their number for each stack
`

func (*Server) index(w http.ResponseWriter, r *http.Request) {
	text(w, strings.ReplaceAll(index, "HOST", r.Host))
}

func (s *Server) level(w http.ResponseWriter, _ *http.Request) {
	if s.options.Level == nil {
		http.Error(w, "the level of this log cannot be changed", http.StatusNotFound)
		return
	}
	text(w, s.options.Level.Name()+"\n")
}

func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	if s.options.Level == nil {
		s.level(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLevel))
	if err != nil {
		http.Error(w, "the body must be the name of a level: "+err.Error(), http.StatusBadRequest)
		return
	}
	before := s.options.Level.Name()
	if err := s.options.Level.Set(strings.TrimSpace(string(body))); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.options.Logger.Info("log level changed", "from", before, "to", s.options.Level.Name())
	s.level(w, r)
}

func text(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, body) // An error means that the client is gone.
}
