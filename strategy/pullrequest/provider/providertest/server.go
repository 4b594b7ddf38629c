package providertest

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server has its own errors no other way.
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Token is the only one that every Server accepts.
const Token = "providertest-token-0123456789"

// State of a pull request.
type State string

// States of a pull request.
const (
	Open   State = "open"
	Merged State = "merged"
	Closed State = "closed"
)

// PullRequest is a pull request of the server.
type PullRequest struct {
	Number            int64
	State             State
	Head, Base        string
	Title, Body       string
	HeadSHA, MergeSHA string
	Comments          []string
	Labels, Reviewers []string
	Fork              bool
	// Events that closed the pull request or opened it again, or deleted its branch.
	Events             []Event
	version            int
	headBranchIsMissed bool
}

// Event is an entry of the history of a pull request.
type Event struct {
	// Type as Gitea names it: close, reopen, delete_branch.
	Type string
	// User who caused it.
	User string
	At   time.Time
}

// Robot is the user with the Token.
const Robot = "capstan"

// person is who changes the state of pull requests by hand.
const person = "ann"

// Fault is an error in place of a request, or after the request took effect.
type Fault struct {
	// Method and Path (a part of the path) select requests; empty for all.
	Method, Path string
	// Times is how often it happens; 0 for always.
	Times int
	// After lets the request take effect first.
	After bool
	// Status, Header and Body are the response, unless Hang or Reset is set.
	Status int
	Header http.Header
	Body   []byte
	// Hang sends no response until the caller disconnects; Reset closes the connection.
	Hang, Reset bool
}

// Options of New.
type Options struct {
	// Type of the service.
	Type pipelinesv1.GitProviderType
	// Git serves the repository itself, at the path of its clone URL; nil for none.
	Git http.Handler
	// Head returns the head commit of a branch; nil means those set by SetBranch.
	Head func(branch string) (sha string, ok bool)
	// Merge is called when a pull request is merged, and returns the merge commit;
	// nil to make one up.
	Merge func(head, base, sha string) (merged string, err error)
	// Behind reports whether the service refuses to merge a branch because it does not have
	// the head of the base; nil for a service without that rule.
	Behind func(head, base string) bool
	// Around wraps the handler of the whole server, including Git; nil for none.
	Around func(http.Handler) http.Handler
	// AppKey verifies a GitHub App's own token, if given. It returns the issuer.
	AppKey func(token string) (issuer string, err error)
}

// Server is one repository at one service.
type Server struct {
	o       Options
	t       testing.TB
	http    *httptest.Server
	stopped chan struct{}

	mu sync.Mutex
	lockedState
}

type lockedState struct {
	branches   map[string]string
	prs        []*PullRequest
	labels     []string
	faults     []*Fault
	requests   []string
	appTokens  map[string]bool
	beforeActs func(*http.Request) bool
	statuses   []Status
}

// addresses are those of all servers of this process. None is used again: the Azure DevOps client keeps
// what it read from a URL until the process ends.
var addresses sync.Map

// New starts a server, which stops at the end of the test.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{o: o, t: t, stopped: make(chan struct{})}
	s.branches, s.appTokens = map[string]string{}, map[string]bool{}
	s.labels = []string{"promotion", "capstan"}
	mux := http.NewServeMux()
	switch o.Type {
	case pipelinesv1.GitHub:
		s.github(mux)
	case pipelinesv1.GitLab:
		s.gitlab(mux)
	case pipelinesv1.Gitea:
		s.gitea(mux)
	case pipelinesv1.AzureDevOps:
		s.azureDevOps(mux)
	case pipelinesv1.BitbucketServer:
		s.bitbucketServer(mux)
	default:
		t.Fatalf("unknown type %q", o.Type)
	}
	if o.Git != nil {
		mux.Handle(s.path()+"/", o.Git)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("no such path in the API of %s: %s %s", o.Type, r.Method, r.URL)
		s.refuse(w, http.StatusNotFound, "Not Found", "")
	})
	served := s.faulty(mux)
	if o.Around != nil {
		served = o.Around(served)
	}
	s.http = httptest.NewUnstartedServer(served)
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // cut connections are meant
	for address := s.http.Listener.Addr(); ; address = s.http.Listener.Addr() {
		if _, used := addresses.LoadOrStore(address.String(), true); !used {
			break
		}
		another, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = s.http.Listener.Close() // After the next one listens, which thereby has another port.
		s.http.Listener = another
	}
	s.http.StartTLS()
	t.Cleanup(func() {
		close(s.stopped)
		s.http.Close()
	})
	return s
}

