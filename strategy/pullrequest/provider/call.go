package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/truncate"
)

const (
	// defaultTimeout of one request. Services respond within seconds; GitLab aborts a
	// request after 60 s.
	defaultTimeout = 30 * time.Second

	// maxCall bounds one call of the interface, with all its pages.
	maxCall = 2 * time.Minute

	// pageSize is the largest page of all services except Gitea (50) and Bitbucket Server
	// (1000; its operators may lower it).
	pageSize = 100

	// maxPages bounds one list: a thousand promotions into one environment or, for Gitea,
	// which cannot filter, the newest 2,000 pull requests of the repository.
	maxPages = 40

	// maxNames bounds the labels or reviewers of one call. More is a mistake, and some
	// services need a request for each.
	maxNames = 50
)

// Names of calls on which the meaning of an error depends.
const (
	opFind  = "find pull requests"
	opGet   = "get pull request"
	opMerge = "merge pull request"
)

// backend is the part that differs between the services. Its methods may panic, and return
// errors of any type: guarded converts both.
type backend interface {
	limits() Limits
	list(ctx context.Context, q Query) ([]PullRequest, error)
	get(ctx context.Context, number int64) (PullRequest, error)
	create(ctx context.Context, n NewPullRequest) (PullRequest, error)
	update(ctx context.Context, number int64, e Edit) (PullRequest, error)
	// merge and close are called with a pull request that was just read and is open.
	// close writes its body back in the same request, where the service can.
	merge(ctx context.Context, pr PullRequest, m MergeOptions) error
	close(ctx context.Context, pr PullRequest) error
	comment(ctx context.Context, number int64, text string) error
	comments(ctx context.Context, number int64) ([]string, error)
	addLabels(ctx context.Context, number int64, labels []string) error
	requestReviews(ctx context.Context, number int64, reviewers []string) error
	setStatus(ctx context.Context, status CommitStatus) error
}

// lateCloser is a backend of a service that acts upon the deletion of a branch some time
// later.
type lateCloser interface {
	closure(ctx context.Context, number int64) (Closure, error)
	// reopen is called with a pull request that was just read and is closed.
	reopen(ctx context.Context, number int64) (PullRequest, error)
}

// guarded implements Provider with any backend.
type guarded struct {
	kind       pipelinesv1.GitProviderType
	repository Repository
	backend    backend
	wire       *wire
	authorizer *authorizer
}

var _ Provider = &guarded{}

// Type implements Provider.
func (p *guarded) Type() pipelinesv1.GitProviderType { return p.kind }

// Repository implements Provider.
func (p *guarded) Repository() Repository { return p.repository }

// Limits implements Provider.
func (p *guarded) Limits() Limits { return p.backend.limits() }

// Transport implements Provider.
func (p *guarded) Transport() http.RoundTripper { return p.wire.base }

// ForgetToken implements Provider.
func (p *guarded) ForgetToken() { p.authorizer.forget() }

// CloseIdle implements Provider.
func (p *guarded) CloseIdle() { p.wire.base.CloseIdleConnections() }

// Find implements Provider.
func (p *guarded) Find(ctx context.Context, q Query) (found []PullRequest, err error) {
	err = p.do(ctx, opFind, func(ctx context.Context) error {
		if q.Head == "" || q.Base == "" {
			return refused(Validation, "head and base branch are required")
		}
		found, err = p.backend.list(ctx, q)
		if err == nil && q.Limit > 0 && len(found) > q.Limit {
			found = found[:q.Limit]
		}
		return err
	})
	if err != nil {
		return nil, p.misfit(ctx, err)
	}
	return found, nil
}

// Get implements Provider.
func (p *guarded) Get(ctx context.Context, number int64) (PullRequest, error) {
	return p.one(ctx, opGet, func(ctx context.Context) (PullRequest, error) {
		return p.backend.get(ctx, number)
	})
}

// Create implements Provider.
func (p *guarded) Create(ctx context.Context, n NewPullRequest) (PullRequest, error) {
	return p.one(ctx, "create pull request", func(ctx context.Context) (PullRequest, error) {
		if n.Head == "" || n.Base == "" || n.Title == "" {
			return PullRequest{}, refused(Validation, "head branch, base branch and title are required")
		}
		return p.backend.create(ctx, n)
	})
}

