package commitstatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/notice"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// genre is the first part of the name of a check.
const genre = "capstan"

// Options of a Sink.
type Options struct {
	// Config of a backend of type commitstatus.
	Config schema.Config
	// Secret is the data of the Secret.
	Secret map[string][]byte
	// Hosts to which the credentials of the Secret may be sent.
	Hosts allowedhosts.Rule
	// DashboardURL is the external address of the dashboard, for links; empty for none.
	DashboardURL string
	// Proxy of the administrator for Git services; nil for none.
	Proxy *egress.Proxy
	Clock clock.PassiveClock
	// AllowLoopback allows addresses of this machine: for tests and the playground.
	AllowLoopback bool
}

// Sink sets states of checks in one repository.
type Sink struct {
	o         Options
	git       provider.Provider
	pipelines []string
}

var _ sink.Sink = &Sink{}

// Open makes a Sink without a connection. The error is about the Secret, or the repository.
func Open(o Options) (*Sink, error) {
	credentials, err := provider.CredentialsOf(o.Secret)
	if err != nil {
		return nil, fmt.Errorf("%w: it %w", wire.ErrSecret, err)
	}
	git, err := provider.New(provider.Options{
		Type: pipelinesv1.GitProviderType(o.Config.String("provider")), URL: o.Config.String("repository"), APIURL: o.Config.String("apiUrl"),
		Credentials: credentials, CABundle: o.Secret[provider.KeyCA], AllowLoopback: o.AllowLoopback, Proxy: o.Proxy,
		Timeout: o.Config.Duration("requestTimeout"), Clock: o.Clock,
	})
	if err != nil {
		return nil, err
	}
	if err := wire.CheckHosts(o.Hosts, git.Repository().CloneURL, git.Repository().APIURL); err != nil {
		return nil, err
	}
	return &Sink{o: o, git: git, pipelines: o.Config.List("pipelines")}, nil
}

// Ping requests the service's page without credentials: any answer shows that it is reachable. A token
// may have no right except to set states of checks, so nothing else can be tested.
func (s *Sink) Ping(ctx context.Context) error {
	server := s.git.Repository().Server
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, server+"/", http.NoBody)
	if err != nil {
		return wire.CallError(server, err)
	}
	answer, err := s.git.Transport().RoundTrip(request)
	if err != nil {
		return wire.CallError(request.URL.Host, err)
	}
	return answer.Body.Close()
}

// Publish implements sink.Sink.
func (s *Sink) Publish(ctx context.Context, e ce.Event) error {
	n, err := notice.Of(e, s.o.DashboardURL)
	if err != nil {
		return sink.Errorf(sink.Refused, "malformed", "%w", err)
	}
	status, show := s.status(n)
	if !show {
		return nil
	}
	return failure(s.git.SetStatus(ctx, status))
}

// status returns the state of the check for an event; false if the event changes none.
func (s *Sink) status(n notice.Notice) (provider.CommitStatus, bool) {
	p := n.Promotion
	if p == nil || n.Kind == event.PromotionOverridden || !s.selects(p.Namespace+"/"+p.Pipeline) {
		return provider.CommitStatus{}, false
	}
	commit, err := revision.Value(p.Revision, revision.Commit)
	if err != nil {
		return provider.CommitStatus{}, false // It has no commit.
	}
	what, _, _ := strings.Cut(n.Title, ":")
	if why := strings.TrimSpace(cmp.Or(n.Text, n.Reason)); why != "" {
		what += ": " + strings.Join(strings.Fields(why), " ")
	}
	return provider.CommitStatus{
		SHA: commit, Context: provider.StatusContext{Genre: genre, Name: p.Namespace + "/" + p.Pipeline + "/" + p.ToEnvironment},
		State: state(n.Kind, p), Description: what, URL: cmp.Or(n.URL, webURL(n.PullRequestURL), s.git.Repository().CloneURL),
	}, true
}

// selects reports whether the key pipelines selects a Pipeline, as namespace/name.
func (s *Sink) selects(pipeline string) bool {
	return slices.ContainsFunc(s.pipelines, func(pattern string) bool {
		fits, err := path.Match(pattern, pipeline)
		return fits && err == nil
	})
}

// nothingNew is the reason of a promotion that ended because the environment has all of the revision already.
const nothingNew = "NothingNew"

// state of the check after an event.
func state(k event.Kind, p *event.Promotion) provider.StatusState {
	switch k { //nolint:exhaustive // All others are pending.
	case event.PromotionSucceeded:
		return provider.StatusSuccess
	case event.PromotionFailed, event.PromotionRejected:
		return provider.StatusFailure
	case event.PromotionSuperseded:
		if p.CarriedOut || p.Reason == nothingNew {
			return provider.StatusSuccess // The environment got the commit, or has what it brings.
		}
		return provider.StatusCanceled
	}
	return provider.StatusPending
}

// webURL returns an http or https URL; empty for any other text.
func webURL(text string) string {
	if u, err := url.Parse(text); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" {
		return ""
	}
	return text
}

// failure returns the error of a sink for that of a Git service.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var of *provider.Error
	if !errors.As(err, &of) {
		return sink.Of(err)
	}
	result := &sink.Error{Class: sink.Refused, Code: "refused", RetryAfter: of.RetryAfter, Err: err}
	switch of.Class {
	case provider.NotFound, provider.Validation:
		return sink.Errorf(sink.Refused, "no-commit", "%w", err)
	case provider.Unauthorized:
		result.Class, result.Code = sink.Unavailable, sink.CodeUnauthorized
	case provider.Forbidden:
		result.Class, result.Code = sink.Unavailable, sink.CodeForbidden
	case provider.Invalid: // Open checked the other options.
		result.Class, result.Code = sink.Unavailable, sink.CodeForbiddenAddress
	case provider.Untrusted:
		result.Class, result.Code = sink.Unavailable, sink.CodeUnreachable
	case provider.RateLimited:
		result.Class, result.Code = sink.Transient, "http-429"
	case provider.Transient:
		result.Class, result.Code = sink.Transient, sink.CodeUnreachable
		if of.TimedOut {
			result.Code = sink.CodeTimeout
		}
	case provider.Unsupported, provider.AlreadyExists, provider.HeadMoved, provider.Conflict, provider.NotMergeable:
	}
	return result
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error {
	s.git.CloseIdle()
	return nil
}
