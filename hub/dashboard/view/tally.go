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

// byCluster counts applications and promotions of each cluster.
func (f *Facts) byCluster(known map[Cluster]standing, scope Scope) (map[Cluster]Apps, map[Cluster]Moves) {
	type app struct {
		Cluster
		kind, namespace, name string
	}
	apps, moves, counted := map[Cluster]Apps{}, map[Cluster]Moves{}, map[app]bool{}
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if !scope.Pipelines.Has(p.Namespace) {
			continue
		}
		for e := range p.Spec.Environments {
			in := map[Cluster]bool{}
			for _, t := range f.placements(p, e, known, scope) {
				c := f.actual(t.Cluster)
				in[c] = true
				key := app{c, p.Spec.AppRef.Kind, t.Namespace, p.Spec.AppRef.Name}
				if counted[key] {
					continue
				}
				counted[key] = true
				n := apps[c]
				n.add(t.Mark.Tone)
				apps[c] = n
			}
			phase := newestPhase(p, e)
			for c := range in {
				n := moves[c]
				n.add(phase)
				moves[c] = n
			}
		}
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
