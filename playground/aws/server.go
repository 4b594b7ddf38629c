package aws

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// bodyLimit is above what any call may carry: 1 MiB of messages of SQS, encoded.
	bodyLimit = 4 << 20
	// headerTimeout of a caller that dials and says nothing.
	headerTimeout = 10 * time.Second
)

// Options of a Server.
type Options struct {
	// Services that answer.
	Services []Service
	// Clock that sessions expire and rules wait by; the real one when nil.
	Clock clock.Clock
}

// Server is a running AWS.
type Server struct {
	services map[string]Service
	clock    clock.Clock
	http     *http.Server
	url      string
	// serving ends when the listener does, and stopped when Stop is called.
	serving chan struct{}
	stopped context.Context
	stop    context.CancelFunc

	// mu guards the fields that follow.
	mu sync.Mutex
	// rules, newest first.
	rules []*activeRule
	// sessions by access key.
	sessions map[string]Session
	records  []Record
	tallies  map[tally]int
	underWay map[*Call]struct{}
}

// Start a server on a free port of loopback.
func Start(o Options) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for calls of AWS: %w", err)
	}
	s := &Server{
		services: map[string]Service{},
		clock:    o.Clock,
		url:      "http://" + listener.Addr().String(),
		serving:  make(chan struct{}),
		sessions: map[string]Session{},
		tallies:  map[tally]int{},
		underWay: map[*Call]struct{}{},
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	for _, service := range o.Services {
		s.services[service.Name()] = service
	}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: headerTimeout}
	go func() {
		defer close(s.serving)
		_ = s.http.Serve(listener) // It ends by Stop alone, and says so.
	}()
	return s, nil
}

// Stop ends the server and every call under way.
func (s *Server) Stop() {
	s.stop()
	_ = s.http.Close() // Nothing is left to be told.
	<-s.serving
}

// URL of all services.
func (s *Server) URL() string { return s.url }

// Env is the environment in which AWS' SDKs and tools call this server as its root,
// and look for credentials nowhere else.
func (s *Server) Env() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": s.url,
		// Where the SDK for Go trades a web identity's token by itself, it reads this one
		// only.
		"AWS_ENDPOINT_URL_STS":        s.url,
		"AWS_ACCESS_KEY_ID":           AccessKeyID,
		"AWS_SECRET_ACCESS_KEY":       SecretAccessKey,
		"AWS_REGION":                  HomeRegion,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_CONFIG_FILE":             "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	at := s.clock.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	c := &Call{Server: s, Request: r, Body: body, Form: formOf(r, body)}
	c.Action = actionOf(r, c.Form)
	service, fault := s.find(c)
	if service == nil {
		http.Error(w, "no service here answers this call", http.StatusForbidden)
		return
	}
	s.begin(c)
	// Also a call that hung is counted.
	defer func() { s.end(c, at, fault) }()
	if fault == nil {
		fault = s.answer(w, c, service)
	}
	if fault != nil {
		service.Refuse(w, fault)
	}
}

// find the service of a call, and its caller.
func (s *Server) find(c *Call) (Service, *Fault) {
	keyID, region, name, signed := scope(c.Request)
	if !signed {
		for _, service := range s.services {
			if service.Anonymous(c.Action) {
				c.Service = service.Name()
				return service, nil
			}
		}
		return nil, nil
	}
	c.Service, c.Region = name, region
	service := s.services[name]
	if service == nil {
		return nil, nil
	}
	var fault *Fault
	c.Caller, fault = s.identify(c.Request, keyID)
	return service, fault
}

// answer a call as rules and its service will.
func (s *Server) answer(w http.ResponseWriter, c *Call, service Service) *Fault {
	rule := s.ruleFor(c)
	canceled := c.Request.Context().Done()
	if rule.Latency > 0 {
		timer := s.clock.NewTimer(rule.Latency)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-canceled:
		case <-s.stopped.Done():
		}
	}
	if rule.Hang {
		select {
		case <-canceled:
		case <-s.stopped.Done():
		}
		panic(http.ErrAbortHandler) // The connection ends without a byte.
	}
	if rule.Fault != nil {
		return rule.Fault
	}
	return service.Serve(w, c)
}

func formOf(r *http.Request, body []byte) url.Values {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil
	}
	return form
}

// actionOf a call: a parameter of the query protocols, the end of a header of the
// JSON ones.
func actionOf(r *http.Request, form url.Values) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndexByte(target, '.')+1:]
	}
	return form.Get("Action")
}
