package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// AllNamespaces is the value of clusters.namespace that selects clusters in every namespace.
const AllNamespaces = "*"

// MaxTargets is how many targets an environment may have whose targets select clusters.
const MaxTargets = 500

// MaxShownTargets is how many targets the status of such an environment lists.
const MaxShownTargets = 100

// ClusterSelector selects clusters by their labels. A cluster that gets the labels joins the environment, and one that
// loses them, or is deleted, leaves it.
type ClusterSelector struct {
	// Kind of the cluster objects: Cluster, the default, GitopsCluster, Secret or ClusterProfile.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Kind string `json:"kind,omitempty"`

	// Namespace of the cluster objects. The default is the namespace of the pipeline; "*" is every
	// namespace. With --no-cross-namespace-refs only the default is allowed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Selector of the labels. An empty selector selects all clusters of the namespace.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
}

// Quorum says which targets of an environment may be left out when it is judged whether the environment runs a
// revision. Whatever it permits, more than half of all targets must run the revision, ready.
type Quorum struct {
	// Ready is the least share of the targets that must run the same revision, ready, of those that are
	// neither lost nor joining: from 51% to 100%, the default. It is rounded up.
	// +optional
	// +kubebuilder:validation:MaxLength=8
	Ready string `json:"ready,omitempty"`

	// Lost says when a target whose cluster cannot be observed is left out. Without it, none is.
	// +optional
	Lost *LostTargets `json:"lost,omitempty"`

	// JoinWithin is how long a target is left out that is new in the environment, or whose cluster
	// was lost and has returned, until it runs the revision of the environment: from 0s to 744h.
	// The default is 30m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	JoinWithin string `json:"joinWithin,omitempty"`
}

// LostTargets says when a target is lost.
type LostTargets struct {
	// After is how long a target cannot be observed, without a break and by one process of the hub, until it
	// is lost: from 1m to 744h; 1h if it is not set. A target that can be observed and is not ready is
	// never lost.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	After string `json:"after,omitempty"`

	// Max is how many targets may be lost: a number, or a percentage of the targets, rounded down. If more
	// are, the environment runs no revision at all: it may be the hub that is cut off.
	// +required
	// +kubebuilder:validation:XIntOrString
	Max intstr.IntOrString `json:"max"`
}

// TargetStanding says what is special about a target of a fleet.
// +kubebuilder:validation:Enum=Lost;Joining;Late
type TargetStanding string

// Standings of targets.
const (
	// TargetLost: its cluster could not be observed for too long. It is left out.
	TargetLost TargetStanding = "Lost"
	// TargetJoining: it is new in the environment, or was lost, and does not run its revision yet. It is left out.
	TargetJoining TargetStanding = "Joining"
	// TargetLate: it did not run the revision of the environment in the time that it had for joining. It counts,
	// but fails no verification.
	TargetLate TargetStanding = "Late"
)

// LeftOut returns whether a target with this standing is left out when it is judged what the environment runs.
func (s TargetStanding) LeftOut() bool { return s == TargetLost || s == TargetJoining }

// FleetStatus counts the targets of an environment whose targets select clusters, or that has a quorum. The list of
// its targets has 100 at most, those first that do not run the revision, ready; Members names all.
type FleetStatus struct {
	// Targets is the number of targets.
	// +required
	Targets int32 `json:"targets"`

	// Revision that most of the targets run, ready.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Ready is the number of targets that run it, ready, and count.
	// +required
	Ready int32 `json:"ready"`

	// Required is how many must, so that the environment runs a revision.
	// +required
	Required int32 `json:"required"`

	// Lost is the number of targets that are left out because their clusters are lost.
	// +optional
	Lost int32 `json:"lost,omitempty"`

	// Joining is the number of targets that are left out because they are new or have returned.
	// +optional
	Joining int32 `json:"joining,omitempty"`

	// Late is the number of targets that count although they did not run their revision in time, and
	// fail no verification.
	// +optional
	Late int32 `json:"late,omitempty"`

	// Unready is the number of targets without a standing that can be observed and are not ready, and
	// whose controller is not at work.
	// +optional
	Unready int32 `json:"unready,omitempty"`

	// Message names the targets that are left out, and says why the environment runs no revision.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// Members names all targets, if the list of the targets does not have all, and they are at most 500.
	// +optional
	Members []FleetMembers `json:"members,omitempty"`
}

