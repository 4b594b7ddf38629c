package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const (
	// ClustersPath is the table of all clusters.
	ClustersPath = "/clusters"
	// ManagementPath is the page of the management cluster.
	ManagementPath = "/management"
)

// perClusters is how many clusters the table shows at once.
const perClusters = 100

// Needs are the permissions that the pages require, as text for users.
const (
	NeedClusters   = "list clusterconnections.capstan.dev"
	NeedPipelines  = "list pipelines.pipelines.weave.works"
	NeedPromotions = "list promotions.capstan.dev"
	NeedEvents     = "list events.events.k8s.io"
	NeedBackends   = "list eventingbackends.eventing.kyma-project.io"
	NeedNodeGroups = "list machinedeployments.cluster.x-k8s.io and machinepools.cluster.x-k8s.io"
	// NeedMachineSets shows node groups that are MachineSets without a MachineDeployment, too.
	NeedMachineSets = "list machinesets.cluster.x-k8s.io"
	NeedInstances   = "list awsmachines.infrastructure.cluster.x-k8s.io and awsmachinepools.infrastructure.cluster.x-k8s.io"
	// NeedManagedPools shows the pools of EKS and ROSA, too.
	NeedManagedPools = "list awsmanagedmachinepools.infrastructure.cluster.x-k8s.io and rosamachinepools.infrastructure.cluster.x-k8s.io"
)

// ClusterRow is a cluster in a list.
type ClusterRow struct {
	Cluster Cluster
	Link    string
	// Mark is that of its Health, and Why says what is wrong; empty if nothing is.
	Mark   Mark
	Why    string
	Health Health
	// Reason and Message of the connection.
	Reason, Message string
	// Since is when the state of the connection was entered.
	Since time.Time
	// Contact is how old the observations are.
	Contact Contact
	Version string
	// Expiry of the credentials; zero when it is not known.
	Expiry time.Time
	Apps   Apps
	Moves  Moves
	Nodes  Nodes
	// Strip is the availability in the last day.
	Strip Strip
	// Labels of its object.
	labels map[string]string
}

// Contact is when the API server of a cluster last answered.
type Contact struct {
	// Known is false on a cold standby, which connects to no cluster.
	Known bool
	// Fresh is set within FreshFor. At is not set then, so that a heartbeat is no change.
	Fresh bool
	// At is zero for never.
	At time.Time
}

func clusterPath(c Cluster) string {
	if c.Local() {
		return ManagementPath
	}
	return path("clusters", c.Kind, c.Namespace, c.Name)
}

// clusterID returns the ID of a cluster's block.
func clusterID(c Cluster) string { return "cluster/" + c.Kind + "/" + c.Namespace + "/" + c.Name }

// fleet is everything about the clusters of the Facts that a viewer may see.
type fleet struct {
	*Facts
	scope   Scope
	known   map[Cluster]standing
	tallies tallies
	// connections by their cluster.
	connections map[Cluster]*capstanv1.ClusterConnection
}

func (f *Facts) fleet(scope Scope) *fleet {
	known := f.standings()
	all := &fleet{Facts: f, scope: scope, known: known, tallies: f.tally(known, scope), connections: make(map[Cluster]*capstanv1.ClusterConnection, len(f.Connections))}
	for i := range f.Connections {
		all.connections[clusterOf(&f.Connections[i])] = &f.Connections[i]
	}
	return all
}

// sees reports whether the viewer may see a cluster: its ClusterConnection, or its own object. Who may list all ClusterConnections
// also sees the management cluster, which has none.
func (f *fleet) sees(c Cluster) bool {
	if c.Local() {
		return f.scope.Clusters.All
	}
	if f.connections[c] != nil && f.scope.Clusters.Has(c.Namespace) {
		return true
	}
	_, exists := f.object(c)
	return exists && f.scope.SeesObject(c)
}

// clusters returns the clusters that the viewer may see: the management cluster, that of each cluster object, and each one that
// has a ClusterConnection. A GitopsCluster that references a Cluster is a part of that one.
func (f *fleet) clusters() []Cluster {
	all := map[Cluster]bool{}
	add := func(c Cluster) {
		if actual := f.actual(c); f.sees(actual) {
			all[actual] = true
		} else if f.sees(c) {
			all[c] = true
		}
	}
	add(Cluster{})
	for c := range f.connections {
		add(c)
	}
	for i := range f.Objects {
		add(f.Objects[i].Cluster)
	}
	return slices.SortedFunc(maps.Keys(all), byName)
}

