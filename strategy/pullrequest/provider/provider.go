package provider

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/egress"
)

// State of a pull request.
type State string

// States of a pull request. A draft is Open, and so is one that a service is merging.
const (
	Open   State = "open"
	Merged State = "merged"
	Closed State = "closed"
)

// PullRequest is a pull request in a service's response.
type PullRequest struct {
	// Number of the pull request in its repository, for people and the API.
	Number int64
	// URL of its page.
	URL string
	// State it is in.
	State State
	// HeadSHA is its head commit as the service last observed it; empty when the service
	// does not know it or has deleted it.
	HeadSHA string
	// MergeSHA is the commit on the base branch that the merge made; empty until it is
	// merged, and if the service does not return it.
	MergeSHA string
	// Title and Body at present. Body is never cut.
	Title, Body string
	// Head and Base are branch names, without refs/heads/.
	Head, Base string

	// version is Bitbucket Server's optimistic lock.
	version int
	// behind is set if the service says that it does not merge the pull request because the
	// branch does not have the head of the base branch.
	behind bool
}

// Query selects pull requests from one branch into another of the same repository.
type Query struct {
	// Head and Base are branch names, without refs/heads/. Both are required.
	Head, Base string
	// Limit is the number of results that ends the search; 0 for all within the bounds of
	// the package.
	Limit int
}

// NewPullRequest describes a pull request to open.
type NewPullRequest struct {
	// Head and Base are branch names, without refs/heads/. Both are required.
	Head, Base string
	// Title is required; Title and Body must be within Limits.
	Title, Body string
}

// Edit has the fields of a pull request to change; nil leaves a field unchanged.
type Edit struct {
	Title, Body *string
}

// Closing describes how to close a pull request.
type Closing struct {
	// Comment to add before the close; none when empty.
	Comment string
	// Still reports whether the pull request, as it is now, should be closed. It is called
	// before the comment, and again immediately before the close; nil means always.
	Still func(PullRequest) bool
}

func (c Closing) still(pr PullRequest) bool {
	return pr.State == Open && (c.Still == nil || c.Still(pr))
}

// Closure says why a pull request is closed.
type Closure string

// Reasons why a pull request is closed.
const (
	// ByRequest: a person or a program closed it.
	ByRequest Closure = "request"
	// ByDeletion: the service closed it because its branch was deleted.
	ByDeletion Closure = "deletion"
	// Unclear: it was closed a moment ago by the account that opened it. The service may not
	// have recorded yet that this was because of a deletion.
	Unclear Closure = "unclear"
)

// MergeOptions has the options of Merge.
type MergeOptions struct {
	// HeadSHA is the required head commit of the pull request. It must be set.
	HeadSHA string
	// Message of the merge commit; the service's own when empty. GitLab and
	// Bitbucket Server use it where the repository merges by a merge commit.
	Message string
}

// StatusState is the state of a check.
type StatusState string

// States of a check. All except StatusSuccess block a merge where a rule requires the check.
const (
	StatusPending StatusState = "pending"
	StatusSuccess StatusState = "success"
	StatusFailure StatusState = "failure"
	// StatusCanceled: the check has no result, because it was not needed any more. Services
	// without such a state show an error, a warning (Gitea) or a failure (Bitbucket Server).
	StatusCanceled StatusState = "canceled"
)

// CommitStatus is the state of a check of a commit, or of the head of a pull request, for people and for
// the rules of the base branch.
type CommitStatus struct {
	// SHA is the commit. Number is that of the pull request whose head it is; 0 for any other
	// commit. Azure DevOps shows states of pull requests, the others those of commits.
	SHA    string
	Number int64
	// Context names the check: who sets it, and what it is.
	Context StatusContext
	State   StatusState
	// Description for people, cut to maxStatus characters.
	Description string
	// URL that people may follow. Bitbucket Server requires one.
	URL string
}

// StatusContext is the name of a check, shown as Genre/Name.
type StatusContext struct{ Genre, Name string }

// String returns the name for services that have one field for it.
func (c StatusContext) String() string { return c.Genre + "/" + c.Name }

// maxStatus is the longest description of a CommitStatus, in characters: GitHub's limit.
// https://docs.github.com/en/rest/commits/statuses
const maxStatus = 140

// Limits of a service for titles and bodies, in characters; 0 when it documents none.
type Limits struct {
	Title, Body int
	// Labels is true if pull requests can have labels.
	Labels bool
}

