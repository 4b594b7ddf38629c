package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// Facts are the hub's objects around one Pipeline.
type Facts struct {
	Pipeline *pipelinesv1.Pipeline
	// Promotions of this Pipeline and of former Pipelines of its name.
	Promotions []capstanv1.Promotion
	// Connections to the clusters that the Pipeline names; others are ignored.
	Connections []capstanv1.ClusterConnection
	Now         time.Time
}

// Report is the explanation of one Pipeline.
type Report struct {
	// Pipeline as namespace/name.
	Pipeline string
	// App is the application, as kind and name.
	App string
	// Notes concern the whole Pipeline, and come first.
	Notes []string
	// Commands that make the whole Pipeline continue.
	Commands []string
	// Environments in the order of the spec.
	Environments []Environment

	// noted are the notes with their causes.
	noted []wait
}

// Environment is the explanation of one environment.
type Environment struct {
	Name string
	// Runs is the revision, or the revisions, that its targets were last observed to run.
	Runs string
	// Ready is the number of ready targets and of all targets, such as "1/2".
	Ready string
	// InFlight is the promotion under way; empty if there is none.
	InFlight string
	// Why the next promotion does not happen, or that there is nothing to do.
	Why string
	// Commands that make the environment continue.
	Commands []string
	// Waits is whether a promotion is under way or has failed, the environment is held, a target that counts is not
	// ready, or too many are left out.
	Waits bool

	// base is the environment of which it is a wave; empty if it is none. ready and targets are the numbers of Ready.
	base           string
	ready, targets int
	// wait is the cause if Waits is set.
	wait wait
}

// Explain returns the explanation of one Pipeline.
func Explain(f Facts) Report {
	f.Pipeline = f.Pipeline.Shown()
	p := f.Pipeline
	r := Report{Pipeline: p.Namespace + "/" + p.Name, App: p.Spec.AppRef.Kind + " " + p.Spec.AppRef.Name, noted: f.notes()}
	for _, note := range r.noted {
		r.Notes = append(r.Notes, note.message)
	}
	if p.Spec.Suspend {
		r.Commands = []string{f.command("resume")}
	}
	for i := range p.Spec.Environments {
		r.Environments = append(r.Environments, f.environment(i))
	}
	return r
}

// notes returns the notes on the whole Pipeline.
func (f *Facts) notes() []wait {
	var notes []wait
	note := func(kind WaitKind, text string) {
		notes = append(notes, wait{kind: kind, message: text, noun: "Pipeline", name: f.Pipeline.Namespace + "/" + f.Pipeline.Name})
	}
	p := f.Pipeline
	seen := p.Status.ObservedGeneration
	if dry := p.Status.DryRun; dry != nil {
		if dry.Message != pipelinesv1.DryRunNothingDue {
			note(WaitDryRun, trim(dry.Message)+".")
		}
		seen = dry.ObservedGeneration
	}
	if seen < p.Generation {
		note(WaitUnobserved, fmt.Sprintf("The hub has not observed the newest edit yet (generation %d; observed: %d): if this stays, check that the hub runs.", p.Generation, max(seen, 0)))
	}
	if !p.ServedInFull() {
		note(WaitInvalid, "Nothing is promoted: the CRD pipelines.pipelines.weave.works does not keep all gates and selectors of clusters (CRDOutdated). Apply config/crd of this version of Capstan.")
	}
	if c := f.invalidPart(); c != nil {
		note(WaitInvalid, "The spec is invalid: "+trim(c.Message)+".")
	}
	if p.Spec.Suspend {
		note(WaitSuspended, "The Pipeline is suspended: the hub creates no promotion, and makes no attempt for one in flight.")
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.AppSharedCondition); c != nil && c.Status == metav1.ConditionTrue {
		note(WaitOther, trim(c.Message)+".")
	}
	return notes
}

// invalidPart returns the condition Ready if the spec, or a part of it, is invalid; nil if not.
func (f *Facts) invalidPart() *metav1.Condition {
	find := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		c := meta.FindStatusCondition(f.Pipeline.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != pipelinesv1.InvalidSpecReason {
			return nil
		}
		return c
	}
	if find(pipelinesv1.StalledCondition, metav1.ConditionTrue) == nil {
		return nil
	}
	return find(pipelinesv1.ReadyCondition, metav1.ConditionFalse)
}