// Update implements Provider.
func (p *guarded) Update(ctx context.Context, number int64, e Edit) (PullRequest, error) {
	return p.one(ctx, "update pull request", func(ctx context.Context) (PullRequest, error) {
		switch {
		case e.Title != nil && *e.Title == "":
			return PullRequest{}, refused(Validation, "the title cannot be empty")
		case e.Title == nil && e.Body == nil:
			return p.backend.get(ctx, number)
		default:
			return p.backend.update(ctx, number, e)
		}
	})
}

// Merge implements Provider.
func (p *guarded) Merge(ctx context.Context, number int64, m MergeOptions) (PullRequest, error) {
	return p.one(ctx, opMerge, func(ctx context.Context) (PullRequest, error) {
		if m.HeadSHA == "" {
			return PullRequest{}, refused(Validation, "the commit to merge is required")
		}
		pr, err := p.backend.get(ctx, number)
		if err != nil {
			return PullRequest{}, err
		}
		switch pr.State {
		case Merged:
			return pr, nil
		case Closed:
			return PullRequest{}, refused(Conflict, "the pull request is closed")
		case Open:
		}
		if !strings.EqualFold(pr.HeadSHA, m.HeadSHA) {
			return PullRequest{}, refused(HeadMoved, "the head of the pull request is %.12q, not %.12q", pr.HeadSHA, m.HeadSHA)
		}
		if err := p.backend.merge(ctx, pr, m); err != nil {
			var refusal *Error
			if errors.As(err, &refusal) && refusal.Class == NotMergeable {
				refusal.Behind = pr.behind || behind(refusal.Message)
			}
			return PullRequest{}, err
		}
		return p.backend.get(ctx, number)
	})
}

// Close implements Provider.
func (p *guarded) Close(ctx context.Context, number int64, c Closing) (PullRequest, error) {
	return p.one(ctx, "close pull request", func(ctx context.Context) (PullRequest, error) {
		pr, err := p.backend.get(ctx, number)
		if err != nil || !c.still(pr) {
			return pr, err
		}
		if c.Comment != "" {
			if err := p.commentOnce(ctx, number, c.Comment); err != nil {
				return PullRequest{}, err
			}
			if pr, err = p.backend.get(ctx, number); err != nil || !c.still(pr) {
				return pr, err
			}
		}
		if err := p.backend.close(ctx, pr); err != nil {
			return PullRequest{}, err
		}
		return p.backend.get(ctx, number)
	})
}

// Closure implements Provider.
func (p *guarded) Closure(ctx context.Context, number int64) (closure Closure, err error) {
	late, ok := p.backend.(lateCloser)
	if !ok {
		return ByRequest, nil
	}
	err = p.do(ctx, "get the events of a pull request", func(ctx context.Context) error {
		closure, err = late.closure(ctx, number)
		return err
	})
	if err != nil {
		return "", err
	}
	return closure, nil
}

// Reopen implements Provider.
func (p *guarded) Reopen(ctx context.Context, number int64) (PullRequest, error) {
	return p.one(ctx, "reopen pull request", func(ctx context.Context) (PullRequest, error) {
		late, ok := p.backend.(lateCloser)
		if !ok {
			return PullRequest{}, refused(Unsupported, "the service closes no pull request late")
		}
		pr, err := p.backend.get(ctx, number)
		if err != nil || pr.State != Closed {
			return pr, err
		}
		return late.reopen(ctx, number)
	})
}

// commentOnce adds a comment, unless an earlier call that failed afterwards has added it.
func (p *guarded) commentOnce(ctx context.Context, number int64, text string) error {
	existing, err := p.backend.comments(ctx, number)
	if err != nil {
		return err
	}
	same := func(other string) bool {
		return strings.Join(strings.Fields(other), " ") == strings.Join(strings.Fields(text), " ")
	}
	if slices.ContainsFunc(existing, same) {
		return nil
	}
	return p.backend.comment(ctx, number, text)
}

// AddLabels implements Provider.
func (p *guarded) AddLabels(ctx context.Context, number int64, labels []string) error {
	return p.names(ctx, "add labels", labels, func(ctx context.Context) error {
		return p.backend.addLabels(ctx, number, labels)
	})
}

// RequestReviews implements Provider.
func (p *guarded) RequestReviews(ctx context.Context, number int64, reviewers []string) error {
	return p.names(ctx, "request reviews", reviewers, func(ctx context.Context) error {
		return p.backend.requestReviews(ctx, number, reviewers)
	})
}

