package provider

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// State of a pull request.
type State string

// States of a pull request. A draft is Open; so is what a service is merging.
const (
	Open   State = "open"
	Merged State = "merged"
	Closed State = "closed"
)

// PullRequest as a service answered it.
type PullRequest struct {
	// Number by which people and the API name it within its repository.
	Number int64
	// URL of its page.
	URL string
	// State it is in.
	State State
	// HeadSHA is the commit at its head as far as the service has looked; empty
	// when the service does not know it (any more).
	HeadSHA string
	// MergeSHA is the commit on the base branch that it was merged as; empty until
	// it is merged, and where the service does not tell.
	MergeSHA string
	// Title and Body as they are now. Body is never cut.
	Title, Body string
	// Head and Base are branch names, without refs/heads/.
	Head, Base string

	// version is Bitbucket Server's optimistic lock.
	version int
}

// Query asks for pull requests from one branch into another of the same
// repository.
type Query struct {
	// Head and Base are branch names, without refs/heads/. Both are required.
	Head, Base string
	// Limit ends the search when so many were found; 0 for all within the bounds
	// of the package.
	Limit int
}

// NewPullRequest is a pull request to open.
type NewPullRequest struct {
	// Head and Base are branch names, without refs/heads/. Both are required.
	Head, Base string
	// Title is required; Title and Body must keep within Limits.
	Title, Body string
}

// Edit is what to change of a pull request; nil leaves a field alone.
type Edit struct {
	Title, Body *string
}

// Closing is how a pull request is closed.
type Closing struct {
	// Comment that is left on it before; none when empty.
	Comment string
	// Still tells whether it is to be closed as it is now. It is asked before the
	// comment, and again right before the close; nil for always.
	Still func(PullRequest) bool
}

func (c Closing) still(pr PullRequest) bool {
	return pr.State == Open && (c.Still == nil || c.Still(pr))
}

// MergeOptions of Merge.
type MergeOptions struct {
	// HeadSHA that the pull request must have at its head. Required.
	HeadSHA string
	// Message of the merge commit; the service's own when empty. GitLab and
	// Bitbucket Server use it where the repository merges by a merge commit.
	Message string
}

// Limits of a service on what is sent to it, in characters; 0 when it names none.
type Limits struct {
	Title, Body int
	// Labels tells whether pull requests can have labels.
	Labels bool
}

// Provider is a service, seen as the keeper of one repository's pull requests.
// All errors are of type *Error.
type Provider interface {
	// Type of the service.
	Type() pipelinesv1.GitProviderType

	// Repository that it speaks of.
	Repository() Repository

	// Limits of the service.
	Limits() Limits

	// Find returns the pull requests from one branch into another in every state,
	// the newest first. Those from forks are left out. None is no error.
	Find(ctx context.Context, q Query) ([]PullRequest, error)

	// Get returns one pull request; ErrNotFound when there is none of the number.
	Get(ctx context.Context, number int64) (PullRequest, error)

	// Create opens a pull request. ErrAlreadyExists when one is open for the same
	// branches: Find it and adopt it. ErrValidation when the service will not have
	// it: a branch is missing or there is nothing to merge.
	Create(ctx context.Context, n NewPullRequest) (PullRequest, error)

	// Update changes title and body.
	Update(ctx context.Context, number int64, e Edit) (PullRequest, error)

	// Merge merges an open pull request whose head is the given commit. One that is
	// merged already is returned as it is. ErrHeadMoved when its head is another
	// commit, ErrNotMergeable when checks, reviews, conflicts or rules stand
	// against it, ErrConflict when it is closed. Azure DevOps merges in the
	// background: the answer may be Open still.
	Merge(ctx context.Context, number int64, m MergeOptions) (PullRequest, error)

	// Close closes an open pull request after leaving a comment, if there is one to
	// leave. One that is not open, or not to be closed as it is now, is returned so. A
	// call that fails in between says it again when repeated.
	//
	// What is asked of it right before the close may have changed when the close
	// arrives: no service but Bitbucket Server closes by version (ErrConflict then).
	// GitHub, GitLab and Gitea close it with the body that was seen: a claim that
	// another wrote in between goes, and they see that.
	Close(ctx context.Context, number int64, c Closing) (PullRequest, error)

	// AddLabels adds labels by name to those it has. Labels that the service does
	// not know are made, except on Gitea, where that is ErrValidation.
	// ErrUnsupported on Bitbucket Server.
	AddLabels(ctx context.Context, number int64, labels []string) error

	// RequestReviews asks people to review, beside those asked already: user names;
	// on Azure DevOps identity ids (GUIDs).
	RequestReviews(ctx context.Context, number int64, reviewers []string) error

	// GitCredentials are what Git's basic authentication over HTTPS wants. A GitHub
	// App's are valid for at least five minutes more.
	GitCredentials(ctx context.Context) (username, password string, err error)

	// Transport for Git at the same service: trusted CAs and guarded addresses as
	// for its API, and as long until an answer begins, without credentials, and
	// without bounds of an answer's time or size.
	Transport() http.RoundTripper

	// Close connections that idle. The Provider must not be used afterwards.
	CloseIdle()
}

