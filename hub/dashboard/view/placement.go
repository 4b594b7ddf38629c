package view

import (
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Target is the last observation of an application in one target.
type Target struct {
	Cluster Cluster
	// ClusterName is the name of the cluster for users. ClusterLink is its page; empty
	// when the viewer may not see the cluster.
	ClusterName, ClusterLink string
	Namespace                string
	Revision                 string
	Mark                     Mark
	// Note is the error of reading it, or why it is stale.
	Note string
	// At is the time of the observation. For a stale one it is the last contact, if known.
	At time.Time
}

// placement is an application of a Pipeline in one target.
type placement struct {
	pipeline    *pipelinesv1.Pipeline
	environment int
	Target
}

// placements returns those of a Pipeline's environment, in the order of the spec.
func (f *Facts) placements(p *pipelinesv1.Pipeline, environment int, known map[Cluster]standing, scope Scope) []placement {
	env := &p.Spec.Environments[environment]
	status := p.Status.Environments[env.Name]
	all := make([]placement, 0, len(env.Targets))
	for i := range env.Targets {
		all = append(all, placement{pipeline: p, environment: environment, Target: f.target(p, &env.Targets[i], seenIn(status, i), known, scope)})
	}
	return all
}

// seenIn returns the observation of a target; nil when there is none.
func seenIn(status *pipelinesv1.EnvironmentStatus, target int) *pipelinesv1.TargetStatus {
	if status == nil || target >= len(status.Targets) {
		return nil
	}
	return &status.Targets[target]
}

// targetVisible reports whether the viewer may see more of the cluster of a target than its name.
func targetVisible(c Cluster, scope Scope) bool { return !c.Local() && scope.Clusters.Has(c.Namespace) }

// observed returns the Mark of the observation of a target; why is set if it is stale.
func (f *Facts) observed(c Cluster, s standing, seen *pipelinesv1.TargetStatus, visible bool) (mark Mark, why string, stale bool) {
	why, stale = f.stale(c, s, seen, visible)
	if seen != nil && (seen.Standing.LeftOut() || seen.Standing != "" && !stale) {
		return standingMark(seen.Standing), why, stale
	}
	return targetMark(seen, stale), why, stale
}

func (f *Facts) target(p *pipelinesv1.Pipeline, target *pipelinesv1.Target, seen *pipelinesv1.TargetStatus, known map[Cluster]standing, scope Scope) Target {
	c := ClusterOf(target.ClusterRef, p.Namespace)
	t := Target{Cluster: c, ClusterName: c.String(), Namespace: target.Namespace}
	visible := targetVisible(c, scope)
	s := known[c]
	if visible && s.Known {
		t.ClusterLink = clusterPath(c)
	}
	mark, why, stale := f.observed(c, s, seen, visible)
	t.Mark = mark
	if seen != nil {
		t.Revision = seen.Revision
		t.Note = noteOf(seen)
		if at := seen.Observed(); at != nil {
			t.At = at.Time
		}
	}
	if stale {
		if visible || c.Local() || t.Note == "" {
			t.Note = why
		}
		if !s.LastContact.IsZero() && (visible || c.Local()) {
			t.At = s.LastContact
		}
	}
	return t
}

// noteOf returns why a target is not ready: why it cannot be read, or what the application
// says about itself.
func noteOf(seen *pipelinesv1.TargetStatus) string {
	switch {
	case seen.Error != "" || seen.Ready:
		return seen.Error
	case seen.Reason == "" || seen.Message == "":
		return seen.Reason + seen.Message
	}
	return seen.Reason + ": " + seen.Message
}

// stale reports whether the observation of a target is stale, and why. The state of the connection, with
// its reason and message, is for viewers who may see the ClusterConnection.
func (f *Facts) stale(c Cluster, s standing, seen *pipelinesv1.TargetStatus, visible bool) (string, bool) {
	switch {
	case f.Leaderless:
		return "no replica of the hub leads", true
	case !visible && !c.Local() && f.outdates(s):
		return "its cluster cannot be observed at present", true
	case s.silent(f.Now):
		return "its cluster does not respond", true
	case !c.Local() && f.outdates(s):
		why := "its cluster is " + connectionMark(s, f.Now).Word
		if s.Reason != "" {
			why += " (" + strings.TrimSuffix(s.Reason+": "+s.Message, ": ") + ")"
		}
		return why, true
	case seen != nil && seen.Stale && seen.Error != "":
		return seen.Error, true
	case seen != nil && seen.Stale:
		return "the hub does not observe it at present", true
	}
	return "", false
}

// outdates reports whether the state of a connection outdates the observations of the cluster. Of a Degraded cluster one kind
// may fail. The hub judges each.
func (f *Facts) outdates(s standing) bool {
	return s.silent(f.Now) || s.Known && s.State != capstanv1.ConnectionDegraded && connectionMark(s, f.Now).Tone != Good
}
