package view

import (
	"cmp"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// FleetPath is the page of all clusters.
const FleetPath = "/"

// Needs are the rights that pages are shown by, for people.
const (
	NeedClusters   = "list clusterconnections.capstan.dev"
	NeedPipelines  = "list pipelines.pipelines.weave.works"
	NeedPromotions = "list promotions.capstan.dev"
	NeedEvents     = "list events.events.k8s.io"
	NeedBackends   = "list eventingbackends.eventing.kyma-project.io"
	NeedNodeGroups = "list machinedeployments.cluster.x-k8s.io and machinepools.cluster.x-k8s.io"
	NeedInstances  = "list awsmachines.infrastructure.cluster.x-k8s.io and awsmachinepools.infrastructure.cluster.x-k8s.io"
)

// Apps are how many applications of a cluster are well, of those that the viewer may
// see.
type Apps struct {
	Ready, Stale, Total int
}

// Moves are promotions into environments that a cluster is part of.
type Moves struct {
	InFlight, Waiting, Failed int
}

// Card is a cluster at a glance.
type Card struct {
	Cluster         Cluster
	Link            string
	Mark            Mark
	Reason, Message string
	// Since is when the state was entered.
	Since time.Time
	// Contact says how old what is known is.
	Contact Contact
	Version string
	// Expiry of the credentials; zero where it cannot be told.
	Expiry time.Time
	Apps   Apps
	Moves  Moves
	Nodes  Nodes
}

// Contact is when a cluster was last heard.
type Contact struct {
	// Known is false on a standby, which hears no cluster.
	Known bool
	// Fresh is within FreshFor; At is not told then, so that a heartbeat is no change.
	Fresh bool
	// At is zero for never.
	At time.Time
}

// Attention is what waits for people.
type Attention struct {
	Waiting, Failed, Stale int
}

// FleetFrame is what stands around the cards.
type FleetFrame struct {
	Filters Filters
}

// FleetSummary is the fleet in a line.
type FleetSummary struct {
	Clusters  int
	Worst     Mark
	Counts    []Count
	Attention Attention
}

func clusterPath(c Cluster) string { return path("clusters", c.Kind, c.Namespace, c.Name) }

// Fleet is the page of all clusters.
func Fleet(f *Facts, scope Scope, q Query) Page {
	known := f.standings()
	counts := f.tally(known, scope)
	marks, namespaces := map[Mark]int{}, map[string]bool{}
	var cards []Card
	summary := FleetSummary{Worst: Mark{Idle, "No clusters"}}
	for i := range f.Connections {
		connection := &f.Connections[i]
		if !scope.Clusters.Has(connection.Namespace) {
			continue
		}
		card := f.card(connection, known, counts)
		namespaces[connection.Namespace] = true
		marks[card.Mark]++
		if summary.Clusters == 0 || card.Mark.Tone < summary.Worst.Tone {
			summary.Worst = card.Mark
		}
		summary.Clusters++
		if q.inNamespace(card.Cluster.Namespace) && q.inState(card.Mark.Word) && q.finds(card.Cluster.Namespace+"/"+card.Cluster.Name, card.Reason, card.Version) {
			cards = append(cards, card)
		}
	}
	slices.SortStableFunc(cards, func(a, b Card) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Cluster.Namespace, b.Cluster.Namespace),
			cmp.Compare(a.Cluster.Name, b.Cluster.Name), cmp.Compare(a.Cluster.Kind, b.Cluster.Kind))
	})
	summary.Counts = counted(marks, func(m Mark) string { return FleetPath + "?" + Query{State: m.Word}.Encode() })
	summary.Attention = f.attention(known, scope)

	page := Page{Template: "fleet", Title: "Fleet", Frame: FleetFrame{Filters: Filters{
		Query: q, Action: FleetPath, Namespaces: sorted(namespaces), States: connectionWords,
	}}}
	page.Blocks = append(page.Blocks, Block{ID: "fleet-summary", List: "summary", Template: "fleet-summary", Data: summary})
	for _, c := range cards {
		page.Blocks = append(page.Blocks, Block{ID: "cluster/" + c.Cluster.Kind + "/" + c.Cluster.String(), List: "cards", Template: "card", Data: c})
	}
	if len(cards) == 0 {
		page.Blocks = append(page.Blocks, empty("cards", "empty-item", 0, scope.Clusters, NeedClusters, q,
			"No cluster is known yet. A cluster appears when a Pipeline names it in a clusterRef."))
	}
	return page
}

func (f *Facts) card(connection *capstanv1.ClusterConnection, known map[Cluster]standing, counts tallies) Card {
	c := clusterOf(connection)
	s := known[c]
	card := Card{
		Cluster: c, Link: clusterPath(c), Mark: connectionMark(s, f.Now), Reason: s.Reason, Message: s.Message, Since: s.Since,
		Contact: f.contact(s), Version: connection.Status.KubernetesVersion, Apps: counts.apps[c], Moves: counts.moves[c], Nodes: counts.nodes[c],
	}
	if s.Live && s.Version != "" {
		card.Version = s.Version
	}
	if e := connection.Status.CredentialExpiryTime; e != nil {
		card.Expiry = e.Time
	}
	return card
}

func (f *Facts) contact(s standing) Contact {
	c := Contact{Known: s.Live}
	if !s.Live || s.LastContact.IsZero() {
		return c
	}
	if c.Fresh = f.Now.Sub(s.LastContact) < FreshFor; !c.Fresh {
		c.At = s.LastContact
	}
	return c
}

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
				in[t.Cluster] = true
				key := app{t.Cluster, p.Spec.AppRef.Kind, t.Namespace, p.Spec.AppRef.Name}
				if counted[key] {
					continue
				}
				counted[key] = true
				n := apps[t.Cluster]
				n.add(t.Mark.Tone)
				apps[t.Cluster] = n
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
	if tone == Good {
		a.Ready++
	}
	if tone == Stale {
		a.Stale++
	}
}

// newestPhase of the promotions into an environment, of which the Pipeline tells;
// Superseded, which nobody counts, when there is none.
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
	case "", capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout:
		m.InFlight++
	case capstanv1.PhaseFailed, capstanv1.PhaseRejected:
		m.Failed++
	case capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
	}
}

// attention counts over all Pipelines what waits for people.
func (f *Facts) attention(known map[Cluster]standing, scope Scope) Attention {
	var a Attention
	var m Moves
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		if !scope.Pipelines.Has(p.Namespace) {
			continue
		}
		for e := range p.Spec.Environments {
			m.add(newestPhase(p, e))
			for _, t := range f.placements(p, e, known, scope) {
				if t.Mark.Tone == Stale {
					a.Stale++
				}
			}
		}
	}
	a.Waiting, a.Failed = m.Waiting, m.Failed
	return a
}
