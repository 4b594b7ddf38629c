package view

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// maxMachines is how many machines of a cluster are shown, worst first. The counts include
// all of them.
const maxMachines = 30

// NodeGroup is a MachineDeployment, a MachinePool, or a MachineSet that no MachineDeployment
// owns, of the management cluster.
type NodeGroup struct {
	Kind, Namespace, Name string
	// Cluster that it belongs to, by spec.clusterName.
	Cluster        string
	Ready, Desired int64
	// Capacity of a node, from the annotations: "cpu: 8". ByUser are the names, such as "cpu", of
	// those whose values a user set; Capstan set the others.
	Capacity []string
	ByUser   []string
	// InstanceType of the nodes, as Capstan annotated it; empty when it is not known, or the nodes
	// have several types.
	InstanceType string
	// Annotated is when Capstan last changed the annotations; zero when it is not known.
	Annotated time.Time
	// Reason is the word for the present problem of the annotations, such as "TemplateNotFound",
	// Note what is wrong, and Since when the hub last reported it. They are empty without a problem,
	// and for viewers who may not list Events in the namespace. Facts.nodeGroups sets them.
	Reason, Note string
	Since        time.Time
}

// kindsOfManagedPools are the kinds of Instances that need Scope.ManagedPools.
var kindsOfManagedPools = []string{"AWSManagedMachinePool", "ROSAMachinePool"}

// seesInstances reports whether the viewer may list a machine or pool.
func (s Scope) seesInstances(i *Instances) bool {
	if slices.Contains(kindsOfManagedPools, i.Kind) {
		return s.ManagedPools.Has(i.Namespace)
	}
	return s.Instances.Has(i.Namespace)
}

// machines returns where the viewer may list all kinds of Instances, and what the viewer lacks elsewhere.
func (s Scope) machines() part {
	all := part{"machines and pools", NeedInstances, s.Instances.And(s.ManagedPools)}
	if s.Instances.All {
		all.need = NeedManagedPools
	}
	return all
}

// Instances is an AWSMachine, or a pool of AWS, of the management cluster.
type Instances struct {
	Kind, Namespace, Name string
	// Cluster that it belongs to, by Cluster API's label.
	Cluster string
	// State is the value of its label ec2-instance-state or asg-instance-state; empty
	// before the first event.
	State string
	// Instance is the ID of the instance, or of the group; empty before there is one.
	Instance string
	// Event names the event of AWS behind State, such as "Spot interruption", and Since is its time.
	// They are zero before the first event.
	Event string
	Since time.Time
	// Due is when the announced change of a notice will happen; zero when State is no notice, or
	// AWS did not say when.
	Due time.Time
}

// Nodes is the summary of the node groups of a cluster.
type Nodes struct {
	Groups         int
	Ready, Desired int64
	// Empty are the groups that need nodes and have none that is ready.
	Empty int
	// Problems are the groups with a problem of their capacity annotations.
	Problems int
	// Instances are the machines and pools. Those of Leaving are terminating, and those of Failing failed or are interrupted,
	// according to AWS.
	Instances, Leaving, Failing int
}

// LeavingOrFailed counts the machines and pools whose instances are terminating, interrupted or failed.
func (n Nodes) LeavingOrFailed() int { return n.Leaving + n.Failing }

// GroupRow is a node group on a cluster's page.
type GroupRow struct {
	NodeGroup
	Mark Mark
}

// Percent of the desired nodes that are ready.
func (g GroupRow) Percent() int64 { return min(g.Ready, g.Desired) * percent / max(g.Desired, 1) }

// MoreRows stands for the rows that a list does not show.
type MoreRows struct {
	Columns, N int
	Link       string
}

// InstanceRow is a machine or pool on a cluster's page.
type InstanceRow struct {
	Instances
	Mark Mark
}

// instanceMark returns the Mark of the value of a state label.
func instanceMark(state string) Mark {
	switch state {
	case "":
		return Mark{Idle, "No event yet"}
	case "running", "launched":
		return Mark{Good, state}
	case "pending", "launching", "warm-pool":
		return Mark{Busy, state}
	case "stopping", "stopped", "shutting-down", "terminating", "rebalance-recommended", "scheduled-maintenance":
		return Mark{Warning, state}
	case "capacity-reservation-interruption", "launch-failed", "terminate-failed":
		return Mark{Bad, state}
	}
	if strings.HasPrefix(state, "spot-interruption-") {
		return Mark{Bad, state}
	}
	return Mark{Idle, state} // "terminated", and states that are not known here.
}

