package view

import (
	"slices"
	"strconv"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/delivery"
)

// FreshFor is how long the observations of a cluster are valid after the last contact. It
// is the hub's own bound, after which the hub promotes nothing from the cluster.
const FreshFor = 45 * time.Second

// Cluster is the key of the object that has a cluster's credentials. The zero value is the
// management cluster.
type Cluster struct {
	Kind, Namespace, Name string
}

// ClusterOf returns the Cluster of a reference in an object of the given namespace; nil
// references the management cluster.
func ClusterOf(ref *pipelinesv1.CrossNamespaceClusterReference, namespace string) Cluster {
	if ref == nil {
		return Cluster{}
	}
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	return Cluster{Kind: ref.Kind, Namespace: namespace, Name: ref.Name}
}

// Local reports whether c is the management cluster.
func (c Cluster) Local() bool { return c == Cluster{} }

// String returns the text for users: "fleet/prod".
func (c Cluster) String() string {
	if c.Local() {
		return "management cluster"
	}
	return c.Namespace + "/" + c.Name
}

// Observed is what the leader observes of a connection in addition to its ClusterConnection.
type Observed struct {
	State           capstanv1.ConnectionState
	Reason, Message string
	Since           time.Time
	// LastContact is when the API server last answered; zero for never.
	LastContact time.Time
	Version     string
}

// Facts are the hub's objects and its observations at one time. The objects are shared
// with the caches and must not be changed.
type Facts struct {
	Connections []capstanv1.ClusterConnection
	Pipelines   []pipelinesv1.Pipeline
	Promotions  []capstanv1.Promotion
	Backends    []eventingv1.EventingBackend
	// Objects are the cluster objects of the management cluster, with or without a connection, sorted by
	// Cluster.compare.
	Objects []Object
	// Events that the hub reported.
	Events []*eventsv1.Event
	// NodeGroups and Instances are those of the management cluster. Unread has the kinds,
	// of these and of Objects, that could not be read, and why.
	NodeGroups []NodeGroup
	Instances  []Instances
	Unread     []string
	// Leads is whether this replica is the leader. Connects is whether it connects to the clusters: the leader
	// does, and a warm standby.
	Leads, Connects bool
	// LeaderSeen is when a standby last saw that the leader renewed its lease; zero if that is
	// not known. Leaderless is set when the lease has expired: what the leader wrote may be
	// outdated.
	LeaderSeen time.Time
	Leaderless bool
	// Hub is the name of a hub that shares the management cluster with OtherHubs; empty otherwise. Conflict is why it
	// does not act: another one serves a namespace of it, or it may not read whether one does; empty if it may act.
	Hub, Conflict string
	OtherHubs     []Hub
	// Observed states of clusters, where Connects is set; else empty.
	Observed map[Cluster]Observed
	Now      time.Time
	// Past of the connections, as this replica observed it since PastSince, when it started.
	Past      map[Cluster]Past
	PastSince time.Time
	// BackendPast is the same of the deliveries of EventingBackends.
	BackendPast map[BackendKey]BackendPast
	// Retention is which finished Promotions the hub keeps.
	Retention delivery.Retention
}

// standing is the known state of a connection.
type standing struct {
	Known bool
	Observed
	// Live is whether LastContact is known.
	Live bool
	// Leaderless is that of the Facts.
	Leaderless bool
}

// silent reports whether the last contact with a cluster is older than FreshFor, or no replica
// has contact.
func (s standing) silent(now time.Time) bool {
	return s.Leaderless || s.Live && !s.LastContact.IsZero() && now.Sub(s.LastContact) >= FreshFor
}

// standing returns the state of a cluster. The observation of this replica has priority over the
// status that the leader wrote.
func (f *Facts) standing(c Cluster, written *capstanv1.ClusterConnectionStatus) standing {
	if observed, ok := f.Observed[c]; ok {
		return standing{Known: true, Observed: observed, Live: true}
	}
	if written == nil {
		return standing{}
	}
	s := standing{Known: true, Leaderless: f.Leaderless, Observed: Observed{State: written.State, Reason: written.Reason, Message: written.Message, Version: written.KubernetesVersion}}
	if written.LastTransitionTime != nil {
		s.Since = written.LastTransitionTime.Time
	}
	return s
}

