package view

import (
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// FreshFor is how long what was seen in a cluster is believed after the last contact:
// the hub's own bound, after which it promotes nothing from it.
const FreshFor = 45 * time.Second

// Cluster names the object that a cluster's credentials belong to. The zero value is
// the management cluster.
type Cluster struct {
	Kind, Namespace, Name string
}

// ClusterOf is the Cluster of a reference in an object of the given namespace; nil is
// the management cluster.
func ClusterOf(ref *pipelinesv1.CrossNamespaceClusterReference, namespace string) Cluster {
	if ref == nil {
		return Cluster{}
	}
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	return Cluster{Kind: ref.Kind, Namespace: namespace, Name: ref.Name}
}

// Local is whether the management cluster is meant.
func (c Cluster) Local() bool { return c == Cluster{} }

// String is for people: "fleet/prod".
func (c Cluster) String() string {
	if c.Local() {
		return "management cluster"
	}
	return c.Namespace + "/" + c.Name
}

// Heard is what the leader knows of a connection beyond its ClusterConnection.
type Heard struct {
	State           capstanv1.ConnectionState
	Reason, Message string
	Since           time.Time
	// LastContact is when the API server was last heard; zero for never.
	LastContact time.Time
	Version     string
}

// Facts are the hub's objects and what it heard, at one moment. They are shared with
// the caches: nobody changes them.
type Facts struct {
	Connections []capstanv1.ClusterConnection
	Pipelines   []pipelinesv1.Pipeline
	Promotions  []capstanv1.Promotion
	Backends    []eventingv1.EventingBackend
	// Events that the hub told.
	Events []*eventsv1.Event
	// NodeGroups and Instances are those of the management cluster. Unread says of
	// which kinds there may be more, and why.
	NodeGroups []NodeGroup
	Instances  []Instances
	Unread     []string
	// Leads is whether this replica is the one that connects to clusters.
	Leads bool
	// Heard of clusters, on the leader; empty on a standby.
	Heard map[Cluster]Heard
	Now   time.Time
}

// standing is the state of a connection as far as it is known.
type standing struct {
	Known bool
	Heard
	// Live is whether LastContact is known.
	Live bool
}

// silent is whether a cluster that should be heard was not, for FreshFor.
func (s standing) silent(now time.Time) bool {
	return s.Live && !s.LastContact.IsZero() && now.Sub(s.LastContact) >= FreshFor
}

// standing of a cluster: what the leader heard goes before what it last wrote.
func (f *Facts) standing(c Cluster, written *capstanv1.ClusterConnectionStatus) standing {
	if heard, ok := f.Heard[c]; ok {
		return standing{Known: true, Heard: heard, Live: true}
	}
	if written == nil {
		return standing{}
	}
	s := standing{Known: true, Heard: Heard{State: written.State, Reason: written.Reason, Message: written.Message, Version: written.KubernetesVersion}}
	if written.LastTransitionTime != nil {
		s.Since = written.LastTransitionTime.Time
	}
	return s
}

// standings of all clusters that have a ClusterConnection, or were heard of.
func (f *Facts) standings() map[Cluster]standing {
	all := make(map[Cluster]standing, len(f.Connections)+1)
	for c := range f.Heard {
		all[c] = f.standing(c, nil)
	}
	for i := range f.Connections {
		c := clusterOf(&f.Connections[i])
		all[c] = f.standing(c, &f.Connections[i].Status)
	}
	return all
}

// clusterOf a ClusterConnection.
func clusterOf(c *capstanv1.ClusterConnection) Cluster {
	return ClusterOf(&c.Spec.ClusterRef, c.Namespace)
}

// Namespaces is a set of them.
type Namespaces struct {
	All bool
	// Names, sorted, when not all.
	Names []string
}

// Has tells whether a namespace is in the set.
func (n Namespaces) Has(namespace string) bool {
	if n.All {
		return true
	}
	_, found := slices.BinarySearch(n.Names, namespace)
	return found
}

// And are the namespaces that are in both sets.
func (n Namespaces) And(m Namespaces) Namespaces {
	if n.All {
		return m
	}
	var both Namespaces
	for _, name := range n.Names {
		if m.Has(name) {
			both.Names = append(both.Names, name)
		}
	}
	return both
}

// Empty tells whether nothing is in the set.
func (n Namespaces) Empty() bool { return !n.All && len(n.Names) == 0 }

func (n Namespaces) key() string {
	if n.All {
		return "*"
	}
	return strings.Join(n.Names, ",")
}

// Scope is what a viewer may see, and approve, by namespace.
type Scope struct {
	Clusters, Pipelines, Promotions, Events, Backends, NodeGroups, Instances, Approve Namespaces
}

// Everything is the Scope of who may see all. It has no right to approve.
func Everything() Scope {
	all := Namespaces{All: true}
	return Scope{Clusters: all, Pipelines: all, Promotions: all, Events: all, Backends: all, NodeGroups: all, Instances: all}
}

// Key is equal for equal Scopes: such viewers are shown the same.
func (s Scope) Key() string {
	return strings.Join([]string{
		s.Clusters.key(), s.Pipelines.key(), s.Promotions.key(), s.Events.key(), s.Backends.key(), s.NodeGroups.key(), s.Instances.key(), s.Approve.key(),
	}, ";")
}
