package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// fleets are the targets of fleets that this process has seen. A later process continues with the standings that the
// status has.
//
// Locking: one worker at a time uses the fleets of a Pipeline.
type fleets struct {
	// mu guards lockedOf, for field access only.
	mu       sync.Mutex
	lockedOf map[types.NamespacedName]fleetsOf
}

// fleetsOf are the fleets of one Pipeline, by environment.
type fleetsOf struct {
	uid     types.UID
	members map[string]map[targetKey]member
}

// member is a target of a fleet.
type member struct {
	quorum.Member
	// unobserved is since when this process cannot observe it; zero if it can.
	unobserved time.Time
}

func (f *fleets) ofPipeline(key types.NamespacedName, uid types.UID) map[string]map[targetKey]member {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of := f.lockedOf[key]; of.uid == uid {
		return of.members
	}
	return nil
}

func (f *fleets) set(key types.NamespacedName, uid types.UID, members map[string]map[targetKey]member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(members) == 0 {
		delete(f.lockedOf, key)
		return
	}
	if f.lockedOf == nil {
		f.lockedOf = map[types.NamespacedName]fleetsOf{}
	}
	f.lockedOf[key] = fleetsOf{uid: uid, members: members}
}

func (f *fleets) forget(key types.NamespacedName) { f.set(key, "", nil) }

// stand gives the targets of fleets their standings, and returns the time until one of them changes if nothing else
// does; 0 if none will.
//
// A target is lost after this process could not observe it for so long: the time before, and of a clock that is set,
// does not count. Joining ends by the time of the clock, at most, so that a restart does not prolong it.
func (r *Reconciler) stand(p *pipelinesv1.Pipeline, seen observations) (next time.Duration) {
	key, now := client.ObjectKeyFromObject(p), r.Clock.Now()
	before, members := r.fleets.ofPipeline(key, p.UID), map[string]map[targetKey]member{}
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		if !env.IsFleet() {
			continue
		}
		status := p.Status.Environments[env.Name]
		rules := quorum.For(p, i)
		known, joins := before[env.Name], status != nil && status.Agreed != nil
		if known == nil {
			var all bool
			known, all = membersBefore(p, status)
			joins = joins && all
		}
		joined := make([]string, 0, 2)
		if status != nil && status.Agreed != nil {
			joined = append(joined, status.Agreed.Revision)
		}
		members[env.Name] = make(map[targetKey]member, len(seen[i]))
		if seen.fleet(p, i).Unknown { // Those that are not found now are still members.
			maps.Copy(members[env.Name], known)
		}
		keys := make([]targetKey, len(seen[i]))
		for j := range seen[i] {
			if selects(&env.Targets[j]) { // It stands for clusters that are not known.
				continue
			}
			keys[j] = keyOf(p, &env.Targets[j])
			s, t := &seen[i][j], keys[j]
			m, is := known[t]
			if !is {
				m.New = joins
			}
			switch {
			case s.target.Fresh:
				m.unobserved = time.Time{}
			case m.unobserved.IsZero():
				m.unobserved = now
			}
			members[env.Name][t] = m
			if s.standing = m.Standing; m.New {
				s.standing = pipelinesv1.TargetJoining
			}
		}
		if runs, n := seen.fleet(p, i).Most(); n > 0 { // During a roll-out the environment does not agree on it yet.
			joined = append(joined, runs)
		}
		for j := range seen[i] {
			if selects(&env.Targets[j]) {
				continue
			}
			s := &seen[i][j]
			m := members[env.Name][keys[j]]
			var left time.Duration
			m.Member, left = rules.Stand(m.Member, s.target, joined, m.unobserved, now)
			members[env.Name][keys[j]] = m
			s.standing, s.since = m.Standing, m.Since
			next = sooner(next, left)
		}
	}
	r.fleets.set(key, p.UID, members)
	return next
}

