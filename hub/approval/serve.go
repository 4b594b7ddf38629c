package approval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/serving"
)

// healthPath is answered with 200 without a signature, as weave does on this port.
const healthPath = "/healthz"

// busyFor is the Retry-After in seconds for a client that finds all slots in use.
const busyFor = "5"

// ServeHTTP implements http.Handler. It parses paths itself: a ServeMux redirects paths that are
// not clean, and the signature does not match the redirected path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == healthPath {
		_, _ = io.WriteString(w, "ok")
		return
	}
	started := s.Clock.Now()
	target, known := parseRoute(r.URL.EscapedPath())
	endpoint := target.endpoint
	if !known {
		endpoint = "none"
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	location, err := s.serve(ctx, w, r, target, known)
	code := s.answer(w, r, location, err)
	s.metrics.calls.WithLabelValues(endpoint, strconv.Itoa(code)).Inc()
	s.metrics.callSeconds.WithLabelValues(endpoint).Observe(s.Clock.Since(started).Seconds())
}

// serve a call. The checks have the same order as in weave.
func (s *Server) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, target route, known bool) (string, error) {
	if wait := s.limiter.Take(serving.Client(r.RemoteAddr), s.Clock.Now()); wait > 0 {
		return "", rateLimited(s.Clock.Now().Add(wait))
	}
	if r.Method != http.MethodPost {
		return "", &refusal{code: http.StatusMethodNotAllowed, reason: reasonMethod}
	}
	if !known {
		return "", refuse(http.StatusNotFound, reasonPath,
			"the path does not exist: POST to %s or %s, with each part escaped", "/promotion/NAMESPACE/PIPELINE/ENVIRONMENT", "/approval/NAMESPACE/PIPELINE/ENVIRONMENT/REVISION")
	}
	body, err := s.body(w, r)
	if err != nil {
		return "", err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return "", busy()
	}
	unknown := refuse(http.StatusNotFound, reasonNoPipeline, "Pipeline %s/%s does not exist", target.namespace, target.pipeline)
	if len(s.Namespaces) > 0 && !slices.Contains(s.Namespaces, target.namespace) {
		return "", unknown // It may belong to another hub.
	}
	p := &pipelinesv1.Pipeline{}
	if err := s.Client.Get(ctx, types.NamespacedName{Namespace: target.namespace, Name: target.pipeline}, p); err != nil {
		if apierrors.IsNotFound(err) {
			return "", unknown
		}
		return "", failed(fmt.Errorf("reading Pipeline %s/%s: %w", target.namespace, target.pipeline, err))
	}
	p = p.Shown()
	target.environment = stageOf(p, target)
	if target.endpoint == approvalEndpoint {
		return s.approve(ctx, r, p, target, body)
	}
	return s.hint(ctx, r, p, target, body)
}

// answer writes the answer of a call, and logs a refusal. It returns the status code.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, location string, err error) int {
	w.Header().Set("Cache-Control", "no-store")
	if err == nil {
		code := http.StatusNoContent
		if location != "" {
			w.Header().Set("Location", location)
			code = http.StatusCreated
		}
		w.WriteHeader(code)
		return code
	}
	var refused *refusal
	if !errors.As(err, &refused) {
		refused = failed(err)
	}
	s.metrics.refusals.WithLabelValues(string(refused.reason)).Inc()
	s.Logger.V(verbosity(refused.reason)).Info("call refused", "reason", refused.reason, "code", refused.code, "why", refused.Error(),
		"method", r.Method, "path", r.URL.Path, "client", r.RemoteAddr)
	if refused.retryAfter != "" {
		w.Header().Set("Retry-After", refused.retryAfter)
	}
	if refused.body != "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(refused.code)
	_, _ = io.WriteString(w, refused.body)
	return refused.code
}
