package view

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Apps counts the applications of a cluster that the viewer may see.
type Apps struct {
	Ready, Stale, Total int
	// Failing cannot be read, or report an error. Unready are the others that are not as they should be.
	Failing, Unready int
}

// Moves counts the promotions into environments that have a target in a cluster.
type Moves struct {
	InFlight, Waiting, Failed int
}

// Any reports whether there is one.
func (m Moves) Any() bool { return m != Moves{} }

// tallies are counts by cluster.
type tallies struct {
	apps  map[Cluster]Apps
	moves map[Cluster]Moves
	nodes map[Cluster]Nodes
}

func (f *Facts) tally(known map[Cluster]standing, scope Scope) tallies {
	apps, moves := f.byCluster(known, scope)
	return tallies{apps: apps, moves: moves, nodes: f.nodes(scope)}
}

// count of a cluster.
type count struct {
	apps  Apps
	moves Moves
	// round is the last environment that was counted.
	round int
}

// place is a cluster as targets reference it, with the count of the cluster that it is in fact.
type place struct {
	standing standing
	visible  bool
	of       *count
}

// byCluster counts applications and promotions of each cluster. It builds no text: every page with clusters needs the counts of
// all targets.
func (f *Facts) byCluster(known map[Cluster]standing, scope Scope) (map[Cluster]Apps, map[Cluster]Moves) {
	type app struct {
		of                    *count
		kind, namespace, name string
	}
	places, counts, counted := make(map[Cluster]*place, len(known)), make(map[Cluster]*count, len(known)), map[app]Tone{}
	placeOf := func(c Cluster) *place {
		if at := places[c]; at != nil {
			return at
		}
		actual := f.actual(c)
		if counts[actual] == nil {
			counts[actual] = &count{}
		}
		at := &place{standing: known[c], visible: targetVisible(c, scope), of: counts[actual]}
		places[c] = at
		return at
	}
	round := 0
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if !scope.Pipelines.Has(p.Namespace) {
			continue
		}
		for e := range p.Spec.Environments {
			round++
			env, phase := &p.Spec.Environments[e], newestPhase(p, e)
			status := p.Status.Environments[env.Name]
			for t := range env.Targets {
				target := &env.Targets[t]
				c := ClusterOf(target.ClusterRef, p.Namespace)
				at := placeOf(c)
				if at.of.round != round {
					at.of.round = round
					at.of.moves.add(phase)
				}
				key := app{at.of, p.Spec.AppRef.Kind, target.Namespace, p.Spec.AppRef.Name}
				mark, _, _ := f.observed(c, at.standing, seenIn(status, t), at.visible)
				if tone, again := counted[key]; !again || mark.Tone < tone { // One of several Pipelines counts as the worst.
					counted[key] = mark.Tone
				}
			}
		}
	}
	for of, tone := range counted {
		of.of.apps.add(tone)
	}
	apps, moves := make(map[Cluster]Apps, len(counts)), make(map[Cluster]Moves, len(counts))
	for c, n := range counts {
		apps[c], moves[c] = n.apps, n.moves
	}
	return apps, moves
}

func (a *Apps) add(tone Tone) {
	a.Total++
	switch tone {
	case Good:
		a.Ready++
	case Stale:
		a.Stale++
	case Bad:
		a.Failing++
	case Warning, Asking, Busy:
		a.Unready++
	case Idle: // Nothing is known, or nothing runs there yet.
	}
}

// newestPhase returns the phase of the newest promotion into an environment, from the
// Pipeline's status. Without a promotion it is Superseded, which no count includes.
func newestPhase(p *pipelinesv1.Pipeline, environment int) capstanv1.PromotionPhase {
	status := p.Status.Environments[p.Spec.Environments[environment].Name]
	if status == nil || status.Promotion == nil {
		return capstanv1.PhaseSuperseded
	}
	return capstanv1.PromotionPhase(status.Promotion.Phase)
}

func (m *Moves) add(phase capstanv1.PromotionPhase) {
	switch phase {
	case capstanv1.PhaseAwaitingApproval:
		m.Waiting++
	case "", capstanv1.PhaseAwaitingGates, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
		m.InFlight++
	case capstanv1.PhaseFailed, capstanv1.PhaseRejected:
		m.Failed++
	case capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
	}
}
