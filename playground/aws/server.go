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

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"k8s.io/utils/clock"
)

const (
	// bodyLimit is larger than any valid body: 1 MiB of SQS messages, encoded.
	bodyLimit = 4 << 20
	// headerTimeout of a caller that connects and sends nothing.
	headerTimeout = 10 * time.Second
)

// Options of a Server.
type Options struct {
	// Services of the server.
	Services []Service
	// Clock for the expiry of sessions and the latency of rules; the real one when nil.
	Clock clock.Clock
}

// Server is a running simulation of AWS.
type Server struct {
	services map[string]Service
	clock    clock.Clock
	http     *http.Server
	url      string
	// serving is closed when the listener ends; stopped ends when Stop is called.
	serving chan struct{}
	stopped context.Context
	stop    context.CancelFunc
	// running are the functions of Go.
	running sync.WaitGroup

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

// Start starts a server on a free loopback port.
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
		_ = s.http.Serve(listener) // It always returns an error; only Stop ends it.
	}()
	return s, nil
}

// Stop ends the server, every call under way and every function of Go.
func (s *Server) Stop() {
	s.end()
	_ = s.http.Close() // The server stops in any case.
	<-s.serving
	s.running.Wait()
}

// end cancels the context of Go's functions. No function starts after it.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// Go runs a service's function that outlives its call. The function must return soon after
// its context ends: Stop waits for it. Go does nothing after Stop.
func (s *Server) Go(run func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Err() != nil {
		return
	}
	s.running.Go(func() { run(s.stopped) })
}

// Clock returns the clock of the server.
func (s *Server) Clock() clock.Clock { return s.clock }

// URL returns the endpoint of all services.
func (s *Server) URL() string { return s.url }

// Env returns the environment in which the SDKs and tools of AWS call this server with the
// root's credentials, and use no other credentials.
func (s *Server) Env() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": s.url,
		// The SDK for Go only reads this one when it exchanges the token of a web identity.
		"AWS_ENDPOINT_URL_STS":        s.url,
		"AWS_ACCESS_KEY_ID":           AccessKeyID,
		"AWS_SECRET_ACCESS_KEY":       SecretAccessKey,
		"AWS_REGION":                  HomeRegion,
		"AWS_EC2_METADATA_DISABLED":   "true",
		"AWS_CONFIG_FILE":             "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	}
}

// LoadOptions are for LoadDefaultConfig of the AWS SDK for Go, and have the effect of Env
// for one configuration instead of the whole process.
func (s *Server) LoadOptions() []func(*config.LoadOptions) error {
	return []func(*config.LoadOptions) error{
		config.WithBaseEndpoint(s.url),
		config.WithRegion(HomeRegion),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(AccessKeyID, SecretAccessKey, "")),
		config.WithSharedConfigFiles([]string{}),
		config.WithSharedCredentialsFiles([]string{}),
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	at := s.clock.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		http.Error(w, "the request body cannot be read, or is too large", http.StatusBadRequest)
		return
	}
	c := &Call{Server: s, Request: r, Body: body, Form: formOf(r, body)}
	c.Action = actionOf(r, c.Form)
	service, fault := s.find(c)
	if service == nil {
		http.Error(w, "this server has no service for this call", http.StatusForbidden)
		return
	}
	s.begin(c)
	// A call that hung is counted too.
	defer func() { s.record(c, at, fault) }()
	if fault == nil {
		fault = s.answer(w, c, service)
	}
	if fault != nil {
		service.Refuse(w, fault)
	}
}

// find returns the service of a call, and sets its caller.
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
	c.Account = AccountOf(c.Caller)
	return service, fault
}

// answer applies a rule to a call, or lets its service answer.
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
		panic(http.ErrAbortHandler) // This closes the connection without a response.
	}
	if rule.Cut {
		panic(http.ErrAbortHandler)
	}
	if rule.Deny {
		return denied(service, c)
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

// actionOf returns the action of a call: a parameter in the query protocols, the end of a
// header in the JSON protocols.
func actionOf(r *http.Request, form url.Values) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndexByte(target, '.')+1:]
	}
	return form.Get("Action")
}
