package pullrequest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

const (
	// deadline of one act. It allows for three clones before it and its own, of 100 MB
	// each over 100 Mbit/s, and some requests.
	deadline = 60 * time.Second

	// compareEvery is the shortest interval at which an open pull request is compared with
	// the base branch, which needs a clone when the base has changed.
	compareEvery = 15 * time.Minute
	// compareShare bounds the share of time for these comparisons to 1/compareShare:
	// where a clone takes longer, they are less frequent.
	compareShare = 100
)

// Options of the strategy.
type Options struct {
	// Reader reads Secrets and Promotions without a cache, so that a changed Secret and a
	// higher number are observed at once.
	Reader client.Reader
	// Workspace makes the clones.
	Workspace *gitrepo.Workspace
	// AllowLoopback permits services on loopback addresses.
	AllowLoopback bool
	// Timeout of one request to a service; for Git, until its response begins. 0 means the
	// default of package provider.
	Timeout time.Duration
	Clock   clock.PassiveClock
}

// Strategy carries out promotions by pull requests.
type Strategy struct {
	o           Options
	connections *connections
	turns       *turns
	comparisons *comparisons
}

var _ strategy.Follower = &Strategy{}

// New returns the strategy.
func New(o Options) *Strategy {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
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
func (*Strategy) Deadline() time.Duration { return deadline }

// Promote implements strategy.Strategy.
func (s *Strategy) Promote(ctx context.Context, p *capstanv1.Promotion) (strategy.Result, error) {
	var result strategy.Result
	err := s.with(ctx, p, func(ctx context.Context, a *act) error {
		var err error
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
	ctx, cancel := context.WithTimeout(ctx, deadline)
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

// Withdraw implements strategy.Follower.
func (s *Strategy) Withdraw(ctx context.Context, p *capstanv1.Promotion, why string) error {
	return s.with(ctx, p, func(ctx context.Context, a *act) error { return a.withdraw(ctx, why) })
}

// act is one call of the strategy: it reads or changes the branch and the pull request of
// a promotion.
type act struct {
	*Strategy
	*connection
	p      *capstanv1.Promotion
	spec   *pipelinesv1.PullRequestPromotion
	branch string
	pass   *pass
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
	if a.pass, err = connection.breaker.enter(); err != nil {
		return err
	}
	err = a.pass.act(func() error { return do(ctx, a) })
	connection.pace.note(s.o.Clock.Now(), err)
	return explain(err, version)
}

// clone clones the repository for an act.
func (a *act) clone(ctx context.Context, do func(context.Context, *gitrepo.Clone) error) error {
	username, password, err := a.provider.GitCredentials(ctx)
	if err != nil {
		return err
	}
	return a.o.Workspace.Clone(ctx, gitrepo.Remote{
		URL: a.provider.Repository().CloneURL, Username: username, Password: password, Transport: &gate{pass: a.pass, next: a.provider.Transport()},
	}, do)
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
	// Uncached: a cache may not have the newer promotion yet.
	all, err := promotions.OfPipeline(ctx, a.o.Reader, types.NamespacedName{Namespace: a.p.Namespace, Name: a.p.Spec.Pipeline.Name}, a.p.Spec.Pipeline.UID)
	if err != nil {
		return err
	}
	for i := range all {
		if other := &all[i].Spec; other.Environment == a.p.Spec.Environment && other.Number > a.p.Spec.Number {
			return errOutranked
		}
	}
	return nil
}

// errOutranked is returned when the branch or pull request has a higher number. The hub
// reconciles that promotion next.
var errOutranked = errors.New("a promotion with a higher number has this branch or pull request")