// path returns the path of the repository's clone URL.
func (s *Server) path() string {
	switch s.o.Type {
	case pipelinesv1.GitLab:
		return "/fleet/platform/apps.git"
	case pipelinesv1.AzureDevOps:
		return "/fleet/platform/_git/apps"
	case pipelinesv1.BitbucketServer:
		return "/scm/FLEET/apps.git"
	case pipelinesv1.GitHub, pipelinesv1.Gitea:
	}
	return "/fleet/apps.git"
}

// URL of the repository.
func (s *Server) URL() string { return s.http.URL + s.path() }

// CA returns the CA certificate of the server, in PEM format.
func (s *Server) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
}

// SetBranch creates or moves a branch.
func (s *Server) SetBranch(name, sha string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.branches[name] = sha
	for _, pr := range s.prs {
		if pr.Head == name && pr.State == Open {
			pr.HeadSHA = sha
			pr.version++
		}
	}
}

// DeleteBranch deletes a branch, as services do after a merge.
func (s *Server) DeleteBranch(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.branches, name)
	for _, pr := range s.prs {
		if pr.Head == name {
			pr.headBranchIsMissed = true
		}
	}
}

// Add adds a pull request unchanged, and returns its number.
func (s *Server) Add(pr PullRequest) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	pr.Number = int64(len(s.prs) + 1)
	s.prs = append(s.prs, &pr)
	return pr.Number
}

// SetState sets the state of a pull request, as a person does.
func (s *Server) SetState(number int64, state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pr := s.prs[number-1]
	pr.State = state
	pr.version++
	switch state {
	case Merged:
		pr.MergeSHA = "by-hand-" + pr.HeadSHA
	case Closed:
		pr.Events = append(pr.Events, Event{Type: "close", User: person, At: time.Now()})
	case Open:
		pr.Events = append(pr.Events, Event{Type: "reopen", User: person, At: time.Now()})
	}
}

// CloseLate closes a pull request as Gitea does when it acts upon an earlier deletion of its
// branch by a user. recorded is false before it has recorded the deletion, too.
func (s *Server) CloseLate(number int64, user string, at time.Time, recorded bool) {
	s.change(number, func(pr *PullRequest) {
		pr.State = Closed
		pr.Events = append(pr.Events, Event{Type: "close", User: user, At: at})
		if recorded {
			pr.Events = append(pr.Events, Event{Type: "delete_branch", User: user, At: at})
		}
	})
}

// Edit changes title and body, as a person does.
func (s *Server) Edit(number int64, title, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pr := s.prs[number-1]
	pr.Title, pr.Body = title, body
	pr.version++
}

// PullRequests returns all pull requests, oldest first.
func (s *Server) PullRequests() []PullRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]PullRequest, 0, len(s.prs))
	for _, pr := range s.prs {
		all = append(all, *pr)
	}
	return all
}

// AddFault adds a fault.
func (s *Server) AddFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// BeforeActs calls a hook before each request other than GET and OPTIONS, until it returns
// true.
func (s *Server) BeforeActs(hook func(*http.Request) (done bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beforeActs = hook
}

// Requests returns the received requests, as "METHOD path?query".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// faulty applies faults and checks credentials.
func (s *Server) faulty(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The body must be read now, so that the server notices when the caller disconnects.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		fault, hook := s.enter(r)
		if hook != nil && !hook(r) {
			s.BeforeActs(hook)
		}
		if fault == nil || fault.After {
			to := w
			if fault != nil {
				to = httptest.NewRecorder()
			}
			switch isGit := strings.HasPrefix(r.URL.Path, s.path()+"/"); {
			case isGit, s.authorized(r):
				next.ServeHTTP(to, r)
			default:
				s.refuse(to, http.StatusUnauthorized, "Bad credentials", "")
			}
		}
		if fault != nil {
			s.fail(w, r, fault)
		}
	})
}

