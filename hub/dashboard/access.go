package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/internal/capa"
)

const (
	// accessFor is how long a granted permission is cached: a revoked permission ends at
	// most this much later. The first denial is cached as long, because API servers
	// receive a new binding with a delay.
	accessFor = 30 * time.Second
	// deniedFor is how long a repeated denial is cached. Signing in again clears the cache.
	// A user who may see few of many namespaces would otherwise cause many denied reviews,
	// and the page is shown only after all reviews.
	deniedFor = 5 * time.Minute
	// maxUsers whose permissions are cached.
	maxUsers = 512
	// maxAsking is how many reviews run at a time for one user.
	maxAsking = 16
	// askTimeout bounds one review by the API server.
	askTimeout = 10 * time.Second
)

// right is a permission: a verb on a resource.
type right struct {
	group, resource, verb string
}

var (
	listClusters   = right{capstanv1.GroupVersion.Group, "clusterconnections", "list"}
	listPipelines  = right{pipelinesv1.GroupVersion.Group, "pipelines", "list"}
	listPromotions = right{capstanv1.GroupVersion.Group, "promotions", "list"}
	listEvents     = right{"events.k8s.io", "events", "list"}
	listBackends   = right{eventingv1.GroupVersion.Group, "eventingbackends", "list"}
)

// Rights to change objects.
var (
	approve          = right{capstanv1.GroupVersion.Group, "promotions", capstanv1.ApproveVerb}
	patchPromotions  = right{capstanv1.GroupVersion.Group, "promotions", "patch"}
	override         = right{capstanv1.GroupVersion.Group, "promotions", capstanv1.OverrideVerb}
	overrideWindows  = right{capstanv1.GroupVersion.Group, "promotionwindows", capstanv1.OverrideVerb}
	patchPipelines   = right{pipelinesv1.GroupVersion.Group, "pipelines", "patch"}
	requestPromotion = right{capstanv1.GroupVersion.Group, "promotionrequests", "create"}
)

// A list with two kinds is shown only to users who may list both.
var (
	listNodeGroups = []right{{clusterv1.GroupVersion.Group, "machinedeployments", "list"}, {clusterv1.GroupVersion.Group, "machinepools", "list"}}
	listSets       = []right{{clusterv1.GroupVersion.Group, "machinesets", "list"}}
	listInstances  = []right{{capa.GroupInfrastructure, "awsmachines", "list"}, {capa.GroupInfrastructure, "awsmachinepools", "list"}}
	listManaged    = []right{{capa.GroupInfrastructure, "awsmanagedmachinepools", "list"}, {capa.GroupInfrastructure, "rosamachinepools", "list"}}
)

// question is a right in a namespace; an empty namespace stands for all namespaces.
type question struct {
	right
	namespace string
}

// String is different for different questions.
func (q question) String() string {
	return strings.Join([]string{q.group, q.resource, q.verb, q.namespace}, "/")
}

type ruling struct {
	allowed bool
	// again is set when the previous review denied it, too.
	again bool
	at    time.Time
}

func (r ruling) counts(now time.Time) bool {
	if r.again {
		return now.Sub(r.at) < deniedFor
	}
	return now.Sub(r.at) < accessFor
}

// access reviews what users may see, by SubjectAccessReviews, and caches the results.
type access struct {
	client client.Client
	clock  clock.PassiveClock
	users  *lru.Cache // of *rulings, by identity; it locks itself
	// readOnly removes every right to change objects: a hub in dry run does not act on such changes.
	readOnly bool
}

// rulings are the cached results for one user.
type rulings struct {
	// reviews joins equal reviews that are under way: many tabs of one user send requests at once.
	reviews singleflight.Group

	// mu guards known.
	mu    sync.Mutex
	known map[question]ruling
}

func newAccess(c client.Client, clock clock.PassiveClock, readOnly bool) *access {
	return &access{client: c, clock: clock, users: lru.New(maxUsers), readOnly: readOnly}
}

