package explain

import (
	"fmt"
	"slices"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/revision"
)

// name of a target in a message.
func (f *Facts) name(i, j int) string {
	t := &f.Pipeline.Spec.Environments[i].Targets[j]
	app := t.Namespace + "/" + f.Pipeline.Spec.AppRef.Name
	if t.ClusterRef == nil {
		return app + " in the management cluster"
	}
	return fmt.Sprintf("%s in %s %s/%s", app, t.ClusterRef.Kind, f.namespace(t.ClusterRef), t.ClusterRef.Name)
}

func (f *Facts) namespace(ref *pipelinesv1.CrossNamespaceClusterReference) string {
	if ref.Namespace == "" {
		return f.Pipeline.Namespace
	}
	return ref.Namespace
}

// Namespaces returns the namespaces of the clusters that the Pipeline names. Their
// ClusterConnections are in these namespaces.
func (f *Facts) Namespaces() []string {
	var all []string
	p := f.Pipeline.Shown()
	for i := range p.Spec.Environments {
		for j := range p.Spec.Environments[i].Targets {
			if ref := p.Spec.Environments[i].Targets[j].ClusterRef; ref != nil && !slices.Contains(all, f.namespace(ref)) {
				all = append(all, f.namespace(ref))
			}
		}
	}
	return all
}

// connection to the cluster of a target; nil if Connections has none.
func (f *Facts) connection(i, j int) *capstanv1.ClusterConnection {
	ref := f.Pipeline.Spec.Environments[i].Targets[j].ClusterRef
	if ref == nil {
		return nil
	}
	for k := range f.Connections {
		of := &f.Connections[k].Spec.ClusterRef
		if of.Kind == ref.Kind && of.Name == ref.Name && of.Namespace == f.namespace(ref) {
			return &f.Connections[k]
		}
	}
	return nil
}

// obstacle returns why a target does not run a revision, fresh and ready; empty if it does.
// An empty revision means any.
func (f *Facts) obstacle(i, j int, wanted string) string {
	s := f.status(i, j)
	switch {
	case s != nil && s.Standing.LeftOut():
		return ""
	case s == nil:
		return f.name(i, j) + ": the hub has not observed it yet"
	case s.Stale || s.Error != "":
		return f.name(i, j) + f.unseen(i, j, s)
	case s.Revision == "" && (wanted != "" || !s.Ready):
		return f.name(i, j) + " runs nothing yet" + f.condition(s)
	case wanted != "" && !revision.Same(s.Revision, wanted):
		return f.name(i, j) + " still runs " + s.Revision + f.condition(s)
	case !s.Ready && s.Reason == "" && s.Message == "":
		return fmt.Sprintf("%s runs %s and is not ready: check the %s there", f.name(i, j), s.Revision, f.Pipeline.Spec.AppRef.Kind)
	case !s.Ready:
		return fmt.Sprintf("%s runs %s%s", f.name(i, j), s.Revision, f.condition(s))
	}
	return ""
}

// condition returns what the application says about itself, as the end of a sentence; empty
// if it is ready or says nothing.
func (f *Facts) condition(s *pipelinesv1.TargetStatus) string {
	own := index.Observation{Reason: s.Reason, Message: trim(s.Message)}.Why()
	switch {
	case s.Ready || own == "":
		return ""
	case s.Reason == "":
		return "; its " + f.Pipeline.Spec.AppRef.Kind + " " + own
	}
	return "; its " + f.Pipeline.Spec.AppRef.Kind + " is not ready: " + own
}

// cause returns in one word why the observation of an environment's target is stale; empty
// if that is not known.
func (f *Facts) cause(i int) string {
	for j := range f.Pipeline.Spec.Environments[i].Targets {
		s := f.status(i, j)
		if s == nil || !s.Stale {
			continue
		}
		if c := f.connection(i, j); c != nil && c.Status.State != capstanv1.ConnectionReady && c.Status.State != "" {
			return string(c.Status.State)
		}
		if s.Reason != "" {
			return s.Reason
		}
	}
	return ""
}

// unseen returns why a target cannot be observed: its cluster's state if that is the cause,
// else the error of the target.
func (f *Facts) unseen(i, j int, s *pipelinesv1.TargetStatus) string {
	if c := f.connection(i, j); c != nil && c.Status.State != capstanv1.ConnectionReady && c.Status.State != "" {
		why := c.Status.Reason
		if c.Status.Message != "" {
			why += ": " + trim(c.Status.Message)
		}
		return fmt.Sprintf(", whose cluster has been %s for %s (%s)", c.Status.State, f.ago(c.Status.LastTransitionTime), why)
	}
	if s.Error == "" {
		return ": its cluster has not answered for a while"
	}
	return ": " + trim(s.Error)
}

