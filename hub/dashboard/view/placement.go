package view

import (
	"time"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Target is what was last seen of an application in one place.
type Target struct {
	Cluster Cluster
	// Name of the cluster for people, and its page; empty where the viewer may not
	// see the cluster.
	ClusterName, ClusterLink string
	Namespace                string
	Revision                 string
	Mark                     Mark
	// Error that kept it from being read, or why it is stale.
	Note string
	// At is when this was last seen: of what is stale the last contact, where known.
	At time.Time
}

// placement is an application of a Pipeline in one place.
type placement struct {
	pipeline    *pipelinesv1.Pipeline
	environment int
	Target
}

// placements of a Pipeline's environment, in the order of the spec.
func (f *Facts) placements(p *pipelinesv1.Pipeline, environment int, known map[Cluster]standing, scope Scope) []placement {
	env := &p.Spec.Environments[environment]
	status := p.Status.Environments[env.Name]
	all := make([]placement, 0, len(env.Targets))
	for i := range env.Targets {
		var seen *pipelinesv1.TargetStatus
		if status != nil && i < len(status.Targets) {
			seen = &status.Targets[i]
		}
		all = append(all, placement{pipeline: p, environment: environment, Target: f.target(p, &env.Targets[i], seen, known, scope)})
	}
	return all
}

func (f *Facts) target(p *pipelinesv1.Pipeline, target *pipelinesv1.Target, seen *pipelinesv1.TargetStatus, known map[Cluster]standing, scope Scope) Target {
	c := ClusterOf(target.ClusterRef, p.Namespace)
	t := Target{Cluster: c, ClusterName: c.String(), Namespace: target.Namespace}
	visible := !c.Local() && scope.Clusters.Has(c.Namespace)
	s := known[c]
	if visible && s.Known {
		t.ClusterLink = clusterPath(c)
	}
	why, stale := f.stale(c, s, seen)
	t.Mark = targetMark(seen, stale)
	if seen != nil {
		t.Revision = seen.Revision
		t.Note = seen.Error
		if seen.ObservedTime != nil {
			t.At = seen.ObservedTime.Time
		}
	}
	if stale {
		if visible || c.Local() || t.Note == "" {
			t.Note = why
		}
		if !s.LastContact.IsZero() {
			t.At = s.LastContact
		}
	}
	return t
}

// stale tells why what was seen in a cluster is not known any more, if it is not.
func (f *Facts) stale(c Cluster, s standing, seen *pipelinesv1.TargetStatus) (string, bool) {
	switch {
	case s.silent(f.Now):
		return "its cluster is silent", true
	case s.Known && !c.Local() && connectionMark(s, f.Now).Tone != Good:
		return "its cluster is " + connectionMark(s, f.Now).Word, true
	case seen != nil && seen.Stale:
		return "the hub does not see it at present", true
	}
	return "", false
}