// scope returns the Scope of a user: for each kind, the namespaces of the facts in which
// the user may list it, and those in which the user may act on what the user may list.
func (a *access) scope(ctx context.Context, user authenticationv1.UserInfo, f *view.Facts) (view.Scope, error) {
	known, err := a.of(user)
	if err != nil {
		return view.Scope{}, err
	}
	clusters := namespaces(len(f.Connections), func(i int) string { return f.Connections[i].Namespace })
	pipelines := namespaces(len(f.Pipelines), func(i int) string { return f.Pipelines[i].Namespace })
	promotions := namespaces(len(f.Promotions), func(i int) string { return f.Promotions[i].Namespace })
	events := namespaces(len(f.Events), func(i int) string { return f.Events[i].Namespace })
	backends := namespaces(len(f.Backends), func(i int) string { return f.Backends[i].Namespace })
	groups := namespaces(len(f.NodeGroups), func(i int) string { return f.NodeGroups[i].Namespace })
	instances := namespaces(len(f.Instances), func(i int) string { return f.Instances[i].Namespace })
	var scope view.Scope
	type part struct {
		rights []right
		among  map[string]bool
		into   *view.Namespaces
	}
	parts := []part{
		{[]right{listClusters}, clusters, &scope.Clusters},
		{[]right{listPipelines}, pipelines, &scope.Pipelines},
		{[]right{listPromotions}, promotions, &scope.Promotions},
		{[]right{listEvents}, events, &scope.Events},
		{[]right{listBackends}, backends, &scope.Backends},
		{listNodeGroups, groups, &scope.NodeGroups},
		{listSets, groups, &scope.MachineSets},
		{listInstances, instances, &scope.Instances},
		{listManaged, instances, &scope.ManagedPools},
		{[]right{approve}, promotions, &scope.Approve},
		{[]right{patchPromotions}, promotions, &scope.Patch},
		{[]right{override}, promotions, &scope.Override},
		{[]right{patchPipelines}, pipelines, &scope.Suspend},
		{[]right{requestPromotion}, pipelines, &scope.Request},
	}
	objects := map[string]map[string]bool{} // kind → namespaces
	for _, o := range f.Objects {
		if objects[o.Cluster.Kind] == nil {
			objects[o.Cluster.Kind] = map[string]bool{}
		}
		objects[o.Cluster.Kind][o.Cluster.Namespace] = true
	}
	ofKinds := map[string]*view.Namespaces{}
	for _, k := range pipelinesv1.ClusterKinds() {
		ofKinds[k.Kind] = &view.Namespaces{}
		parts = append(parts, part{[]right{{k.Group, k.Resource, "list"}}, objects[k.Kind], ofKinds[k.Kind]})
	}
	for _, part := range parts {
		*part.into = view.Namespaces{All: true}
		for _, of := range part.rights {
			allowed, err := a.namespaces(ctx, user, known, of, part.among)
			if err != nil {
				return view.Scope{}, err
			}
			*part.into = part.into.And(allowed)
		}
	}
	scope.Objects = map[string]view.Namespaces{}
	for kind, seen := range ofKinds {
		scope.Objects[kind] = *seen
	}
	windows := question{right: overrideWindows}
	if err := a.ask(ctx, user, known, []question{windows}); err != nil {
		return view.Scope{}, err
	}
	scope.OverrideWindows = known.allows(windows)
	for of, among := range map[*view.Namespaces]view.Namespaces{
		&scope.Approve: scope.Promotions, &scope.Patch: scope.Promotions, &scope.Override: scope.Promotions, &scope.Suspend: scope.Pipelines, &scope.Request: scope.Pipelines,
	} {
		*of = of.And(among)
	}
	if a.readOnly {
		none := view.Namespaces{}
		scope.Approve, scope.Patch, scope.Override, scope.Suspend, scope.Request = none, none, none, none, none
		scope.OverrideWindows = false
	}
	return scope, nil
}

// namespaces returns the set of the namespaces of n objects.
func namespaces(n int, of func(int) string) map[string]bool {
	all := map[string]bool{}
	for i := range n {
		all[of(i)] = true
	}
	return all
}

// identity is a key of everything about a user that the API server's authorizers see.
func identity(user authenticationv1.UserInfo) (string, error) {
	encoded, err := json.Marshal(user)
	if err != nil {
		return "", fmt.Errorf("encoding a user: %w", err)
	}
	return string(encoded), nil
}

// forget removes the cached results for a user.
func (a *access) forget(user authenticationv1.UserInfo) error {
	of, err := identity(user)
	if err == nil {
		a.users.Remove(of)
	}
	return err
}

// of returns the cached results for a user.
func (a *access) of(user authenticationv1.UserInfo) (*rulings, error) {
	of, err := identity(user)
	if err != nil {
		return nil, err
	}
	if known, ok := a.users.Get(of); ok {
		if r, ok := known.(*rulings); ok {
			return r, nil
		}
	}
	r := &rulings{known: map[question]ruling{}}
	a.users.Add(of, r) // Two concurrent requests review twice; one result is kept.
	return r, nil
}

// namespaces returns the namespaces in which a user has a right. It reviews all namespaces
// at once first.
func (a *access) namespaces(ctx context.Context, user authenticationv1.UserInfo, known *rulings, of right, among map[string]bool) (view.Namespaces, error) {
	everywhere := question{right: of}
	if err := a.ask(ctx, user, known, []question{everywhere}); err != nil {
		return view.Namespaces{}, err
	}
	if known.allows(everywhere) {
		return view.Namespaces{All: true}, nil
	}
	questions := make([]question, 0, len(among))
	for namespace := range among {
		questions = append(questions, question{of, namespace})
	}
	if err := a.ask(ctx, user, known, questions); err != nil {
		return view.Namespaces{}, err
	}
	var n view.Namespaces
	for _, q := range questions {
		if known.allows(q) {
			n.Names = append(n.Names, q.namespace)
		}
	}
	slices.Sort(n.Names)
	return n, nil
}

// ask reviews the questions whose results are not cached or have expired.
func (a *access) ask(ctx context.Context, user authenticationv1.UserInfo, known *rulings, questions []question) error {
	now := a.clock.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxAsking)
	for _, q := range known.missing(questions, now) {
		group.Go(func() error {
			_, err, _ := known.reviews.Do(q.String(), func() (any, error) { return nil, a.review(ctx, user, known, q, now) })
			return err
		})
	}
	return group.Wait()
}

// review makes one review and caches its result. Others may wait for it, so it does not end with
// the request.
func (a *access) review(ctx context.Context, user authenticationv1.UserInfo, known *rulings, q question, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: q.group, Resource: q.resource, Verb: q.verb, Namespace: q.namespace},
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if err := a.client.Create(ctx, review); err != nil {
		return fmt.Errorf("reviewing access to %s: %w", q.resource, err)
	}
	known.set(q, review.Status.Allowed, now)
	return nil
}

func (r *rulings) missing(questions []question, now time.Time) []question {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known, func(_ question, known ruling) bool { return now.Sub(known.at) >= 2*deniedFor }) // Namespaces come and go.
	var all []question
	for _, q := range questions {
		if known, ok := r.known[q]; !ok || !known.counts(now) {
			all = append(all, q)
		}
	}
	return all
}

func (r *rulings) set(q question, allowed bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.known[q]
	r.known[q] = ruling{allowed: allowed, again: !allowed && known && !before.allowed, at: now}
}

func (r *rulings) allows(q question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[q].allowed
}
