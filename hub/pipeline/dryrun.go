package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// In dry run the reconciler observes and decides as usual, and writes only status.dryRun. Another controller,
// such as pipeline-controller, may own the rest of the status at the same time: docs/decisions/0046.

const (
	// dryRunInterval is the shortest time between two writes of a Pipeline in dry run. The other controller
	// reconciles a Pipeline after each write, and pipeline-controller may then repeat its promotion.
	dryRunInterval = 10 * time.Second
	// maxDryRunRuns is how many revisions of an environment are listed.
	maxDryRunRuns = 5
)

// ReasonWouldPromote is the reason of the Event that a hub in dry run would create a promotion.
const ReasonWouldPromote = "WouldPromote"

// dryRuns keep what a dry run does not write: Pipeline → dryRun. One worker at a time uses the entry of a Pipeline.
type dryRuns struct{ sync.Map }

// dryRun of one Pipeline.
type dryRun struct {
	uid types.UID
	// status that the hub would have written, from which the next decision continues.
	status pipelinesv1.PipelineStatus
	// announced was written last, at the time written; nil for nothing.
	announced *pipelinesv1.DryRunStatus
	written   time.Time
}

// of returns the entry of a Pipeline. A new one continues from the stored status.
func (d *dryRuns) of(p *pipelinesv1.Pipeline) dryRun {
	if stored, is := d.Load(client.ObjectKeyFromObject(p)); is {
		if of, same := stored.(dryRun); same && of.uid == p.UID {
			return of
		}
	}
	status := *p.Status.DeepCopy()
	status.DryRun = nil
	return dryRun{uid: p.UID, status: status, announced: p.Status.DryRun}
}

// due returns how many promotions would be created now.
func (d *dryRuns) due() float64 {
	n := 0
	for _, stored := range d.Range {
		if of, is := stored.(dryRun); is && of.announced != nil {
			n += len(of.announced.Due())
		}
	}
	return float64(n)
}

// reconcileDry decides about a Pipeline and announces the result.
func (r *Reconciler) reconcileDry(ctx context.Context, stored *pipelinesv1.Pipeline, cached []capstanv1.Promotion) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(stored)
	last := r.dry.of(stored)
	before := stored.DeepCopy()
	before.Status = last.status
	p, seen, found := r.observe(before)
	left := r.stand(p, seen)
	_, written := r.dry.Load(key)
	if wait := r.hold(p, early(seen), written); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	status, next := r.status(p, seen, cached, found)
	decided := *p
	decided.Status = status
	announcement := announce(&decided, seen, cached, found)
	last.status = status
	r.dry.Store(key, last)

	result := ctrl.Result{RequeueAfter: sooner(next, left)}
	if early(seen) > 0 {
		result.RequeueAfter = sooner(result.RequeueAfter, nextHold)
	}
	if equality.Semantic.DeepEqual(stored.Status.DryRun, announcement) {
		last.announced = announcement
		r.dry.Store(key, last)
		return result, nil
	}
	if wait := last.written.Add(dryRunInterval).Sub(r.Clock.Now()); !last.written.IsZero() && wait > 0 {
		result.RequeueAfter = sooner(result.RequeueAfter, min(wait, dryRunInterval)) // The clock may have been set back.
		return result, nil
	}
	after := *stored.Status.DeepCopy()
	after.DryRun = announcement
	if err := r.patchStatus(ctx, stored, &after); err != nil {
		return r.requeueOnConflict(ctx, stored, err)
	}
	r.reportDue(ctx, stored, last.announced, announcement)
	last.announced, last.written = announcement, r.Clock.Now()
	r.dry.Store(key, last)
	return result, nil
}