// Options of New.
type Options struct {
	// Type of the service. Required.
	Type pipelinesv1.GitProviderType
	// URL of the repository, by HTTPS, as given to git clone. Required.
	URL string
	// APIURL of the service, where it cannot be told from URL: a GitLab under a
	// relative URL ("https://host/gitlab/api/v4/"). It must be of the URL's own
	// scheme and host, so that credentials go nowhere else.
	APIURL string
	// Credentials for it. Required.
	Credentials Credentials
	// CABundle of PEM certificates that are trusted beside the system's.
	CABundle []byte
	// AllowLoopback permits a service on this machine. Off in production, where
	// loopback is the hub itself.
	AllowLoopback bool
	// Timeout of one request; 30 s when 0.
	Timeout time.Duration
	// UserAgent names the caller; "capstan" when empty.
	UserAgent string
	// Clock; the real one when nil.
	Clock clock.PassiveClock
}

// Credentials as they stand in the Secret. One of Token, Password and App is
// required.
type Credentials struct {
	// Token for the service's API.
	Token string
	// Username and Password for Git, and for the API where there is no Token: on
	// GitHub, GitLab and Azure DevOps the password is then a token itself.
	Username, Password string
	// App is a GitHub App, instead of a Token.
	App *GitHubApp
}

// GitHubApp authenticates as an installation of a GitHub App.
// https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app
type GitHubApp struct {
	// ID of the App, or its client id.
	ID string
	// InstallationID on the account that owns the repository.
	InstallationID int64
	// PrivateKey in PEM.
	PrivateKey []byte
}

// New makes the Provider of a repository. It calls nothing: credentials
// are not tried. Errors are ErrInvalid.
func New(o Options) (Provider, error) {
	repository, err := ParseRepository(o.Type, o.URL)
	if err != nil {
		return nil, err
	}
	if o.APIURL != "" {
		if repository, err = repository.withAPI(o.APIURL); err != nil {
			return nil, err
		}
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.UserAgent == "" {
		o.UserAgent = defaultUserAgent
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	authorizer, err := newAuthorizer(o.Type, o.Credentials)
	if err != nil {
		return nil, err
	}
	base, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	wire, err := newWire(o, repository, authorizer, base)
	if err != nil {
		return nil, err
	}
	backend, err := newBackend(o, repository, wire.client())
	if err != nil {
		return nil, err
	}
	authorizer.client = wire.client()
	authorizer.api = repository.APIURL
	return &guarded{kind: o.Type, repository: repository, backend: backend, wire: wire, authorizer: authorizer}, nil
}

func newBackend(o Options, r Repository, c *http.Client) (backend, error) {
	switch o.Type {
	case pipelinesv1.GitHub:
		return newGitHub(o, r, c)
	case pipelinesv1.GitLab:
		return newGitLab(o, r, c)
	case pipelinesv1.Gitea:
		return newGitea(o, r, c), nil
	case pipelinesv1.AzureDevOps:
		return newAzureDevOps(o, r, c), nil
	case pipelinesv1.BitbucketServer:
		return newBitbucketServer(r, c), nil
	default:
		return nil, unknownType(o.Type)
	}
}

func unknownType(t pipelinesv1.GitProviderType) error {
	return invalid(t, "unknown type %q of Git provider; it is one of github, gitlab, gitea, azure-devops, bitbucket-server", t)
}
