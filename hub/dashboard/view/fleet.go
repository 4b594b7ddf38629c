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

// Needs are the permissions that the pages require, as text for users.
const (
	NeedClusters = "list clusterconnections.capstan.dev"
	// NeedCAPIClusters and NeedGitopsClusters show clusters without a ClusterConnection, too.
	NeedCAPIClusters   = "list clusters.cluster.x-k8s.io"
	NeedGitopsClusters = "list gitopsclusters.gitops.weave.works"
	NeedPipelines      = "list pipelines.pipelines.weave.works"
	NeedPromotions     = "list promotions.capstan.dev"
	NeedEvents         = "list events.events.k8s.io"
	NeedBackends       = "list eventingbackends.eventing.kyma-project.io"
	NeedNodeGroups     = "list machinedeployments.cluster.x-k8s.io and machinepools.cluster.x-k8s.io"
	// NeedMachineSets shows node groups that are MachineSets without a MachineDeployment, too.
	NeedMachineSets = "list machinesets.cluster.x-k8s.io"
	NeedInstances   = "list awsmachines.infrastructure.cluster.x-k8s.io and awsmachinepools.infrastructure.cluster.x-k8s.io"
)

// Apps counts the applications of a cluster that the viewer may see.
type Apps struct {
	Ready, Stale, Total int
}

// Moves counts the promotions into environments that have a target in a cluster.
type Moves struct {
	InFlight, Waiting, Failed int
}

// Card is the summary of a cluster.
type Card struct {
	Cluster         Cluster
	Link            string
	Mark            Mark
	Reason, Message string
	// Since is when the state was entered.
	Since time.Time
	// Contact is how old the observations are.
	Contact Contact
	Version string
	// Expiry of the credentials; zero when it is not known.
	Expiry time.Time
	Apps   Apps
	Moves  Moves
	Nodes  Nodes
}

// Contact is when the API server of a cluster last answered.
type Contact struct {
	// Known is false on a standby, which connects to no cluster.
	Known bool
	// Fresh is set within FreshFor. At is not set then, so that a heartbeat is no change.
	Fresh bool
	// At is zero for never.
	At time.Time
}

// Attention counts what needs the action of a person.
type Attention struct {
	Waiting, Failed, Stale int
}

// FleetFrame is the frame of the page of all clusters.
type FleetFrame struct {
	Filters Filters
}

// FleetSummary is the summary of the page of all clusters.
type FleetSummary struct {
	Clusters  int
	Worst     Mark
	Counts    []Count
	Attention Attention
}

func clusterPath(c Cluster) string { return path("clusters", c.Kind, c.Namespace, c.Name) }

// Fleet returns the page of all clusters, worst first.
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
			"No cluster is known yet. A cluster is listed when a Pipeline references it in a clusterRef."))
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

// attention counts what needs the action of a person, for all Pipelines.
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