// byName orders clusters as users read them. The management cluster is the first.
func byName(a, b Cluster) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}

// rows returns the clusters, by name.
func (f *fleet) rows() []ClusterRow {
	clusters := f.clusters()
	all := make([]ClusterRow, len(clusters))
	for i, c := range clusters {
		all[i] = f.row(c)
	}
	return all
}

func (f *fleet) row(c Cluster) ClusterRow {
	actual := f.actual(c) // The counts are those of the Cluster, also if the viewer sees only the GitopsCluster.
	apps, moves, nodes := f.tallies.apps[actual], f.tallies.moves[actual], f.tallies.nodes[actual]
	r := ClusterRow{Cluster: c, Link: clusterPath(c), Apps: apps, Moves: moves, Nodes: nodes}
	if o, found := f.object(c); found && f.scope.SeesObject(c) {
		r.labels = o.Labels
	}
	connection := Aspect{Name: aspectNames[aspectConnection], Mark: Mark{Idle, notVisible}}
	credential := Aspect{Name: aspectNames[aspectCredential], Mark: Mark{Idle, notVisible}}
	if c.Local() || f.scope.Clusters.Has(c.Namespace) {
		connection, credential = f.connect(c, &r)
	}
	r.Health = Health{connection, applicationsAspect(apps, moves), nodesAspect(nodes), instancesAspect(nodes), credential}
	r.Health.limit(aspectApplications, f.scope.Pipelines.All)
	r.Health.limit(aspectNodes, f.scope.NodeGroups.Has(c.Namespace) && f.scope.MachineSets.Has(c.Namespace))
	r.Health.limit(aspectInstances, f.scope.Instances.Has(c.Namespace) && f.scope.ManagedPools.Has(c.Namespace))
	r.Mark = r.Health.Mark()
	if worst := r.Health.Worst(); worst.Mark.Tone < Good {
		r.Why = worst.Note
	}
	return r
}

// connect adds to the row of a cluster what is known of its connection.
func (f *fleet) connect(c Cluster, r *ClusterRow) (connection, credential Aspect) {
	s := f.known[c]
	r.Reason, r.Message, r.Since, r.Contact, r.Version, r.Strip = s.Reason, s.Message, s.Since, f.contact(s), s.Version, f.availability(c)
	credential.Name, credential.Mark = aspectNames[aspectCredential], Mark{Idle, wordNone}
	if of := f.connections[c]; of != nil {
		r.Version = cmp.Or(r.Version, of.Status.KubernetesVersion)
		r.Expiry = timeOf(of.Status.CredentialExpiryTime)
		credential.Mark = credentialMark(timeOf(of.Status.CredentialIssuedTime), r.Expiry, f.Now)
	}
	connection.Name, connection.Mark = aspectNames[aspectConnection], f.connection(c)
	if connection.Mark.Tone != Good {
		connection.Note = strings.TrimSuffix(s.Reason+": "+s.Message, ": ")
	}
	return connection, credential
}

