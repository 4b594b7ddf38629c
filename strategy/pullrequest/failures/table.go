package failures

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// Reasons of the promotions that failed: the names of the classes that end a promotion.
const (
	// ReasonInvalidSpec: the URL is not that of a repository of the service, or it
	// leads to an address that the hub must not call.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonSecretNotFound: the Secret does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonInvalidCredentials: the Secret has no usable credentials.
	ReasonInvalidCredentials = "InvalidCredentials"
	// ReasonHostNotAllowed: the Secret does not allow its credentials to be sent to a host of
	// the repository.
	ReasonHostNotAllowed = "HostNotAllowed"
	// ReasonUnauthorized: the credentials are wrong or have expired.
	ReasonUnauthorized = "Unauthorized"
	// ReasonForbidden: the credentials lack a right.
	ReasonForbidden = "Forbidden"
	// ReasonUntrusted: the server's certificate is not signed by a trusted CA.
	ReasonUntrusted = "Untrusted"
	// ReasonRepositoryNotFound: the repository does not exist, or the credentials may not
	// read it.
	ReasonRepositoryNotFound = "RepositoryNotFound"
	// ReasonBaseBranchMissing: the repository has no such branch.
	ReasonBaseBranchMissing = "BaseBranchMissing"
	// ReasonRepositoryTooLarge: a clone would exceed the limits.
	ReasonRepositoryTooLarge = "RepositoryTooLarge"
	// ReasonFileTooLarge: a file over the limit has the marker.
	ReasonFileTooLarge = "FileTooLarge"
	// ReasonNoMarker: no file of the base branch has the marker.
	ReasonNoMarker = "NoMarker"
	// ReasonWaveNotSeparable: a cluster of the wave has no marker of its own.
	ReasonWaveNotSeparable = "WaveNotSeparable"
	// ReasonMarkerUnparsable: a file with the marker is not YAML.
	ReasonMarkerUnparsable = "MarkerUnparsable"
	// ReasonTwoMarkers: there are two markers where one is expected.
	ReasonTwoMarkers = "TwoMarkers"
	// ReasonMarkerNotScalar: the marked value is not a scalar.
	ReasonMarkerNotScalar = "MarkerNotScalar"
	// ReasonUnwritableRevision: the revision cannot be written as a scalar.
	ReasonUnwritableRevision = "UnwritableRevision"
	// ReasonBranchProtected: a rule of the service refuses the push.
	ReasonBranchProtected = "BranchProtected"
	// ReasonBranchModified: the branch has commits that the hub did not make.
	ReasonBranchModified = "BranchModified"
	// ReasonBranchTaken: another Pipeline of the same name uses the branch.
	ReasonBranchTaken = "BranchTaken"
	// ReasonPullRequestRefused: the service refuses the pull request.
	ReasonPullRequestRefused = "PullRequestRefused"
)

const (
	// refusals and refusedFor are the patience with a service that refuses the credentials
	// or does not find the repository. A fresh token of a GitHub App, a directory service
	// that restarts and a repository that is being moved end such refusals within
	// minutes. Thirty minutes are also the default of --stall-after.
	refusals   = 5
	refusedFor = 30 * time.Minute

	// rejections is the number of attempts after which the refusal of a pull request ends
	// the promotion. Before that, the service may not know the pushed branch everywhere.
	rejections = 3
)

// Ending is when failures of a class end the promotion.
type Ending string

// Endings of classes.
const (
	// Never: the promotion is retried until it succeeds or is superseded. After
	// --stall-after it is Stalled.
	Never Ending = "never"
	// AtOnce: the first failure ends the promotion.
	AtOnce Ending = "at once"
	// AfterRefusals: refusals failures in sequence over refusedFor end the promotion.
	AfterRefusals Ending = "after refusals"
	// AfterRejections: rejections failures in sequence end the promotion.
	AfterRejections Ending = "after rejections"
)