// invalid returns whether the spec as a whole is invalid. If only targets are, their statuses say
// so, and the other environments continue.
func (f *Facts) invalid() bool {
	if f.invalidPart() == nil {
		return false
	}
	for _, env := range f.Pipeline.Status.Environments {
		if slices.ContainsFunc(env.Targets, func(t pipelinesv1.TargetStatus) bool { return t.Reason == pipelinesv1.InvalidSpecReason }) {
			return false
		}
	}
	return true
}

func (f *Facts) environment(i int) Environment {
	env := &f.Pipeline.Spec.Environments[i]
	fleet := quorum.FleetOf(f.Pipeline, i)
	ready, unready := 0, 0
	for _, t := range fleet.Targets {
		switch {
		case t.Fresh && t.Ready:
			ready++
		case !t.Standing.LeftOut():
			unready++
		}
	}
	e := Environment{Name: env.Name, Runs: runs(fleet, f.cause(i)), Ready: fmt.Sprintf("%d/%d", ready, len(fleet.Targets)), ready: ready, targets: len(fleet.Targets)}
	if env.Stage != nil {
		e.base = env.Stage.Environment
	}
	newest := decision.NewestOf(f.Pipeline.UID, f.Promotions, env.Name)
	if newest != nil && !newest.Status.Phase.Finished() {
		e.InFlight = fmt.Sprintf("%s %s", newest.Spec.Revision, promotions.PhaseText(newest))
		if newest.Spec.RollbackOf != nil {
			e.InFlight = "rollback " + e.InFlight
		}
		if meta.IsStatusConditionTrue(newest.Status.Conditions, capstanv1.StalledCondition) {
			e.InFlight += ", stalled"
		}
	}
	dry := f.dryRun(env.Name)
	if dry != nil && len(dry.Runs) > 0 {
		e.Runs = strings.Join(dry.Runs, ", ")
	}
	switch {
	case f.Pipeline.Status.DryRun != nil && e.InFlight == "":
		e.Why = whyDry(i, dry)
	case i == 0:
		e.Why = f.first(fleet)
	case e.InFlight != "":
		e.Why, e.Commands = f.inFlight(i, newest)
	default:
		e.Why, e.Commands = f.idle(i, newest)
	}
	if message := f.fleetMessage(i); message != "" {
		e.Why += fmt.Sprintf(" Of %d targets: %s.", f.Pipeline.Status.Environments[env.Name].Fleet.Targets, message)
	}
	e.wait = f.waitOf(i, newest)
	e.Waits = e.InFlight != "" || unready > 0 || fleet.Lacking() != "" || len(e.Commands) > 0
	return e
}

// dryRun returns what a hub in dry run would do with an environment; nil if it is not in dry run.
func (f *Facts) dryRun(environment string) *pipelinesv1.DryRunEnvironment {
	if f.Pipeline.Status.DryRun == nil {
		return nil
	}
	return f.Pipeline.Status.DryRun.Of(environment)
}

// whyDry says what a hub in dry run would promote into environment i.
func whyDry(i int, env *pipelinesv1.DryRunEnvironment) string {
	switch {
	case i == 0:
		return "nothing is promoted into the first environment."
	case env == nil:
		return "the hub is in dry run and has not observed it yet."
	case env.Promotion == nil:
		return "dry run: no promotion into it is due."
	}
	text := fmt.Sprintf("dry run: %s would be promoted into it from %s by %s", env.Promotion.Revision, env.Promotion.Source, env.Promotion.Strategy)
	if env.Promotion.Manual {
		text += ", after an approval"
	}
	return text + "."
}

// runs returns the revisions of targets as text, with the cause if they are stale.
func runs(fleet quorum.Fleet, cause string) string {
	revisions := fleet.Revisions()
	fresh := fleet.Fresh()
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
	case !fresh && cause != "":
		return fmt.Sprintf("%s (%s)", text, cause)
	case !fresh && text != "unknown":
		return text + " (stale)"
	default:
		return text
	}
}

// question returns the question that the hub decides for environment i.
func (f *Facts) question(i int) decision.Question {
	return decision.QuestionOf(f.Pipeline, quorum.FleetsOf(f.Pipeline), f.Promotions, i)
}

// status of a target; nil if the hub has not observed it.
func (f *Facts) status(i, j int) *pipelinesv1.TargetStatus {
	status := f.Pipeline.Status.Environments[f.Pipeline.Spec.Environments[i].Name]
	if status == nil || j >= len(status.Targets) {
		return nil
	}
	return &status.Targets[j]
}

// ago returns the duration since a time as text.
func (f *Facts) ago(since *metav1.Time) string {
	if since == nil {
		return "an unknown time"
	}
	return duration.HumanDuration(f.Now.Sub(since.Time))
}