// connection returns the Mark of the connection to a cluster.
func (f *fleet) connection(c Cluster) Mark {
	s := f.known[c]
	switch {
	case c.Local() && f.Leaderless:
		return Mark{Stale, "Stale"}
	case c.Local() && !s.Known:
		return Mark{Good, "Ready"} // These facts are read from it.
	case !s.Known && f.connections[c] == nil:
		return Mark{Idle, notConnected}
	}
	return connectionMark(s, f.Now)
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

// ClustersFrame is the frame of the table of clusters.
type ClustersFrame struct {
	Filters Filters
}

// ClustersSummary is the summary of the table of clusters.
type ClustersSummary struct {
	Clusters int
	Worst    Mark
	Counts   []Count
	Hidden   Hidden
}

// Clusters returns the table of all clusters, worst first.
func Clusters(f *Facts, scope Scope, q Query) Page {
	q = q.among(clusterWords)
	groups := f.groupings(scope)
	q.Tab, q.Sort, q.Group = choice(q.Tab, clusterTabs), choice(q.Sort, clusterSorts), choice(q.Group, groups)
	marks, namespaces := map[Mark]int{}, map[string]bool{}
	summary := ClustersSummary{Worst: Mark{Idle, "No clusters"}, Hidden: hiddenOf(scope.clusters())}
	var rows []ClusterRow
	for _, row := range f.fleet(scope).rows() {
		if !row.Cluster.Local() {
			namespaces[row.Cluster.Namespace] = true
		}
		marks[row.Mark]++
		if summary.Clusters == 0 || row.Mark.Tone < summary.Worst.Tone {
			summary.Worst = row.Mark
		}
		summary.Clusters++
		if q.Tab == tabUnwell && row.Health.well() {
			continue
		}
		if q.inNamespace(row.Cluster.Namespace) && q.inHealth(row) && (q.Reason == "" || q.Reason == row.Reason) &&
			q.finds(row.texts()...) {
			rows = append(rows, row)
		}
	}
	summary.Counts = counted(marks, func(m Mark) string { return Query{State: m.Word}.At(ClustersPath) })
	sortClusters(rows, q)
	headings := map[string]int{}
	if q.Group != "" {
		for i := range rows {
			headings[rows[i].group(q.Group)]++
		}
	}
	filters := Filters{
		Query: q, Action: ClustersPath, What: "clusters", Namespaces: sorted(namespaces), States: clusterWords, Sorts: clusterSorts, Groups: groups,
		Tabs: clusterTabs,
	}
	shown, pager := paged(rows, q, ClustersPath, "clusters", perClusters)
	page := Page{Template: "clusters", Title: "Clusters", Frame: ClustersFrame{Filters: filters}}
	page.Blocks = append(page.Blocks, Block{ID: "clusters-summary", List: "summary", Template: "clusters-summary", Data: summary})
	heading := ""
	for i, r := range shown {
		if group := r.group(q.Group); q.Group != "" && (i == 0 || group != heading) {
			heading = group
			page.Blocks = append(page.Blocks, Block{ID: "group/" + group, List: "rows", Template: "cluster-group", Data: ClusterGroup{Name: group, N: headings[group]}})
		}
		page.Blocks = append(page.Blocks, Block{ID: clusterID(r.Cluster), List: "rows", Template: "cluster-row", Data: r.listed()})
	}
	if len(rows) == 0 {
		text := "No cluster exists yet."
		if q.Tab == tabUnwell && summary.Clusters > 0 {
			text = "No cluster needs attention."
		}
		page.Blocks = append(page.Blocks, filters.empty("rows", "empty-row", clusterColumns, f.seen(scope), NeedClusters, text))
	}
	page.Blocks = append(page.Blocks, Block{ID: "clusters-pager", List: "pager", Template: "pager-block", Data: pager})
	return page
}

// seen returns a set that is empty if the viewer may see no cluster by any permission.
func (f *Facts) seen(scope Scope) Namespaces {
	if !scope.Clusters.Empty() {
		return scope.Clusters
	}
	for _, k := range pipelinesv1.ClusterKinds() {
		if n := scope.Objects[k.Kind]; !n.Empty() {
			return n
		}
	}
	return Namespaces{}
}

// clusterColumns is the number of columns of the table.
const clusterColumns = 10

// ClusterGroup is the heading of clusters that have something in common.
type ClusterGroup struct {
	Name string
	N    int
}

// inHealth reports whether a cluster is in the state of the Query: by its own Mark, or by that of one aspect.
func (q Query) inHealth(r ClusterRow) bool {
	return q.inState(r.Mark.Word) || slices.ContainsFunc(r.Health[:], func(a Aspect) bool { return a.Mark.Tone < Good && a.Mark.Word == q.State })
}

// texts are those that a search finds a cluster by.
func (r *ClusterRow) texts() []string {
	return []string{r.Cluster.String(), r.Cluster.Kind, r.Mark.Word, r.Reason, r.Version}
}

// listed returns the row without what no list shows, which would change it more often.
func (r ClusterRow) listed() ClusterRow {
	r.labels, r.Message, r.Contact = nil, "", Contact{}
	return r
}