// SetStatus implements Provider.
func (p *guarded) SetStatus(ctx context.Context, status CommitStatus) error {
	return p.do(ctx, "set commit status", func(ctx context.Context) error {
		if status.SHA == "" || status.Context.Name == "" || status.State == "" {
			return refused(Validation, "a commit, a name and a state are required")
		}
		status.Description = truncate.Runes(status.Description, maxStatus)
		return p.backend.setStatus(ctx, status)
	})
}

// GitCredentials implements Provider.
func (p *guarded) GitCredentials(ctx context.Context) (username, password string, err error) {
	err = p.do(ctx, "get Git credentials", func(ctx context.Context) error {
		username, password, err = p.authorizer.git(ctx, p.wire.clock.Now())
		return err
	})
	return username, password, err
}

func (p *guarded) names(ctx context.Context, op string, names []string, act func(context.Context) error) error {
	switch {
	case len(names) == 0:
		return nil
	case len(names) > maxNames:
		return p.explain(ctx, op, refused(Validation, "%d names were given, and the limit is %d", len(names), maxNames))
	}
	return p.do(ctx, op, act)
}

// one is do for calls that return a pull request. A vendor's client that decodes a response
// of another form leaves fields empty instead of failing. A pull request without a number,
// a state or branches is such a response.
func (p *guarded) one(ctx context.Context, op string, act func(context.Context) (PullRequest, error)) (PullRequest, error) {
	var pr PullRequest
	err := p.do(ctx, op, func(ctx context.Context) error {
		var err error
		if pr, err = act(ctx); err != nil {
			return err
		}
		return pr.check()
	})
	if err != nil {
		return PullRequest{}, err
	}
	return pr, nil
}

func (pr PullRequest) check() error {
	if pr.Number <= 0 || pr.State == "" || pr.Head == "" || pr.Base == "" {
		return unreadable("the response is not a pull request of the service's API")
	}
	return nil
}

// do runs an act within maxCall, and converts its error or panic into an *Error.
func (p *guarded) do(parent context.Context, op string, act func(context.Context) error) (err error) {
	if parent.Err() != nil {
		return p.explain(parent, op, parent.Err())
	}
	ctx, cancel := context.WithTimeoutCause(parent, maxCall, errSlow)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			// The vendors' clients use pointers that an unexpected response leaves nil.
			err = p.explain(parent, op, refused(Transient, "the response could not be read: %v", r))
		}
	}()
	if err := act(ctx); err != nil {
		return p.explain(parent, op, err)
	}
	return nil
}

// explain makes an *Error of any error of an act.
func (p *guarded) explain(parent context.Context, op string, err error) error {
	var known *Error
	explained := &Error{Class: Transient}
	switch {
	case errors.As(err, &known):
		*explained = *known
	case parent.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		explained.TimedOut = true
		explained.Message = fmt.Sprintf("did not end within %s", maxCall)
	case parent.Err() == nil:
		// All other errors are of decoding.
		explained.Message, explained.foreign = "the response could not be read: "+p.wire.clean(err.Error()), true
	}
	if parent.Err() != nil {
		explained.Class, explained.Err = Transient, parent.Err()
		explained.Message = parent.Err().Error()
	}
	if explained.Class == NotMergeable && op != opMerge &&
		(explained.Status == http.StatusMethodNotAllowed || explained.Status == http.StatusNotAcceptable) {
		// The address has no such API.
		explained.Class, explained.Remedy = NotFound, remedy(p.kind, NotFound, nil)
	}
	if explained.Class == NotFound && op != opGet {
		explained.Message = p.notFound(explained.Message)
	}
	explained.Provider, explained.Op = p.kind, op
	explained.Message = p.wire.clean(explained.Message)
	return explained
}

// plainly matches messages that say no more than the status 404.
var plainly = regexp.MustCompile(`(?i)^(404 )?(project )?(not found|method not allowed|not acceptable)\.?$|^The target couldn't be found\.$|^$`)

// notFound returns the message for a resource that does not exist: services say of a
// repository that the token cannot see that it does not exist.
func (p *guarded) notFound(message string) string {
	text := fmt.Sprintf("repository %s not found, or the token cannot see it", p.repository)
	if plainly.MatchString(message) {
		return text
	}
	return text + ": " + message
}
