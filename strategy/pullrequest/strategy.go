package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// DefaultDeadline of one act. It allows for a transfer of ten minutes: 512 MiB, the most
	// that a clone may receive, at 7 Mbit/s. A server that is silent ends an act much earlier.
	DefaultDeadline = 15 * time.Minute

	// MinDeadline is the shortest deadline: twice the time in which a server must respond, so
	// that an act sees the difference between a server that is silent and one that is slow.
	MinDeadline = time.Minute

	// compareEvery is the shortest interval at which an open pull request is compared with
	// the base branch, which needs a clone when the base has changed.
	compareEvery = 15 * time.Minute
	// compareShare bounds the share of time for these comparisons to 1/compareShare:
	// where a clone takes longer, they are less frequent.
	compareShare = 100
)

// DeadlineFlag is the flag of the hub that sets Options.Deadline.
const DeadlineFlag = "pull-request-deadline"

// Options of the strategy.
type Options struct {
	// Reader reads Secrets and Promotions without a cache, so that a changed Secret and a
	// higher number are observed at once.
	Reader client.Reader
	// Workspace makes the clones.
	Workspace *gitrepo.Workspace
	// AllowLoopback permits services on loopback addresses.
	AllowLoopback bool
	// Proxy of the administrator for all requests to services, of Git and of their APIs; nil for none.
	Proxy *egress.Proxy
	// RequireSecretHosts refuses a Secret without the annotation that names the hosts which
	// may get its credentials.
	RequireSecretHosts bool
	// Timeout of one request to a service; for Git, the longest time in which the server may
	// send nothing. 0 means the defaults of packages provider and gitrepo.
	Timeout time.Duration
	// Deadline of one act, with its clone; DefaultDeadline if 0. Claims follow it.
	Deadline time.Duration
	Clock    clock.PassiveClock
}

// Strategy carries out promotions by pull requests.
type Strategy struct {
	o           Options
	connections *connections
	turns       *turns
	comparisons *comparisons
}

var _ strategy.GateReporter = &Strategy{}

// New returns the strategy.
func New(o Options) *Strategy {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	return &Strategy{o: o, connections: newConnections(o), turns: newTurns(), comparisons: newComparisons(o.Clock)}
}

// Close closes idle connections.
func (s *Strategy) Close() { s.connections.close() }

// Name implements strategy.Strategy.
func (*Strategy) Name() string { return "pull-request" }

// Handles implements strategy.Strategy.
func (*Strategy) Handles(spec pipelinesv1.Strategy) bool { return spec.PullRequest != nil }

// Deadline implements strategy.Strategy.
func (s *Strategy) Deadline() time.Duration { return s.o.Deadline }

// Promote implements strategy.Strategy.
func (s *Strategy) Promote(ctx context.Context, p *capstanv1.Promotion, permit strategy.Permit) (strategy.Result, error) {
	var result strategy.Result
	err := s.with(ctx, p, func(ctx context.Context, a *act) error {
		var err error
		a.permit = permit
		result, err = a.promote(ctx)
		return err
	})
	if err != nil {
		return strategy.Result{}, err
	}
	return result, nil
}

// Follow implements strategy.Follower.
func (s *Strategy) Follow(ctx context.Context, p *capstanv1.Promotion) (strategy.Result, error) {
	if p.Status.PullRequest == nil {
		return strategy.Result{State: strategy.Due}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Deadline)
	defer cancel()
	var result strategy.Result
	err := s.with(ctx, p, func(ctx context.Context, a *act) error {
		if err := a.connection.pace.poll(s.o.Clock.Now()); err != nil {
			return err
		}
		var err error
		result, err = a.follow(ctx)
		return err
	})
	if err != nil {
		return strategy.Result{}, err
	}
	return result, nil
}

// ReportGates implements strategy.GateReporter: as a commit status.
func (s *Strategy) ReportGates(ctx context.Context, p *capstanv1.Promotion, report strategy.GateReport) error {
	if p.Status.PullRequest == nil {
		return nil
	}
	genre, name, _ := strings.Cut(strategy.GatesStatus, "/")
	state := provider.StatusPending
	if report.Open {
		state = provider.StatusSuccess
	}
	return s.with(ctx, p, func(ctx context.Context, a *act) error {
		if err := a.connection.pace.show(s.o.Clock.Now()); err != nil {
			return err
		}
		return a.provider.SetStatus(ctx, provider.CommitStatus{
			SHA: report.SHA, Number: p.Status.PullRequest.Number, Context: provider.StatusContext{Genre: genre, Name: name},
			State: state, Description: oneLine(report.Message), URL: p.Status.URL,
		})
	})
}

// Withdraw implements strategy.Follower.
func (s *Strategy) Withdraw(ctx context.Context, p *capstanv1.Promotion, why string) (stillNeeded string, err error) {
	err = s.with(ctx, p, func(ctx context.Context, a *act) error {
		var err error
		stillNeeded, err = a.withdraw(ctx, why)
		return err
	})
	return stillNeeded, err
}