func (s *Server) enter(r *http.Request) (*Fault, func(*http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	var hook func(*http.Request) bool
	if r.Method != http.MethodGet && r.Method != http.MethodOptions {
		hook, s.beforeActs = s.beforeActs, nil
	}
	for i, f := range s.faults {
		if (f.Method == "" || f.Method == r.Method) && strings.Contains(r.URL.Path, f.Path) {
			if f.Times > 0 {
				if f.Times--; f.Times == 0 {
					s.faults = slices.Delete(s.faults, i, i+1)
				}
			}
			return f, hook
		}
	}
	return nil, hook
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, f *Fault) {
	switch {
	case f.Reset:
		panic(http.ErrAbortHandler)
	case f.Hang:
		select {
		case <-r.Context().Done():
		case <-s.stopped:
		}
		panic(http.ErrAbortHandler)
	default:
		for key, values := range f.Header {
			w.Header()[key] = values
		}
		w.WriteHeader(f.Status)
		_, _ = w.Write(f.Body)
	}
}

// authorized checks the credentials as the service does.
func (s *Server) authorized(r *http.Request) bool {
	user, password, isBasic := r.BasicAuth()
	header := r.Header.Get("Authorization")
	switch s.o.Type {
	case pipelinesv1.GitHub:
		if strings.HasPrefix(r.URL.Path, "/api/v3/app/") {
			return strings.HasPrefix(header, "Bearer ey") // checked by the handler
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return header == "Bearer "+Token || s.appTokens[strings.TrimPrefix(header, "Bearer ")]
	case pipelinesv1.GitLab, pipelinesv1.BitbucketServer:
		return header == "Bearer "+Token || isBasic && user != "" && password == Token && s.o.Type == pipelinesv1.BitbucketServer
	case pipelinesv1.Gitea:
		return header == "token "+Token || isBasic && user != "" && password == Token
	case pipelinesv1.AzureDevOps:
		return isBasic && user == "" && password == Token
	default:
		return false
	}
}

// refuse responds with an error in the service's form. kind is the name of an exception, for
// services that have these.
func (s *Server) refuse(w http.ResponseWriter, status int, message, kind string) {
	var body any
	switch s.o.Type {
	case pipelinesv1.GitHub:
		answer := map[string]any{"message": message, "documentation_url": "https://docs.github.com/rest", "status": fmt.Sprint(status)}
		if status == http.StatusUnprocessableEntity {
			answer["message"] = "Validation Failed"
			answer["errors"] = []any{map[string]any{"resource": "PullRequest", "code": "custom", "message": message}}
		}
		body = answer
	case pipelinesv1.GitLab:
		body = map[string]any{"message": message}
		if status == http.StatusConflict && kind == "list" {
			body = map[string]any{"message": []any{message}}
		}
	case pipelinesv1.Gitea:
		body = map[string]any{"message": message, "url": "https://gitea.test/api/swagger"}
	case pipelinesv1.AzureDevOps:
		body = map[string]any{
			"$id": "1", "innerException": nil, "message": message, "typeKey": kind, "errorCode": 0, "eventId": 3000,
			"typeName": "Microsoft.TeamFoundation.Git.Server." + kind + ", Microsoft.TeamFoundation.Git.Server",
		}
	case pipelinesv1.BitbucketServer:
		body = map[string]any{"errors": []any{map[string]any{"context": nil, "message": message, "exceptionName": "com.atlassian.bitbucket.pull." + kind}}}
	}
	s.write(w, status, body)
}

func (s *Server) write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

// decode decodes the body of a request. An invalid body fails the test.
func decode[T any](s *Server, r *http.Request) T {
	var value T
	if err := json.NewDecoder(r.Body).Decode(&value); err != nil {
		s.t.Errorf("%s %s: the body is not JSON: %v", r.Method, r.URL.Path, err)
	}
	return value
}

// Stop stops the server before the end of the test.
func (s *Server) Stop() { s.http.Close() }

// numbered calls a handler with the pull request that the path names, or responds with the
// service's error for a missing one.
func (s *Server) numbered(act func(w http.ResponseWriter, r *http.Request, pr PullRequest), missing, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if pr := s.number(r); pr != nil {
			act(w, r, s.current(*pr))
			return
		}
		s.refuse(w, http.StatusNotFound, missing, kind)
	}
}
