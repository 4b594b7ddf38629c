package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

const (
	// apiPath begins the addresses of the JSON API, and apiRoot is its only version.
	apiPath = "/api/"
	apiRoot = apiPath + "v1/"
	// deliveryAPI are the delivery figures.
	deliveryAPI = apiRoot + "delivery"

	// bearer begins the value of the header Authorization with a token (RFC 6750).
	bearer = "Bearer "
)

// Parameters of the JSON API.
const (
	apiNamespace = "namespace"
	apiPipeline  = "pipeline"
)

// apiEndpoint is an entry of the index.
type apiEndpoint struct {
	Path        string   `json:"path"`
	Parameters  []string `json:"parameters"`
	Description string   `json:"description"`
}

// apiEndpoints are all endpoints of the JSON API.
var apiEndpoints = []apiEndpoint{{
	Path: deliveryAPI, Parameters: []string{apiNamespace, apiPipeline},
	Description: "delivery figures (DORA) of the last 30 days: of all that you may see, of a namespace, or of a Pipeline",
}}

// apiError is the body of an answer without a result.
type apiError struct {
	Message string `json:"message"`
}

// errLimited is returned for a client with too many attempts to sign in, or too many refused tokens.
var errLimited = errors.New("too many tokens that are not known: wait some seconds and try again")

// api are the routes of the JSON API.
func (s *Server) api() http.Handler {
	mux := http.NewServeMux()
	handle := func(path, route string, h http.HandlerFunc) {
		mux.HandleFunc(path, s.measured(route, s.bounded(s.get(h))))
	}
	handle(deliveryAPI, deliveryAPI, s.delivery)
	handle(apiPath, apiPath, s.index)
	return mux
}

// index lists the endpoints.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != apiRoot {
		s.refuseCall(w, r, http.StatusNotFound, "no endpoint has the path "+r.URL.Path+": "+apiRoot+" lists all endpoints")
		return
	}
	if _, err := s.caller(r.Context(), r); err != nil {
		s.uncalled(w, r, err)
		return
	}
	s.answer(w, r, http.StatusOK, map[string]any{"endpoints": apiEndpoints})
}

// get refuses all methods but GET and HEAD, as JSON.
func (s *Server) get(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet+", "+http.MethodHead)
			s.refuseCall(w, r, http.StatusMethodNotAllowed, "the method "+r.Method+" is not allowed: use GET")
			return
		}
		h(w, r)
	}
}

// delivery answers with the delivery figures.
func (s *Server) delivery(w http.ResponseWriter, r *http.Request) {
	v, err := s.caller(r.Context(), r)
	if err != nil {
		s.uncalled(w, r, err)
		return
	}
	query, err := parameters(r.URL.RawQuery, apiNamespace, apiPipeline)
	if err != nil {
		s.refuseCall(w, r, http.StatusBadRequest, err.Error())
		return
	}
	of := view.DeliveryOf{Namespace: query.Get(apiNamespace), Pipeline: query.Get(apiPipeline)}
	if of.Pipeline != "" && of.Namespace == "" {
		s.refuseCall(w, r, http.StatusBadRequest, "the parameter pipeline needs the parameter namespace")
		return
	}
	if v.scope.Promotions.Empty() {
		s.refuseCall(w, r, http.StatusForbidden, "you may not "+view.NeedPromotions+" in any namespace that has promotions")
		return
	}
	report, found := view.DeliveryReportOf(v.facts, v.scope, of)
	if !found {
		what := "namespace " + of.Namespace
		if of.Pipeline != "" {
			what = "Pipeline " + of.Namespace + "/" + of.Pipeline
		}
		s.refuseCall(w, r, http.StatusNotFound, what+" does not exist, has no promotions, or you may not "+view.NeedPromotions+" there")
		return
	}
	s.answer(w, r, http.StatusOK, report)
}

// parameters parses a query in which only the given parameters may be, each once.
func parameters(raw string, allowed ...string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil || len(raw) > maxAddress {
		return nil, errors.New("the query of the address cannot be parsed")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(allowed, name):
			return nil, fmt.Errorf("the parameter %q does not exist: use %s", name, strings.Join(allowed, " or "))
		case len(values) > 1:
			return nil, fmt.Errorf("the parameter %s has %d values: give one", name, len(values))
		}
	}
	return query, nil
}

// caller is the viewer of a request of the JSON API. A token of the management cluster in the header Authorization takes the
// place of a session. Errors are those of viewer, and errLimited.
func (s *Server) caller(ctx context.Context, r *http.Request) (viewer, error) {
	header := r.Header.Get("Authorization")
	if s.Auth == AuthNone || header == "" {
		return s.viewer(ctx, r)
	}
	var v viewer
	token := ""
	if len(header) > len(bearer) && strings.EqualFold(header[:len(bearer)], bearer) {
		token = strings.TrimSpace(header[len(bearer):])
	}
	if token == "" || len(token) > MaxToken {
		return v, errNotAuthenticated
	}
	// A token that was accepted in the last minute costs nothing; any other one is reviewed by the API server.
	if !s.reviewer.accepted(token) && !s.limiter.allow(r.RemoteAddr, s.Clock.Now()) {
		s.metrics.signIns.WithLabelValues(methodToken, "limited").Inc()
		return v, errLimited
	}
	var err error
	if v.user, err = s.reviewer.review(ctx, token); err != nil {
		if mustSignIn(err) {
			s.metrics.signIns.WithLabelValues(methodToken, "refused").Inc()
			s.Logger.V(1).Info("token of a request refused", "client", r.RemoteAddr)
		}
		return v, err
	}
	if v.facts, err = s.source.facts(ctx); err != nil {
		return v, err
	}
	v.scope, err = s.access.scope(ctx, v.user, v.facts)
	return v, err
}

// uncalled answers a request without a viewer.
func (s *Server) uncalled(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errLimited):
		w.Header().Set("Retry-After", "6")
		s.refuseCall(w, r, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, errNoSession):
		w.Header().Set("WWW-Authenticate", `Bearer realm="capstan"`)
		s.refuseCall(w, r, http.StatusUnauthorized, `the request has no session and no header "Authorization: Bearer TOKEN" with a token of the management cluster`)
	case mustSignIn(err):
		w.Header().Set("WWW-Authenticate", `Bearer realm="capstan", error="invalid_token"`)
		s.refuseCall(w, r, http.StatusUnauthorized, err.Error())
	case errors.Is(err, errNotReady):
		w.Header().Set("Retry-After", "2")
		s.refuseCall(w, r, http.StatusServiceUnavailable, "the hub cannot answer at the moment: "+err.Error())
	default:
		s.Logger.Error(err, "answering a request", "path", r.URL.Path)
		w.Header().Set("Retry-After", "2")
		s.refuseCall(w, r, http.StatusServiceUnavailable, "the hub cannot answer at the moment; its log has the reason")
	}
}

// refuseCall answers with an error.
func (s *Server) refuseCall(w http.ResponseWriter, r *http.Request, code int, message string) {
	s.answer(w, r, code, apiError{message})
}

// answer sends a value as JSON.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, code int, value any) {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		s.Logger.Error(err, "encoding an answer", "path", r.URL.Path)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	send(w, r, code, append(body, '\n'))
}