// listedBefore returns the targets of a fleet that a status lists.
func listedBefore(p *pipelinesv1.Pipeline, status *pipelinesv1.EnvironmentStatus) map[targetKey]*pipelinesv1.TargetStatus {
	listed := make(map[targetKey]*pipelinesv1.TargetStatus, len(status.Targets))
	for j := range status.Targets {
		t := &status.Targets[j]
		listed[keyOf(p, &pipelinesv1.Target{Namespace: t.Namespace, ClusterRef: t.ClusterAppRef.ClusterRef})] = t
	}
	return listed
}

// membersBefore returns the targets of a fleet that a status names, and whether these are all.
func membersBefore(p *pipelinesv1.Pipeline, status *pipelinesv1.EnvironmentStatus) (_ map[targetKey]member, all bool) {
	named := status.Members()
	members := make(map[targetKey]member, len(named))
	for i := range named {
		var m member
		if since := named[i].StandingTime; since != nil {
			m.Standing, m.Since = named[i].Standing, since.Time
		}
		members[keyOf(p, &named[i].Target)] = m
	}
	return members, status != nil && status.Fleet != nil && (len(status.Fleet.Members) > 0 || len(named) == int(status.Fleet.Targets))
}

// maxFleetMessage bounds the message of a fleet, in bytes.
const maxFleetMessage = 1024

// fleetStatus counts the targets of environment i.
func fleetStatus(p *pipelinesv1.Pipeline, i int, fleet quorum.Fleet, seen []observation) *pipelinesv1.FleetStatus {
	runs, n := fleet.Most()
	s := &pipelinesv1.FleetStatus{Targets: int32(len(seen)), Revision: runs, Ready: int32(n), Required: int32(fleet.Required())}
	left := map[pipelinesv1.TargetStanding][]string{}
	for j := range seen {
		if standing := seen[j].standing; standing != "" {
			left[standing] = append(left[standing], targetText(p, i, j))
		}
	}
	s.Lost, s.Joining, s.Late = int32(len(left[pipelinesv1.TargetLost])), int32(len(left[pipelinesv1.TargetJoining])), int32(len(left[pipelinesv1.TargetLate]))
	s.Unready = int32(fleet.Unready())
	if len(seen) > shownOf(p, i) && wholeOf(p, i) <= pipelinesv1.MaxTargets {
		s.Members = membersOf(p, i, seen)
	}
	var all []string
	switch unobserved := fleet.Unobserved(); {
	case fleet.Unknown:
		all = append(all, "it is not known which clusters are selected")
	case fleet.Quorum.Err() != nil || len(seen) == 0:
	case int(s.Lost) > fleet.Quorum.MayBeLost(len(seen)):
		all = append(all, fmt.Sprintf("%d of %d targets are lost, and %d may be: the hub may be cut off from them", s.Lost, s.Targets, fleet.Quorum.MayBeLost(len(seen))))
	case n >= fleet.Required():
	case !fleet.Fresh():
		all = append(all, fmt.Sprintf("%d of %d targets cannot be observed: the hub may be cut off from them", unobserved, s.Targets))
	case n == 0:
		all = append(all, fmt.Sprintf("no target is ready; %d must be", s.Required))
	default:
		all = append(all, fmt.Sprintf("%d targets run %s, ready, and %d must", n, runs, s.Required))
	}
	for _, standing := range []pipelinesv1.TargetStanding{pipelinesv1.TargetLost, pipelinesv1.TargetJoining, pipelinesv1.TargetLate} {
		if names := left[standing]; len(names) > 0 {
			all = append(all, strings.ToLower(string(standing))+": "+shorten(names))
		}
	}
	s.Message = truncate.Bytes(strings.Join(all, "; "), maxFleetMessage)
	return s
}