// Provider is the client of a service for the pull requests of one repository. All errors
// are of type *Error.
type Provider interface {
	// Type of the service.
	Type() pipelinesv1.GitProviderType

	// Repository of the pull requests.
	Repository() Repository

	// Limits of the service.
	Limits() Limits

	// Find returns the pull requests from one branch into another in every state,
	// newest first, without those from forks. An empty result is not an error. ErrInvalid
	// when another type of service responds.
	Find(ctx context.Context, q Query) ([]PullRequest, error)

	// Get returns one pull request; ErrNotFound when the number does not exist.
	Get(ctx context.Context, number int64) (PullRequest, error)

	// Create opens a pull request. ErrAlreadyExists when one is open for the same
	// branches: Find it and adopt it. ErrValidation when the service refuses it: a
	// branch does not exist or there is nothing to merge.
	Create(ctx context.Context, n NewPullRequest) (PullRequest, error)

	// Update changes title and body.
	Update(ctx context.Context, number int64, e Edit) (PullRequest, error)

	// Merge merges an open pull request whose head is the given commit. It returns a
	// merged one unchanged. ErrHeadMoved when its head is another commit,
	// ErrNotMergeable when checks, reviews, conflicts or rules block it, ErrConflict
	// when it is closed. Behind of the error says that a rebuilt branch may be merged.
	// Azure DevOps merges in the background: the returned state may still be Open.
	Merge(ctx context.Context, number int64, m MergeOptions) (PullRequest, error)

	// Close closes an open pull request after adding the comment, if there is one and the
	// pull request does not have it yet. It returns a pull request unchanged if it is not
	// open, or if Still returns false.
	//
	// The pull request may change between the last call of Still and the close. Only
	// Bitbucket Server closes by version (ErrConflict then). On GitHub, GitLab and Gitea
	// the close writes back the body that was read. That removes a claim that another
	// client wrote meanwhile, and that client observes the removal.
	Close(ctx context.Context, number int64, c Closing) (PullRequest, error)

	// Closure returns why a closed pull request was closed last. Gitea acts upon the deletion
	// of a branch some time later, and then closes what was opened meanwhile from a branch of
	// the same name. For the other services it is ByRequest, without a request.
	Closure(ctx context.Context, number int64) (Closure, error)

	// Reopen opens a closed pull request again. It returns one unchanged that is open or
	// merged. ErrUnsupported where Closure is always ByRequest.
	Reopen(ctx context.Context, number int64) (PullRequest, error)

	// AddLabels adds labels by name. Labels that do not exist are created, except on
	// Gitea, where that is ErrValidation.
	// ErrUnsupported on Bitbucket Server.
	AddLabels(ctx context.Context, number int64, labels []string) error

	// RequestReviews adds reviewers to the existing ones: user names; on Azure DevOps
	// identity ids (GUIDs).
	RequestReviews(ctx context.Context, number int64, reviewers []string) error

	// SetStatus sets the state of a check. ErrUnsupported on Azure DevOps without a pull request.
	// ErrNotFound or ErrValidation when the repository does not have the commit, except on
	// Bitbucket Server, which does not check that. GitLab refuses a change from pending to pending; the
	// description of such a status then stays as it is, which is no error.
	SetStatus(ctx context.Context, status CommitStatus) error

	// GitCredentials returns the credentials for Git's basic authentication over HTTPS.
	// Those of a GitHub App are valid for at least five more minutes.
	GitCredentials(ctx context.Context) (username, password string, err error)

	// ForgetToken discards the token of a GitHub App's installation, so that the next call
	// fetches another. The caller uses it when Git refused the token; the calls of this
	// interface do so themselves. It does nothing for other credentials.
	ForgetToken()

	// Transport returns the transport for Git at the same service. It has the trusted CAs,
	// the proxy, the address guard and the timeout until a response begins of the API, but no
	// credentials, and no bounds on the time or size of a response.
	Transport() http.RoundTripper

	// CloseIdle closes idle connections. The Provider must not be used afterwards.
	CloseIdle()
}

// Options of New.
type Options struct {
	// Type of the service. Required.
	Type pipelinesv1.GitProviderType
	// URL of the repository, by HTTPS, as given to git clone. Required.
	URL string
	// APIURL of the service, if it cannot be derived from URL: a GitLab under a
	// relative URL ("https://host/gitlab/api/v4/"). It must be of the URL's own
	// scheme and host, so that credentials are sent nowhere else.
	APIURL string
	// Credentials for it. Required.
	Credentials Credentials
	// CABundle has PEM certificates that are trusted in addition to the system's.
	CABundle []byte
	// AllowLoopback permits a service on a loopback address. It is off in production,
	// where loopback is the hub itself.
	AllowLoopback bool
	// Proxy of the administrator for the API and for Git; nil for none.
	Proxy *egress.Proxy
	// Timeout of one request; 30 s when 0.
	Timeout time.Duration
	// UserAgent names the caller; "capstan" when empty.
	UserAgent string
	// Clock; the system clock when nil.
	Clock clock.PassiveClock
}

// Credentials are the values of the Secret. One of Token, Password and App is
// required.
type Credentials struct {
	// Token for the service's API.
	Token string
	// Username and Password for Git, and for the API if there is no Token. On GitHub,
	// GitLab and Azure DevOps the password is then a token.
	Username, Password string
	// App is a GitHub App, instead of a Token.
	App *GitHubApp
}

// GitHubApp authenticates as an installation of a GitHub App.
// https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app
type GitHubApp struct {
	// ID of the App, or its client id.
	ID string
	// InstallationID of the App in the account that owns the repository.
	InstallationID int64
	// PrivateKey in PEM format.
	PrivateKey []byte
}

// New returns the Provider of a repository. It sends no request, so it does not check the
// credentials. Errors are ErrInvalid.
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
	return invalid(t, "unknown type %q of Git provider; use one of github, gitlab, gitea, azure-devops, bitbucket-server", t)
}