// FleetMembers are targets of a fleet with the same standing, in clusters with the same kind and namespace.
type FleetMembers struct {
	// Namespace of the applications.
	// +required
	Namespace string `json:"namespace"`

	// ClusterKind is the kind of the clusters; empty for the management cluster.
	// +optional
	ClusterKind string `json:"clusterKind,omitempty"`

	// ClusterNamespace is the namespace of the clusters; empty for the management cluster.
	// +optional
	ClusterNamespace string `json:"clusterNamespace,omitempty"`

	// Clusters are the names of the clusters. The management cluster has an empty name.
	// +required
	Clusters []string `json:"clusters"`

	// Standing of the targets; empty for none.
	// +optional
	Standing TargetStanding `json:"standing,omitempty"`

	// StandingTime is since when they have it.
	// +optional
	StandingTime *metav1.Time `json:"standingTime,omitempty"`
}

// Member is a target of a fleet, as its status names it.
// +kubebuilder:object:generate=false
type Member struct {
	Target
	Standing     TargetStanding
	StandingTime *metav1.Time
}

// Members returns the targets that the status of a fleet names, of which ClusterRef has a namespace: all that it counts, also those
// that it does not list. Those of the management cluster have no ClusterRef.
func (e *EnvironmentStatus) Members() []Member {
	if e == nil || e.Fleet == nil {
		return nil
	}
	if len(e.Fleet.Members) == 0 {
		all := make([]Member, len(e.Targets))
		for j := range e.Targets {
			t := &e.Targets[j]
			all[j] = Member{Target{Namespace: t.Namespace, ClusterRef: t.ClusterAppRef.ClusterRef}, t.Standing, t.StandingTime}
		}
		return all
	}
	all := make([]Member, 0, e.Fleet.Targets)
	for i := range e.Fleet.Members {
		of := &e.Fleet.Members[i]
		for _, name := range of.Clusters {
			m := Member{Target{Namespace: of.Namespace}, of.Standing, of.StandingTime}
			if name != "" {
				m.ClusterRef = &CrossNamespaceClusterReference{Kind: of.ClusterKind, Namespace: of.ClusterNamespace, Name: name}
			}
			all = append(all, m)
		}
	}
	return all
}

// IsFleet returns whether the status of an environment has a FleetStatus: a target selects clusters, or it has a quorum or waves.
func (e *Environment) IsFleet() bool {
	if e.Quorum != nil || e.Stage != nil || len(e.Waves) > 0 {
		return true
	}
	return e.Selects()
}

// Selects returns whether a target of the environment selects clusters.
func (e *Environment) Selects() bool {
	for i := range e.Targets {
		if e.Targets[i].Clusters != nil {
			return true
		}
	}
	return false
}

// Selected is the selector of a target that was selected: a target of Shown, or of the reconciler, never of a spec that was
// read. It is compared by its address.
var Selected = &ClusterSelector{}

// Shown returns the Pipeline with the targets that its status lists in place of those of its fleets, in the order of
// the status, and with the stages that the status has in place of environments with waves. It is the Pipeline itself if it
// has neither.
func (p *Pipeline) Shown() *Pipeline {
	return p.WithStages(p.shownStages).WithTargets(func(env *Environment) ([]Target, bool) {
		status := p.Status.Environments[env.Name]
		switch {
		case !env.IsFleet():
			return nil, false
		case status == nil || status.Fleet == nil:
			return nil, env.Selects() || env.Stage != nil
		}
		targets := make([]Target, len(status.Targets))
		for j := range status.Targets {
			targets[j] = Target{Namespace: status.Targets[j].Namespace, ClusterRef: status.Targets[j].ClusterAppRef.ClusterRef}
			if env.Selects() {
				targets[j].Clusters = Selected
			}
		}
		return targets, true
	})
}

// shownStages returns all targets for each stage that the status has: Shown takes the right ones. If it has none of the
// environment, all stages are shown: it was not observed yet.
func (p *Pipeline) shownStages(env *Environment, stages []StageOf) (targets [][]Target, unknown bool) {
	targets, observed := make([][]Target, len(stages)), false
	for k, s := range stages {
		name := StageName(env.Name, s.Name)
		if p.Status.Environments[name] != nil && p.Find(name) < 0 { // Else the status may be that of the environment.
			targets[k], observed = env.Targets, true
		}
	}
	if !observed && (p.Status.Environments[env.Name] == nil || p.Status.ObservedGeneration < p.Generation) {
		for k := range targets {
			targets[k] = env.Targets
		}
	}
	return targets, false
}

// WithTargets returns the Pipeline with other targets in some environments: those for which the function returns true.
// It is the Pipeline itself if there are none.
func (p *Pipeline) WithTargets(of func(*Environment) ([]Target, bool)) *Pipeline {
	changed := p
	for i := range p.Spec.Environments {
		targets, other := of(&p.Spec.Environments[i])
		if !other {
			continue
		}
		if changed == p {
			c := *p
			c.Spec.Environments = slices.Clone(p.Spec.Environments)
			changed = &c
		}
		changed.Spec.Environments[i].Targets = targets
	}
	return changed
}