// machineMark returns the Mark of a machine or pool. A notice whose due time is over is not urgent any more: what it announced has
// happened, or will not.
func (f *Facts) machineMark(i *Instances) Mark {
	m := instanceMark(i.State)
	if !i.Due.IsZero() && !f.Now.Before(i.Due) && m.Tone == Bad {
		return Mark{Warning, m.Word + ", due time passed"}
	}
	return m
}

func groupMark(n NodeGroup) Mark {
	switch {
	case n.Ready == 0 && n.Desired > 0:
		return Mark{Bad, "None ready"}
	case n.Ready < n.Desired:
		return Mark{Warning, "Some not ready"}
	case n.Reason != "":
		return Mark{Warning, annotationProblem}
	}
	return Mark{Good, "Ready"}
}

// owned returns the Cluster that an object of Cluster API references.
func owned(namespace, name string) Cluster {
	return Cluster{Kind: "Cluster", Namespace: namespace, Name: name}
}

// nodes returns the summary of the node groups of each cluster.
func (f *Facts) nodes(scope Scope) map[Cluster]Nodes {
	all := map[Cluster]Nodes{}
	for _, g := range f.nodeGroups(scope) {
		c := owned(g.Namespace, g.Cluster)
		n := all[c]
		n.Groups, n.Ready, n.Desired = n.Groups+1, n.Ready+g.Ready, n.Desired+g.Desired
		if groupMark(g).Tone == Bad {
			n.Empty++
		}
		if g.Reason != "" {
			n.Problems++
		}
		all[c] = n
	}
	for n := range f.Instances {
		if i := &f.Instances[n]; scope.seesInstances(i) {
			c := owned(i.Namespace, i.Cluster)
			n := all[c]
			n.Instances++
			switch f.machineMark(i).Tone {
			case Bad:
				n.Failing++
			case Warning:
				n.Leaving++
			case Stale, Asking, Busy, Good, Idle:
			}
			all[c] = n
		}
	}
	return all
}

// machinesOf returns the blocks of a cluster's node groups and of its machines and pools.
func (f *Facts) machinesOf(c Cluster, scope Scope) []Block {
	var groups []GroupRow
	for _, g := range f.nodeGroups(scope) {
		if owned(g.Namespace, g.Cluster) == c {
			groups = append(groups, GroupRow{g, groupMark(g)})
		}
	}
	slices.SortFunc(groups, func(a, b GroupRow) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	var instances []InstanceRow
	for n := range f.Instances {
		if i := &f.Instances[n]; owned(i.Namespace, i.Cluster) == c && scope.seesInstances(i) {
			instances = append(instances, InstanceRow{*i, f.machineMark(i)})
		}
	}
	slices.SortFunc(instances, func(a, b InstanceRow) int {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	var blocks []Block
	for _, g := range groups[:min(len(groups), maxMachines)] {
		blocks = append(blocks, Block{ID: "group/" + g.Kind + "/" + g.Name, List: "groups", Template: "group", Data: g})
	}
	if more := len(groups) - maxMachines; more > 0 {
		blocks = append(blocks, Block{ID: "groups-more", List: "groups", Template: "machines-more", Data: MoreRows{Columns: groupColumns, N: more}})
	}
	if len(groups) == 0 {
		blocks = append(blocks, empty("groups", "empty-row", groupColumns, scope.NodeGroups, NeedNodeGroups, Query{}, "No MachineDeployment, MachineSet or MachinePool of the management cluster belongs to this cluster."))
	}
	for _, i := range instances[:min(len(instances), maxMachines)] {
		blocks = append(blocks, Block{ID: "instance/" + i.Kind + "/" + i.Name, List: "machines", Template: "machine", Data: i})
	}
	if more := len(instances) - maxMachines; more > 0 {
		all := Query{Search: c.Name, Namespace: c.Namespace}.At(InstancesPath)
		blocks = append(blocks, Block{ID: "machines-more", List: "machines", Template: "machines-more", Data: MoreRows{Columns: machineColumns, N: more, Link: all}})
	}
	if all := scope.machines(); len(instances) == 0 {
		blocks = append(blocks, empty("machines", "empty-row", machineColumns, all.in, all.need, Query{}, "No AWSMachine or pool of AWS of the management cluster belongs to this cluster."))
	}
	return blocks
}

// groupColumns and machineColumns are the numbers of columns of the tables of node groups
// and of machines.
const groupColumns, machineColumns = 4, 5