// obstacles of an environment in one clause: the first, and how many more targets have one;
// empty if there is none.
func (f *Facts) obstacles(i int, revision string) string {
	var found []string
	for j := range f.Pipeline.Spec.Environments[i].Targets {
		if o := f.obstacle(i, j, revision); o != "" {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return found[0]
	case 2:
		return found[0] + "; one more target also blocks this"
	default:
		return fmt.Sprintf("%s; %d more targets also block this", found[0], len(found)-1)
	}
}

// blocked returns the obstacles of an environment as the end of a sentence; empty if there are none.
func (f *Facts) blocked(i int, revision string) string {
	if o := f.obstacles(i, revision); o != "" {
		return ": " + o
	}
	return ""
}

// differ returns why the targets do not agree: too many are left out, their obstacles, or, if there are none, their
// different revisions.
func (f *Facts) differ(i int) string {
	fleet, message := quorum.FleetOf(f.Pipeline, i), f.fleetMessage(i)
	if message != "" && fleet.Required() > len(fleet.Targets) {
		return message
	}
	if o := f.obstacles(i, ""); o != "" {
		return o
	}
	if len(fleet.Targets) == 0 {
		return "it has no targets"
	}
	groups := f.groups(i, fleet)
	if message != "" && len(groups) <= 1 { // They do not differ, and are too few.
		return message
	}
	if more := len(groups) - maxNamed; more > 0 {
		groups = append(groups[:maxNamed], fmt.Sprintf("and %d more revisions", more))
	}
	return "its targets differ: " + strings.Join(groups, ", ")
}

// maxNamed is how many revisions are named of an environment whose targets differ.
const maxNamed = 3

// groups returns for each revision which targets run it that count: the first one's name, and how many more.
func (f *Facts) groups(i int, fleet quorum.Fleet) []string {
	var groups []string
	for _, r := range fleet.Revisions() {
		name, more, verb := "", 0, "runs"
		for j, t := range fleet.Targets {
			switch {
			case t.Standing.LeftOut() || t.Revision == "" || !revision.Same(t.Revision, r):
			case name == "" && j < len(f.Pipeline.Spec.Environments[i].Targets):
				name = f.name(i, j)
			default: // Those that the status does not list have no names.
				more++
			}
		}
		switch {
		case name == "" && more == 0:
			continue
		case name == "":
			name, verb = fmt.Sprintf("%d targets", more), "run"
		case more > 0:
			name, verb = fmt.Sprintf("%s and %d more", name, more), "run"
		}
		groups = append(groups, fmt.Sprintf("%s %s %s", name, verb, r))
	}
	return groups
}

// fleetMessage returns what the hub says of the targets of environment i; empty if it is no fleet, or if all is in order.
func (f *Facts) fleetMessage(i int) string {
	if s := f.Pipeline.Status.Environments[f.Pipeline.Spec.Environments[i].Name]; s != nil && s.Fleet != nil {
		return trim(s.Fleet.Message)
	}
	return ""
}

// allTargets returns the subject of a sentence about the targets of an environment by its name.
func (f *Facts) allTargets(i int) string {
	env := &f.Pipeline.Spec.Environments[i]
	if env.Quorum != nil {
		return fmt.Sprintf("the quorum of targets of %q runs", env.Name)
	}
	return fmt.Sprintf("all targets of %q run", env.Name)
}

// everyTarget returns the subject of a sentence about the targets of an environment that must run a revision.
func (f *Facts) everyTarget(i int) string {
	if f.Pipeline.Spec.Environments[i].Quorum != nil {
		return "its quorum of targets"
	}
	return "every target"
}

// trim removes spaces and the final period of a message that becomes part of a sentence.
func trim(message string) string { return strings.TrimRight(strings.TrimSpace(message), ".") }

// Named returns the clusters of the targets of the Pipelines, each with its namespace.
func (f *Fleet) Named() map[pipelinesv1.CrossNamespaceClusterReference]bool {
	named := map[pipelinesv1.CrossNamespaceClusterReference]bool{}
	for i := range f.Pipelines {
		of := Facts{Pipeline: f.Pipelines[i].Shown()}
		for _, env := range of.Pipeline.Spec.Environments {
			for _, t := range env.Targets {
				if t.ClusterRef != nil {
					named[pipelinesv1.CrossNamespaceClusterReference{Kind: t.ClusterRef.Kind, Namespace: of.namespace(t.ClusterRef), Name: t.ClusterRef.Name}] = true
				}
			}
		}
	}
	return named
}