// membersOf names the targets of environment i.
func membersOf(p *pipelinesv1.Pipeline, i int, seen []observation) []pipelinesv1.FleetMembers {
	type group struct {
		kind, clusters, namespace string
		standing                  pipelinesv1.TargetStanding
		since                     int64
	}
	var all []pipelinesv1.FleetMembers
	at := map[group]int{}
	for j := range seen {
		t, s := &p.Spec.Environments[i].Targets[j], &seen[j]
		if selects(t) {
			continue
		}
		ref := reference(p, t)
		g := group{ref.Kind, ref.Namespace, t.Namespace, s.standing, s.since.Unix()}
		k, is := at[g]
		if !is {
			k, at[g] = len(all), len(all)
			all = append(all, pipelinesv1.FleetMembers{
				Namespace: t.Namespace, ClusterKind: ref.Kind, ClusterNamespace: ref.Namespace, Standing: s.standing, StandingTime: standingTime(s),
			})
		}
		all[k].Clusters = append(all[k].Clusters, ref.Name)
	}
	// Those without a standing are first: their place in the status does not change when another one gets a standing.
	slices.SortStableFunc(all, func(a, b pipelinesv1.FleetMembers) int {
		return strings.Compare(string(a.Standing), string(b.Standing))
	})
	return all
}

// standingTime is since when a target has its standing, for the status; nil if it has none.
func standingTime(s *observation) *metav1.Time {
	if s.standing == "" {
		return nil
	}
	return &metav1.Time{Time: s.since.Truncate(time.Second)}
}

// shownOf returns how many targets the status of environment i may list. The stages of an environment share what it may.
func shownOf(p *pipelinesv1.Pipeline, i int) int {
	if p.Spec.Environments[i].Stage == nil {
		return pipelinesv1.MaxShownTargets
	}
	return pipelinesv1.MaxShownTargets / stagesFrom(p, decision.FirstStage(p, i))
}

// listed returns the targets that a status lists: so many at most. If there are more, those that do not run the
// revision of the fleet are first, and of these the ones whose controllers are at work on it last.
func listed(all []pipelinesv1.TargetStatus, fleet *pipelinesv1.FleetStatus, most int) []pipelinesv1.TargetStatus {
	if len(all) <= most {
		return all
	}
	place := func(t pipelinesv1.TargetStatus) int {
		switch {
		case t.Standing != "" || !t.Fresh() || !revision.Same(t.Revision, fleet.Revision):
			return 0
		case t.Ready:
			return 2
		case t.Progressing:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b pipelinesv1.TargetStatus) int { return cmp.Compare(place(a), place(b)) })
	return slices.Clone(all[:most])
}

// Reasons of Events about the targets of fleets.
const (
	ReasonTargetLost     = "TargetLost"
	ReasonTargetReturned = "TargetReturned"
	ReasonTargetJoining  = "TargetJoining"
	ReasonTargetLate     = "TargetLate"
)

// reportStandings records an Event for the targets of an environment whose standings changed.
func (r *Reconciler) reportStandings(p *pipelinesv1.Pipeline, before *pipelinesv1.EnvironmentStatus, i int) {
	env := &p.Spec.Environments[i]
	after := p.Status.Environments[env.Name]
	if !env.IsFleet() || before == nil || after == nil {
		return
	}
	was, _ := membersBefore(p, before)
	changed, now := map[string][]string{}, after.Members()
	for j := range now {
		t := &now[j]
		old := was[keyOf(p, &t.Target)].Standing
		reason := ""
		switch {
		case old == t.Standing:
		case old == pipelinesv1.TargetLost:
			reason = ReasonTargetReturned
		case t.Standing == pipelinesv1.TargetLost:
			reason = ReasonTargetLost
		case t.Standing == pipelinesv1.TargetJoining:
			reason = ReasonTargetJoining
		case t.Standing == pipelinesv1.TargetLate:
			reason = ReasonTargetLate
		}
		if reason != "" {
			changed[reason] = append(changed[reason], appText(p, &t.Target))
		}
	}
	for _, e := range []struct{ severity, reason, what string }{
		{corev1.EventTypeWarning, ReasonTargetLost, "cannot be observed any more, and is left out"},
		{corev1.EventTypeNormal, ReasonTargetReturned, "can be observed again"},
		{corev1.EventTypeNormal, ReasonTargetJoining, "joins"},
		{corev1.EventTypeWarning, ReasonTargetLate, "did not run its revision in time, and counts again"},
	} {
		if names := changed[e.reason]; len(names) > 0 {
			r.Recorder.Eventf(p, nil, e.severity, e.reason, "Reconcile", "Environment %q: %s: %s", env.Name, e.what, shorten(names))
		}
	}
}