func (e Ending) patience() strategy.Patience {
	switch e {
	case AfterRefusals:
		return strategy.Patience{Failures: refusals, For: refusedFor}
	case AfterRejections:
		return strategy.Patience{Failures: rejections}
	case Never, AtOnce:
	}
	return strategy.Patience{}
}

// Pace is how fast failures of a class are retried until they end the promotion.
type Pace string

// Paces of retries.
const (
	// Backoff: strategy.FirstRetry, doubling, up to strategy.MaxRetry.
	Backoff Pace = "backoff"
	// Requested: the wait that the service requests, for all promotions with the Secret.
	Requested Pace = "requested"
	// Polling: at each poll of the pull request.
	Polling Pace = "polling"
	// NoRetry: the first failure ends the promotion.
	NoRetry Pace = "none"
)

// Evidence is what is observed when a failure of a class occurs.
type Evidence struct {
	// At names the services; empty for all of them.
	At string
	// Seen is the response or the state.
	Seen string
}

// Class is one row of the table.
type Class struct {
	// Name of the class. If it ends promotions, it is their reason.
	Name string
	// Evidence of the class.
	Evidence []Evidence
	// Pace of the retries.
	Pace Pace
	// Ends is when the promotion is Failed.
	Ends Ending
	// TryAgain: a promotion that failed is tried again every strategy.TryAgainEvery,
	// because users can fix the cause where the hub does not observe it.
	TryAgain bool
	// Secret: a promotion that failed starts again when its Secret changes.
	Secret bool
	// Fix is what ends the failure.
	Fix string

	api   []provider.Class
	git   []gitrepo.Class
	edits []error
}

// Terminal returns the error of a class that ends promotions, without its cause.
func (c *Class) Terminal() *strategy.TerminalError {
	return &strategy.TerminalError{Reason: c.Name, Patience: c.Ends.patience(), TryAgain: c.TryAgain}
}

