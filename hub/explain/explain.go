package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// Facts are the hub's objects around one Pipeline.
type Facts struct {
	Pipeline *pipelinesv1.Pipeline
	// Promotions of exactly this Pipeline (by its UID).
	Promotions []capstanv1.Promotion
	// Connections to the clusters that the Pipeline names; others do no harm.
	Connections []capstanv1.ClusterConnection
	Now         time.Time
}

// Report is the explanation of one Pipeline.
type Report struct {
	// Pipeline as namespace/name.
	Pipeline string
	// App that it is about, as kind and name.
	App string
	// Notes concern the whole Pipeline, and come before everything else.
	Notes []string
	// Do is what can be typed to have the whole Pipeline go on.
	Do []string
	// Environments in the order of the spec.
	Environments []Environment
}

// Environment is the explanation of one environment.
type Environment struct {
	Name string
	// Runs is the revision, or the revisions, that its targets were last seen at.
	Runs string
	// Ready is how many targets are ready, of how many.
	Ready string
	// InFlight is the promotion under way; empty when none is.
	InFlight string
	// Why the next thing is not happening, or that there is nothing to do.
	Why string
	// Do is what can be typed to have it go on.
	Do []string
	// Waits is whether something is under way, missing or failed, rather than at rest.
	Waits bool
}

// Explain puts the explanation together.
func Explain(f Facts) Report {
	p := f.Pipeline
	r := Report{Pipeline: p.Namespace + "/" + p.Name, App: p.Spec.AppRef.Kind + " " + p.Spec.AppRef.Name, Notes: f.notes()}
	if p.Spec.Suspend {
		r.Do = []string{fmt.Sprintf(`kubectl -n %s patch pipelines.pipelines.weave.works %s --type=merge -p '{"spec":{"suspend":false}}'`, p.Namespace, p.Name)}
	}
	for i := range p.Spec.Environments {
		r.Environments = append(r.Environments, f.environment(i))
	}
	return r
}

// notes of what concerns the whole Pipeline.
func (f *Facts) notes() []string {
	var notes []string
	p := f.Pipeline
	if seen := p.Status.ObservedGeneration; seen < p.Generation {
		notes = append(notes, fmt.Sprintf("The hub has not looked at the newest edit yet (generation %d; it saw %d): if this stays, it does not run.", p.Generation, max(seen, 0)))
	}
	if f.invalid() {
		c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.ReadyCondition)
		notes = append(notes, "The spec cannot be carried out: "+trim(c.Message)+".")
	}
	if p.Spec.Suspend {
		notes = append(notes, "The Pipeline is suspended: nothing new is promoted, and nothing in flight takes a step.")
	}
	return notes
}

// invalid tells whether the spec as a whole cannot be carried out: then both
// conditions say so.
func (f *Facts) invalid() bool {
	is := func(kind string, status metav1.ConditionStatus) bool {
		c := meta.FindStatusCondition(f.Pipeline.Status.Conditions, kind)
		return c != nil && c.Status == status && c.Reason == pipelinesv1.InvalidSpecReason
	}
	return is(pipelinesv1.ReadyCondition, metav1.ConditionFalse) && is(pipelinesv1.StalledCondition, metav1.ConditionTrue)
}

func (f *Facts) environment(i int) Environment {
	env := &f.Pipeline.Spec.Environments[i]
	targets := f.targets(i)
	ready := 0
	for _, t := range targets {
		if t.Fresh && t.Ready {
			ready++
		}
	}
	e := Environment{Name: env.Name, Runs: runs(targets), Ready: fmt.Sprintf("%d/%d", ready, len(env.Targets))}
	newest := decision.NewestOf(f.Promotions, env.Name)
	if newest != nil && !newest.Status.Phase.Finished() {
		phase := newest.Status.Phase
		if phase == "" {
			phase = "Created"
		}
		e.InFlight = fmt.Sprintf("%s %s", newest.Spec.Revision, phase)
		if meta.IsStatusConditionTrue(newest.Status.Conditions, capstanv1.StalledCondition) {
			e.InFlight += ", stalled"
		}
	}
	switch {
	case i == 0:
		e.Why = f.first(targets)
	case e.InFlight != "":
		e.Why, e.Do = f.inFlight(i, newest)
	default:
		e.Why, e.Do = f.idle(i, newest)
	}
	e.Waits = e.InFlight != "" || ready < len(env.Targets) || len(e.Do) > 0
	return e
}

// runs names the revisions of targets.
func runs(targets []decision.Target) string {
	revisions := decision.Revisions(targets)
	fresh := decision.Fresh(targets)
	for i, r := range revisions {
		switch {
		case r == "" && fresh:
			revisions[i] = "none"
		case r == "":
			revisions[i] = "unknown"
		}
	}
	text := strings.Join(revisions, ", ")
	switch {
	case text == "":
		return "none"
	case !fresh && text != "unknown":
		return text + " (stale)"
	default:
		return text
	}
}

// targets of an environment, as the hub's status shows them.
func (f *Facts) targets(i int) []decision.Target {
	env := &f.Pipeline.Spec.Environments[i]
	return decision.TargetsOf(env, f.Pipeline.Status.Environments[env.Name])
}

// question is what the hub decides for environment i.
func (f *Facts) question(i int) decision.Question {
	all := make([][]decision.Target, len(f.Pipeline.Spec.Environments))
	for j := range all {
		all[j] = f.targets(j)
	}
	return decision.QuestionOf(f.Pipeline, all, f.Promotions, i)
}

// status of a target; nil when the hub has not looked at it.
func (f *Facts) status(i, j int) *pipelinesv1.TargetStatus {
	status := f.Pipeline.Status.Environments[f.Pipeline.Spec.Environments[i].Name]
	if status == nil || j >= len(status.Targets) {
		return nil
	}
	return &status.Targets[j]
}

// ago is how long something has been so.
func (f *Facts) ago(since *metav1.Time) string {
	if since == nil {
		return "an unknown time"
	}
	return duration.HumanDuration(f.Now.Sub(since.Time))
}