// standings returns the states of all clusters that have a ClusterConnection or are observed.
func (f *Facts) standings() map[Cluster]standing {
	all := make(map[Cluster]standing, len(f.Connections)+1)
	for c := range f.Observed {
		all[c] = f.standing(c, nil)
	}
	for i := range f.Connections {
		c := clusterOf(&f.Connections[i])
		all[c] = f.standing(c, &f.Connections[i].Status)
	}
	return all
}

// clusterOf returns the Cluster of a ClusterConnection.
func clusterOf(c *capstanv1.ClusterConnection) Cluster {
	return ClusterOf(&c.Spec.ClusterRef, c.Namespace)
}

// Namespaces is a set of namespaces.
type Namespaces struct {
	All bool
	// Names are the sorted names; empty when All is set.
	Names []string
}

// Has reports whether a namespace is in the set.
func (n Namespaces) Has(namespace string) bool {
	if n.All {
		return true
	}
	_, found := slices.BinarySearch(n.Names, namespace)
	return found
}

// And returns the namespaces that are in both sets.
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

// Empty reports whether the set is empty.
func (n Namespaces) Empty() bool { return !n.All && len(n.Names) == 0 }

func (n Namespaces) key() string {
	if n.All {
		return "*"
	}
	return strings.Join(n.Names, ",")
}

// Scope is what a viewer may see and do, by namespace. Clusters are the ClusterConnections. NodeGroups are the
// MachineDeployments and MachinePools. Instances are the AWSMachines and AWSMachinePools, and ManagedPools the
// AWSManagedMachinePools and ROSAMachinePools.
type Scope struct {
	Clusters, Pipelines, Promotions, Events, Backends, NodeGroups, MachineSets, Instances, ManagedPools Namespaces
	// Objects are the cluster objects, by their kinds (pipelinesv1.ClusterKinds).
	Objects map[string]Namespaces
	// Approve, Patch and Override are the rights to approve and reject promotions, to start them again, and to
	// override their gates. Suspend is the right to change Pipelines, and Request that to request promotions.
	Approve, Patch, Override, Suspend, Request Namespaces
	// OverrideWindows is the right to override PromotionWindows, which have no namespace.
	OverrideWindows bool
	// Nameless is set if users do not sign in: nobody can change anything.
	Nameless bool
}

// SeesObject reports whether the viewer may list the object of a cluster. The management cluster has none to hide.
func (s Scope) SeesObject(c Cluster) bool {
	return c.Local() || s.Objects[c.Kind].Has(c.Namespace)
}

// Everything returns the Scope of a viewer who may see all objects and change nothing.
func Everything() Scope {
	all := Namespaces{All: true}
	objects := map[string]Namespaces{}
	for _, k := range pipelinesv1.ClusterKinds() {
		objects[k.Kind] = all
	}
	return Scope{Clusters: all, Objects: objects, Pipelines: all, Promotions: all, Events: all, Backends: all, NodeGroups: all, MachineSets: all, Instances: all, ManagedPools: all, Nameless: true}
}

// Key returns a text that is equal for equal Scopes, whose viewers see the same pages.
func (s Scope) Key() string {
	objects := ""
	for _, k := range pipelinesv1.ClusterKinds() {
		objects += s.Objects[k.Kind].key() + ";"
	}
	return objects + strings.Join([]string{
		s.Clusters.key(), s.Pipelines.key(), s.Promotions.key(), s.Events.key(), s.Backends.key(), s.NodeGroups.key(), s.MachineSets.key(), s.Instances.key(), s.ManagedPools.key(),
		s.Approve.key(), s.Patch.key(), s.Override.key(), s.Suspend.key(), s.Request.key(), strconv.FormatBool(s.OverrideWindows), strconv.FormatBool(s.Nameless),
	}, ";")
}