// Table of all classes.
var Table = []Class{
	{
		Name: "Transient", Pace: Backoff, Ends: Never,
		Evidence: []Evidence{
			{"", "no connection, a timeout, 408, 425, 5xx, or a response that is not the service's API"},
			{"", "with Retry-After: the backoff is at least as long"},
		},
		Fix: "it ends by itself",
		api: []provider.Class{provider.Transient}, git: []gitrepo.Class{gitrepo.Transient},
	},
	{
		Name: "RateLimited", Pace: Requested, Ends: Never,
		Evidence: []Evidence{
			{"", "429; Retry-After in seconds or as a date, RateLimit-Reset, or one minute without them"},
			{"GitHub", "403 with X-RateLimit-Remaining: 0, with Retry-After, or with \"rate limit\" in its message"},
		},
		Fix: "it ends by itself",
		api: []provider.Class{provider.RateLimited}, git: []gitrepo.Class{gitrepo.RateLimited},
	},
	{
		Name: "Changed", Pace: Backoff, Ends: Never,
		Evidence: []Evidence{
			{"", "409: the pull request, its head or the branch was changed meanwhile, or an open pull request exists"},
			{"GitHub", "422 \"A pull request already exists\""},
			{"Git", "the server refuses the push: the branch has another head"},
		},
		Fix: "the hub reads the pull request again, at once and then with each attempt",
		api: []provider.Class{provider.AlreadyExists, provider.HeadMoved, provider.Conflict}, git: []gitrepo.Class{gitrepo.Moved},
	},
	{
		Name: "NotMergeable", Pace: Polling, Ends: Never,
		Evidence: []Evidence{
			{"", "with autoMerge: checks, reviews, conflicts or rules block the merge"},
			{"GitHub, GitLab, Gitea", "405 or 406; 409 with \"conflict\"; GitLab also 422 \"Branch cannot be merged\""},
			{"Azure DevOps", "403 RejectedByPolicy"},
			{"Bitbucket Server", "409 MergeVetoed"},
			{"GitHub, GitLab, Gitea", "because the branch is behind the base (mergeable_state behind; detailed_merge_status need_rebase; \"behind the base branch\"): the hub rebuilds the branch"},
		},
		Fix: "what the service waits for, or a person who merges the pull request",
		api: []provider.Class{provider.NotMergeable},
	},
	{
		Name: ReasonUnauthorized, Pace: Backoff, Ends: AfterRefusals, TryAgain: true, Secret: true,
		Evidence: []Evidence{
			{"", "401 of the API or of Git; 407 of a proxy"},
			{"Azure DevOps", "203, or a redirect to the sign-in page"},
			{"GitHub App", "each refusal discards the installation's token; the next attempt fetches another"},
		},
		Fix: "a valid token in the Secret, or the service",
		api: []provider.Class{provider.Unauthorized}, git: []gitrepo.Class{gitrepo.Unauthorized},
	},
	{
		Name: ReasonForbidden, Pace: Backoff, Ends: AfterRefusals, TryAgain: true, Secret: true,
		Evidence: []Evidence{
			{"", "403 of the API or of Git; 402, 423, 451"},
			{"GitLab", "401 for a merge"},
		},
		Fix: "a right for the token or its user, or another token",
		api: []provider.Class{provider.Forbidden}, git: []gitrepo.Class{gitrepo.Forbidden},
	},
	{
		Name: ReasonRepositoryNotFound, Pace: Backoff, Ends: AfterRefusals, TryAgain: true, Secret: true,
		Evidence: []Evidence{
			{"", "404 or 410 of the API or of Git; 405 or 406 for another request than a merge"},
			{"", "a redirect to another host, or of a write"},
			{"GitHub App", "as for 401"},
		},
		Fix: "the URL, the repository, or the rights of the token",
		api: []provider.Class{provider.NotFound}, git: []gitrepo.Class{gitrepo.NotFound},
	},
	{
		Name: ReasonPullRequestRefused, Pace: Backoff, Ends: AfterRejections, TryAgain: true,
		Evidence: []Evidence{
			{"", "400, 422 and other 4xx, if no other class has them"},
			{"Bitbucket Server", "409 EmptyPullRequest"},
		},
		Fix: "what the service's message names",
		api: []provider.Class{provider.Validation, provider.Unsupported},
	},
	{
		Name: ReasonUntrusted, Pace: NoRetry, Ends: AtOnce, TryAgain: true, Secret: true,
		Evidence: []Evidence{{"", "the certificate is not signed by a trusted CA, is for another host, or has expired"}},
		Fix:      "caFile of the Secret, or the certificate",
		api:      []provider.Class{provider.Untrusted}, git: []gitrepo.Class{gitrepo.Untrusted},
	},
	{
		Name: ReasonSecretNotFound, Pace: NoRetry, Ends: AtOnce, TryAgain: true, Secret: true,
		Evidence: []Evidence{{"", "the Secret does not exist"}},
		Fix:      "create the Secret",
	},
	{
		Name: ReasonInvalidCredentials, Pace: NoRetry, Ends: AtOnce, TryAgain: true, Secret: true,
		Evidence: []Evidence{{"", "the Secret has no token, or a value of it has a wrong form"}},
		Fix:      "the Secret; the message names the key",
	},
	{
		Name: ReasonInvalidSpec, Pace: NoRetry, Ends: AtOnce,
		Evidence: []Evidence{
			{"", "the URL is not an HTTPS URL of a repository, or leads to an address that the hub does not call"},
			{"", "type is not that of the service: by the host name, or by the service's response to a request without credentials"},
		},
		Fix: "edit the Pipeline's strategy",
		api: []provider.Class{provider.Invalid}, git: []gitrepo.Class{gitrepo.Invalid},
	},
	{
		Name: ReasonBranchProtected, Pace: NoRetry, Ends: AtOnce, TryAgain: true, Secret: true,
		Evidence: []Evidence{{"Git", "a rule or a hook of the server refuses the push"}},
		Fix:      "allow the hub to push to promotion-*, by force",
		git:      []gitrepo.Class{gitrepo.Refused},
	},
	{
		Name: ReasonBranchModified, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "the branch has a person's commits that no merged pull request has carried into the base"}},
		Fix:      "merge, rename or delete the branch",
	},
	{
		Name: ReasonHostNotAllowed, Pace: NoRetry, Ends: AtOnce, Secret: true,
		Evidence: []Evidence{{"", "the annotation capstan.dev/allowed-hosts of the Secret does not name a host of the repository, or is missing and --require-secret-hosts is set"}},
		Fix:      "the annotation of the Secret, or the URL",
	},
	{
		Name: ReasonBranchTaken, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"", "another Pipeline has an open pull request on the branch"}},
		Fix:      "rename one of the Pipelines, or end its pull request",
	},
	{
		Name: ReasonBaseBranchMissing, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "the repository has no such branch, or no branch at all"}},
		Fix:      "create the branch, or correct baseBranch",
		git:      []gitrepo.Class{gitrepo.Empty},
	},
	{
		Name: ReasonNoMarker, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "no YAML file of the base branch has the marker"}},
		Fix:      "commit the marker",
		edits:    []error{manifest.ErrNoMarker},
	},
	{
		Name: ReasonWaveNotSeparable, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "a cluster of the wave has no marker with its name, or another wave has the name, too"}},
		Fix:      "give each cluster a manifest of its own, with a marker that has `cluster`",
	},
	{
		Name: ReasonMarkerUnparsable, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "the file with the marker is not YAML"}},
		Fix:      "correct the file that the message names",
		edits:    []error{manifest.ErrUnparsable},
	},
	{
		Name: ReasonTwoMarkers, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "two markers are where one is expected"}},
		Fix:      "correct the file that the message names",
		edits:    []error{manifest.ErrTwoMarkers},
	},
	{
		Name: ReasonMarkerNotScalar, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "the marked value is a map or a list"}},
		Fix:      "correct the file that the message names",
		edits:    []error{manifest.ErrNotScalar},
	},
	{
		Name: ReasonFileTooLarge, Pace: NoRetry, Ends: AtOnce, TryAgain: true,
		Evidence: []Evidence{{"Git", "a file over the limit has the marker"}},
		Fix:      "move the marked object to a file of its own",
		edits:    []error{manifest.ErrTooLarge},
	},
	{
		Name: ReasonRepositoryTooLarge, Pace: NoRetry, Ends: AtOnce,
		Evidence: []Evidence{{"Git", "a clone exceeds the limits; a try each hour would receive as much again"}},
		Fix:      "a smaller repository, then spec.retry",
		git:      []gitrepo.Class{gitrepo.TooLarge},
	},
	{
		Name: ReasonUnwritableRevision, Pace: NoRetry, Ends: AtOnce,
		Evidence: []Evidence{{"", "the revision cannot be written as one YAML scalar; it is what Flux reports of a source (main@sha1:...) and the marker has no part; or it does not have the part of the marker"}},
		Fix:      "the part tag, digest or commit in the marker, or the strategy notification",
		edits:    []error{manifest.ErrValue, manifest.ErrPart},
	},
}

// ByReason returns the class with a name; nil if there is none.
func ByReason(name string) *Class {
	i := slices.IndexFunc(Table, func(c Class) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &Table[i]
}

// Of returns the class of an error of Git, of a service or of an edit. It returns nil for
// an error that is none of these, and when a context has ended.
func Of(err error) *Class {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	var service *provider.Error
	if errors.As(err, &service) {
		return find(func(c *Class) bool { return slices.Contains(c.api, service.Class) })
	}
	var git *gitrepo.Error
	if errors.As(err, &git) {
		return find(func(c *Class) bool { return slices.Contains(c.git, git.Class) })
	}
	return find(func(c *Class) bool {
		return slices.ContainsFunc(c.edits, func(cause error) bool { return errors.Is(err, cause) })
	})
}

func find(is func(*Class) bool) *Class {
	for i := range Table {
		if is(&Table[i]) {
			return &Table[i]
		}
	}
	return nil
}