// act is one call of the strategy: it reads or changes the branch and the pull request of
// a promotion.
type act struct {
	*Strategy
	*connection
	p      *capstanv1.Promotion
	spec   *pipelinesv1.PullRequestPromotion
	branch string
	// permit is asked before each step of a promotion.
	permit strategy.Permit
	// api is the right to call the service's API.
	api *pass
	// upToDate requires the branch to be built on the head of the base branch, because the
	// service refused to merge it otherwise.
	upToDate bool
}

// with connects, waits for the turn on the branch, calls do and explains its error.
func (s *Strategy) with(ctx context.Context, p *capstanv1.Promotion, do func(context.Context, *act) error) error {
	connection, version, err := s.connections.get(ctx, p)
	if err != nil {
		return explain(err, version)
	}
	if err := connection.pace.held(s.o.Clock.Now()); err != nil {
		return err
	}
	a := &act{Strategy: s, connection: connection, p: p, spec: p.Spec.Strategy.PullRequest, branch: Branch(p)}
	done, err := s.turns.take(ctx, connection.provider.Repository().CloneURL+"#"+a.branch)
	if err != nil {
		return fmt.Errorf("waiting for another act on branch %s: %w", a.branch, err)
	}
	defer done()
	if p.Status.PullRequest == nil {
		// It needs a clone: without Git, the API need not be called.
		if err := connection.breakers.git.refuses(); err != nil {
			return err
		}
	}
	if a.api, err = connection.breakers.api.enter(); err != nil {
		return err
	}
	err = a.api.act(func() error { return do(ctx, a) })
	connection.pace.note(s.o.Clock.Now(), err)
	if refusedToken(err) {
		connection.provider.ForgetToken()
	}
	return explain(err, version)
}

// clone clones the repository for an act.
func (a *act) clone(ctx context.Context, do func(context.Context, *gitrepo.Clone) error) error {
	username, password, err := a.provider.GitCredentials(ctx)
	if err != nil {
		return err
	}
	a.api.answered() // An act reads the pull requests before it clones.
	git, err := a.breakers.git.enter()
	if err != nil {
		return err
	}
	err = git.act(func() error {
		return a.o.Workspace.Clone(ctx, gitrepo.Remote{
			URL: a.provider.Repository().CloneURL, Username: username, Password: password, Tenant: a.p.Namespace,
			Silence: a.o.Timeout, Transport: &gate{pass: git, next: a.provider.Transport()},
		}, do)
	})
	var failed *gitrepo.Error
	if errors.As(err, &failed) && failed.OutOfTime {
		return fmt.Errorf("%w; an attempt may take %s: raise --%s of the hub, or use a smaller repository", err, a.o.Deadline, DeadlineFlag)
	}
	return err
}

// base returns the commit of the base branch.
func (a *act) base(c *gitrepo.Clone) (gitrepo.Hash, error) {
	base, ok := c.Branch(a.spec.BaseBranch)
	if !ok {
		return base, fail(ReasonBaseBranchMissing, "the repository has no branch %q: correct baseBranch of the Pipeline's strategy, or create the branch", a.spec.BaseBranch)
	}
	return base, nil
}

// whose returns the relation of a pull request to the promotion. If people have removed its
// claim, its number still identifies it.
func (a *act) whose(pr provider.PullRequest) relation {
	r := readClaim(pr.Body).relationTo(a.p)
	if known := a.p.Status.PullRequest; r == unclaimed && known != nil && known.Number == pr.Number && known.Branch == pr.Head {
		return mine
	}
	return r
}

func (a *act) result(state strategy.State, pr provider.PullRequest, kept capstanv1.PullRequestStatus, format string, args ...any) strategy.Result {
	kept.Number, kept.Branch = pr.Number, a.branch
	return strategy.Result{State: state, URL: pr.URL, PullRequest: &kept, Message: fmt.Sprintf(format, args...)}
}

// kept returns the pull request in the Promotion's status.
func (a *act) kept() capstanv1.PullRequestStatus {
	if a.p.Status.PullRequest == nil {
		return capstanv1.PullRequestStatus{}
	}
	return *a.p.Status.PullRequest
}

// outranked is called before each step that changes the service or the repository. It
// returns errOutranked if a promotion with a higher number exists.
func (a *act) outranked(ctx context.Context) error {
	newer, err := promotions.Outranked(ctx, a.o.Reader, a.p)
	if err == nil && newer {
		err = errOutranked
	}
	return err
}

// may is called before each step of a promotion: it returns an error if the step is held, or if
// a promotion with a higher number exists.
func (a *act) may(ctx context.Context, step strategy.Step) error {
	if err := a.permit(ctx, step); err != nil {
		return err
	}
	return a.outranked(ctx)
}

// errOutranked is returned when a promotion with a higher number exists. The hub reconciles
// that promotion next.
var errOutranked = errors.New("a promotion with a higher number exists")