// announce returns what the hub observes, and would promote now. The status of p is the one that the hub would
// write.
func announce(p *pipelinesv1.Pipeline, seen observations, cached []capstanv1.Promotion, found []problem) *pipelinesv1.DryRunStatus {
	announcement := &pipelinesv1.DryRunStatus{ObservedGeneration: p.Generation}
	fleets := seen.fleets(p)
	var due []string
	for i := range p.Spec.Environments {
		runs := fleets[i].Revisions()
		env := pipelinesv1.DryRunEnvironment{Name: p.Spec.Environments[i].Name}
		for _, revision := range slices.DeleteFunc(slices.Clone(runs), func(r string) bool { return r == "" }) {
			if len(env.Runs) < maxDryRunRuns {
				env.Runs = append(env.Runs, revision)
			}
		}
		if i > 0 && !concernsAll(found) {
			q := decision.QuestionOf(p, fleets, cached, i)
			if v := decision.Decide(q); v.Create && permitted(v, ofEnvironmentProblems(found, p.Spec.Environments[i].Base())) {
				env.Promotion = &pipelinesv1.DryRunPromotion{
					Revision: v.Revision, Source: q.Source.Name, Strategy: strategyName(&q.Into.Intent.Strategy), Manual: q.Into.Intent.Manual,
				}
				due = append(due, dueText(&env))
			}
		}
		if len(announcement.Environments) < pipelinesv1.MaxDryRunEnvironments {
			announcement.Environments = append(announcement.Environments, env)
		}
	}
	announcement.Message = pipelinesv1.DryRunNothingDue
	if len(due) > 0 {
		announcement.Message = "Dry run: " + dueTexts(due)
	}
	for _, note := range dryRunNotes(p, found) {
		announcement.Message += "; " + note
	}
	announcement.Message = truncate.Bytes(announcement.Message, maxMessage)
	return announcement
}

// permitted returns whether problems of an environment leave a promotion into it possible.
func permitted(v decision.Verdict, invalid []problem) bool {
	return !beyondGates(invalid) && (len(invalid) == 0 || v.IsRollback())
}

// dryRunNotes say what the hub could not read, and why nothing is promoted.
func dryRunNotes(p *pipelinesv1.Pipeline, found []problem) []string {
	var notes []string
	if p.Spec.Suspend {
		notes = append(notes, "the Pipeline is suspended")
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.ReadyCondition); c != nil && c.Status != metav1.ConditionTrue {
		notes = append(notes, c.Message)
	} else if len(found) > 0 {
		notes = append(notes, messages(found))
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.PromotionPendingCondition); c != nil {
		notes = append(notes, c.Message)
	}
	return notes
}

func dueTexts(due []string) string {
	if len(due) > maxShown {
		return fmt.Sprintf("%s; and %d more", strings.Join(due[:maxShown], "; "), len(due)-maxShown)
	}
	return strings.Join(due, "; ")
}

// dueText says which promotion would be created.
func dueText(env *pipelinesv1.DryRunEnvironment) string {
	runs := "an unknown revision"
	if len(env.Runs) > 0 {
		runs = strings.Join(env.Runs, ", ")
	}
	text := fmt.Sprintf("%s would be promoted from environment %q into %q, which runs %s, by %s",
		env.Promotion.Revision, env.Promotion.Source, env.Name, runs, env.Promotion.Strategy)
	if env.Promotion.Manual {
		text += ", after an approval"
	}
	return text
}

func strategyName(s *pipelinesv1.Strategy) string {
	if s.PullRequest != nil {
		return "pull-request"
	}
	return "notification"
}

// reportDue records an Event and a log line for each promotion that became due since the last announcement; last is
// nil if there was none.
func (r *Reconciler) reportDue(ctx context.Context, p *pipelinesv1.Pipeline, last, now *pipelinesv1.DryRunStatus) {
	for _, env := range now.Due() {
		if last != nil {
			if was := last.Of(env.Name); was != nil && was.Promotion != nil && was.Promotion.Revision == env.Promotion.Revision {
				continue
			}
		}
		logger(ctx).Info("dry run: a promotion is due and is not created", "environment", env.Name, "revision", env.Promotion.Revision,
			"from", env.Promotion.Source, "runs", env.Runs, "strategy", env.Promotion.Strategy)
		r.Recorder.Eventf(p, nil, corev1.EventTypeNormal, ReasonWouldPromote, "Promote", "Dry run, nothing is created: %s", dueText(env))
	}
}
