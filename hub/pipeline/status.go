package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/period"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// status returns the new Pipeline.status: a function of the last status, the observations
// and the Promotions; and of the time that the soaks have counted. next is when a soak changes it
// if nothing else does; 0 for never.
func (r *Reconciler) status(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion, found []problem) (_ pipelinesv1.PipelineStatus, next time.Duration) {
	status := *p.Status.DeepCopy()
	status.ObservedGeneration, status.DryRun = p.Generation, nil
	status.Environments = r.environments(p, seen, promotions, found)
	status.InFlight = inFlight(p, promotions)

	set := func(c metav1.Condition) {
		c.ObservedGeneration = p.Generation
		c.Message = truncate.Bytes(c.Message, maxMessage)
		c.LastTransitionTime = metav1.NewTime(r.Clock.Now())
		meta.SetStatusCondition(&status.Conditions, c)
	}
	toggle := func(kind string, c *metav1.Condition) { setOrRemove(&status.Conditions, kind, c, set) }
	left := unfinished(p, seen, promotions)
	set(ready(p, seen, left, found))
	toggle(pipelinesv1.AppSharedCondition, shared(r.Index.Rivals(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})))
	if len(found) > 0 || len(r.standing(p, seen)) == 0 {
		toggle(pipelinesv1.PromotionPendingCondition, unlessAll(found, pending(p, seen)))
		toggle(pipelinesv1.StalledCondition, stalled(left, found))
		toggle(pipelinesv1.WavesDivergedCondition, diverged(p, seen, promotions))
		toggle(pipelinesv1.StarvedCondition, unlessAll(found, starved(p, promotions)))
	}
	if concernsAll(found) {
		// Nothing is observed: the soaks go on with what is stored.
		r.soaks.forget(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		return status, 0
	}
	return status, r.countSoaks(p, seen, &status)
}

// unlessAll returns a condition, but nil if a problem concerns the whole Pipeline.
func unlessAll(found []problem, c *metav1.Condition) *metav1.Condition {
	if concernsAll(found) {
		return nil
	}
	return c
}

// environments returns the environments of the status. An environment that the spec no
// longer names is removed. If a problem concerns the whole Pipeline (a name is used twice,
// for example), nothing is observed: all environments stay as they are, and what was seen of their
// targets is stale.
func (r *Reconciler) environments(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion, found []problem) map[string]*pipelinesv1.EnvironmentStatus {
	if concernsAll(found) {
		all := p.Status.DeepCopy().Environments
		for _, status := range all {
			for j := range status.Targets {
				t := &status.Targets[j]
				t.Stale = t.Stale || t.Revision != "" || t.Observed() != nil
			}
		}
		return all
	}
	fleets := seen.fleets(p)
	all := make(map[string]*pipelinesv1.EnvironmentStatus, len(p.Spec.Environments))
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		last := p.Status.Environments[env.Name]
		if last == nil {
			last = &pipelinesv1.EnvironmentStatus{}
		}
		status := &pipelinesv1.EnvironmentStatus{
			Targets: r.targetStatuses(p, env, last, seen[i]),
			Agreed:  decision.Record(last.Agreed.DeepCopy(), fleets[i], decision.Outbound(decision.LineOf(p), promotions, env.Name)),
		}
		switch {
		case !env.IsFleet():
		case last.Fleet != nil && r.stands(p, seen[i]): // Who is listed, and what is counted, depends on all.
			status.Fleet, status.Targets = last.Fleet, last.Targets
		default:
			status.Fleet = fleetStatus(p, i, fleets[i], seen[i])
			status.Targets = listed(status.Targets, status.Fleet, shownOf(p, i))
		}
		status.LastPromotion = decision.LedgerOf(decision.LineOf(p), promotions, env.Name, last.LastPromotion).Highest()
		if newest := decision.NewestOf(p.UID, promotions, env.Name); newest != nil {
			status.Promotion = &pipelinesv1.PromotionSummary{
				Name: newest.Name, Revision: newest.Spec.Revision, Phase: string(newest.Status.Phase),
				Reason: newest.Status.Reason, Message: newest.Status.Message, URL: newest.Status.URL,
			}
			if newest.Status.Phase != "" && newest.WaitsForApproval() {
				status.WaitingApproval.Revision = newest.Spec.Revision
			}
			if i > 0 && newest.Status.Phase == capstanv1.PhaseFailed {
				status.RollbackAdvice = rollbackAdvice(decision.QuestionOf(p, fleets, promotions, i))
			}
		}
		all[env.Name] = status
	}
	addWhole(p, all)
	return all
}

// rollbackAdvice says why a promotion that failed is not rolled back, and how to do so; empty if it is rolled back, or
// if no rollback is configured.
func rollbackAdvice(q decision.Question) string {
	to, why := decision.Rollback(q)
	switch {
	case why == "":
		return ""
	case to == nil:
		return fmt.Sprintf("it is not rolled back: %s; create a PromotionRequest for a revision that works", why)
	}
	return fmt.Sprintf("it is not rolled back to %s: %s; create a PromotionRequest with rollback: {} to do so", to.Revision, why)
}

func (r *Reconciler) targetStatuses(p *pipelinesv1.Pipeline, env *pipelinesv1.Environment, last *pipelinesv1.EnvironmentStatus, seen []observation) []pipelinesv1.TargetStatus {
	statuses := make([]pipelinesv1.TargetStatus, 0, len(env.Targets))
	stored, stands := storedTargets(p, env, last), r.stands(p, seen)
	for j := range env.Targets {
		s, before := seen[j], stored(j)
		if stands && s.early && before != nil {
			statuses = append(statuses, *before.DeepCopy())
			continue
		}
		status := pipelinesv1.TargetStatus{ClusterAppRef: appRefOf(p, &env.Targets[j])}
		if env.IsFleet() {
			status.Namespace, status.Standing, status.StandingTime = env.Targets[j].Namespace, s.standing, standingTime(&s)
		}
		status.Ready, status.Revision, status.Error = s.target.Ready, s.target.Revision, s.err
		status.Progressing = s.target.Progressing
		status.Reason = truncate.Bytes(s.reason, maxReason)
		if s.err == "" && !status.Ready {
			status.Message = truncate.Bytes(s.obs.Message, maxAppMessage)
		}
		if !s.known && before != nil {
			// This process has not observed the target: the last revision stays.
			status.Revision = before.Revision
		}
		// An application that was observed to be absent becomes stale, too. Otherwise its
		// target would appear as one that is known to run nothing.
		wasSeen := status.Revision != "" || s.known || (before != nil && before.Observed() != nil)
		status.Stale = !s.target.Fresh && wasSeen
		status.ObservedTime = r.observedTime(before, status, s)
		statuses = append(statuses, status)
	}
	return statuses
}

// maxMessage bounds the message of a condition, in bytes. Names in a Pipeline have no bound,
// and an API server refuses a status with a message of more than 32 KiB.
const maxMessage = 4096

// maxReason and maxAppMessage are how much of the application's own reason and message a
// target shows, in bytes.
const maxReason, maxAppMessage = 128, 256

// appRefOf returns the application of a target, as its status names it.
func appRefOf(p *pipelinesv1.Pipeline, t *pipelinesv1.Target) pipelinesv1.ClusterAppReference {
	app := pipelinesv1.ClusterAppReference{LocalAppReference: p.Spec.AppRef}
	if t.ClusterRef != nil && !selects(t) {
		app.ClusterRef = t.ClusterRef.DeepCopy()
		app.ClusterRef.Namespace = reference(p, t).Namespace
	}
	return app
}

// storedTargets returns a function that returns target j of an environment as its last status shows it; nil if that
// does not show it.
func storedTargets(p *pipelinesv1.Pipeline, env *pipelinesv1.Environment, last *pipelinesv1.EnvironmentStatus) func(j int) *pipelinesv1.TargetStatus {
	if !env.IsFleet() {
		return func(j int) *pipelinesv1.TargetStatus { return lastSeen(last, j, appRefOf(p, &env.Targets[j])) }
	}
	listed := listedBefore(p, last)
	return func(j int) *pipelinesv1.TargetStatus { return listed[keyOf(p, &env.Targets[j])] }
}

// lastSeen returns the target's last status, if that is of the same application.
func lastSeen(last *pipelinesv1.EnvironmentStatus, j int, ref pipelinesv1.ClusterAppReference) *pipelinesv1.TargetStatus {
	if j >= len(last.Targets) {
		return nil
	}
	before := &last.Targets[j]
	a, b := before.ClusterAppRef, ref
	if a.LocalAppReference != b.LocalAppReference || (a.ClusterRef == nil) != (b.ClusterRef == nil) || (a.ClusterRef != nil && *a.ClusterRef != *b.ClusterRef) {
		return nil
	}
	return before
}

// observedTime returns when the application was first observed with the shown revision
// and readiness. It changes only when these change: a target that becomes stale keeps the
// time.
func (r *Reconciler) observedTime(before *pipelinesv1.TargetStatus, now pipelinesv1.TargetStatus, s observation) *metav1.Time {
	same := before != nil && before.Revision == now.Revision && (before.Ready == now.Ready || now.Stale || before.Stale)
	switch {
	case same && before.Observed() != nil:
		return before.Observed().DeepCopy()
	case s.known && !s.obs.At.IsZero():
		return &metav1.Time{Time: s.obs.At.Truncate(1e9)}
	default:
		return nil
	}
}

// unreadyOrder is the order in which the condition Ready prefers reasons.
var unreadyOrder = []string{
	pipelinesv1.InvalidSpecReason,
	pipelinesv1.TargetClusterNotFoundReason,
	pipelinesv1.TargetClusterNotReadyReason,
	pipelinesv1.TargetNotReadableReason,
}

// ready returns the condition Ready. Targets that this process has not observed yet do not
// change it: after a restart the condition stays as it was.
func ready(p *pipelinesv1.Pipeline, seen observations, unfinished []*capstanv1.Promotion, found []problem) metav1.Condition {
	if concernsAll(found) {
		return metav1.Condition{Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: pipelinesv1.InvalidSpecReason, Message: messages(found)}
	}
	for _, reason := range unreadyOrder {
		var errs []string
		for i := range seen {
			for _, s := range seen[i] {
				if s.unready == reason && !s.early && !s.standing.LeftOut() {
					errs = append(errs, s.err)
				}
			}
		}
		if len(errs) == 0 {
			continue
		}
		return metav1.Condition{Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: shorten(errs)}
	}
	if waiting := early(seen); waiting > 0 {
		if before := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.ReadyCondition); before != nil && p.Status.ObservedGeneration == p.Generation {
			return *before
		}
		return metav1.Condition{
			Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionUnknown,
			Reason: pipelinesv1.ProgressingReason, Message: fmt.Sprintf("waiting for the first observation of %d targets", waiting),
		}
	}
	return metav1.Condition{
		Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionTrue,
		Reason: pipelinesv1.ReconciliationSucceededReason, Message: shorten(append([]string{allChecked}, hindrances(p, seen, unfinished, found)...)),
	}
}

// allChecked is weave's message of Ready=True.
const allChecked = "All clusters checked"

// hindrances returns what keeps a Pipeline whose targets can all be read from promoting.
func hindrances(p *pipelinesv1.Pipeline, seen observations, unfinished []*capstanv1.Promotion, found []problem) []string {
	var all []string
	if p.Spec.Suspend {
		all = append(all, "suspended: nothing is promoted until spec.suspend is false")
	}
	for _, f := range found {
		all = append(all, f.message)
	}
	for i := range seen {
		if env := &p.Spec.Environments[i]; env.IsFleet() {
			if message := fleetStatus(p, i, seen.fleet(p, i), seen[i]).Message; message != "" {
				all = append(all, fmt.Sprintf("environment %q: %s", env.Name, message))
			}
		}
	}
	for _, newest := range unfinished {
		what := fmt.Sprintf("the promotion of %s into environment %q", newest.Spec.Revision, newest.Spec.Environment)
		switch c := meta.FindStatusCondition(newest.Status.Conditions, capstanv1.StalledCondition); {
		case newest.Status.Phase == capstanv1.PhaseFailed:
			all = append(all, fmt.Sprintf("%s failed (%s)", what, newest.Status.Reason))
		case c != nil && c.Status == metav1.ConditionTrue:
			all = append(all, fmt.Sprintf("%s is stalled (%s)", what, c.Reason))
		case newest.Status.Attempt != nil && newest.Status.Attempt.Failures > 0 && !newest.Status.Phase.Finished():
			all = append(all, what+" is being retried after a failure")
		}
	}
	return all
}

// unfinished returns the newest promotion into each environment that does not run its
// revision, or in which the revision was not verified.
func unfinished(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion) []*capstanv1.Promotion {
	fleets := seen.fleets(p)
	var all []*capstanv1.Promotion
	for i := 1; i < len(p.Spec.Environments); i++ {
		newest := decision.NewestOf(p.UID, promotions, p.Spec.Environments[i].Name)
		if newest == nil {
			continue
		}
		runs, ok := fleets[i].Agree()
		if ok && revision.Same(runs, newest.Spec.Revision) && !decision.Judged(newest.Status.Phase, newest.Status.Reason) {
			continue
		}
		all = append(all, newest)
	}
	return all
}

// inFlight returns the text of status.inFlight.
func inFlight(p *pipelinesv1.Pipeline, known []capstanv1.Promotion) string {
	var all []string
	for i := 1; i < len(p.Spec.Environments); i++ {
		newest := decision.NewestOf(p.UID, known, p.Spec.Environments[i].Name)
		if newest == nil || newest.Status.Phase.Finished() {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s %s", newest.Spec.Environment, newest.Spec.Revision, promotions.PhaseText(newest)))
	}
	if len(all) > maxShown {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxShown], ", "), len(all)-maxShown)
	}
	return strings.Join(all, ", ")
}

// early counts the targets that this process has not observed yet. Those that are left out do not count: a cluster that
// joins does not delay what is shown of the others.
func early(seen observations) int {
	n := 0
	for i := range seen {
		n += earlyOf(seen[i])
	}
	return n
}

func earlyOf(seen []observation) int {
	n := 0
	for _, s := range seen {
		if s.early && !s.standing.LeftOut() {
			n++
		}
	}
	return n
}

// maxShown is how many facts a message names; the others are counted.
const maxShown = 3

// shorten joins facts. A fact that concerns two targets, because environments share an
// application, is named once.
func shorten(facts []string) string {
	var distinct []string
	for _, f := range facts {
		if !slices.Contains(distinct, f) {
			distinct = append(distinct, f)
		}
	}
	if len(distinct) > maxShown {
		return fmt.Sprintf("%s; and %d more", strings.Join(distinct[:maxShown], "; "), len(distinct)-maxShown)
	}
	return strings.Join(distinct, "; ")
}

// pending returns the condition that the first environment has no revision to promote; nil
// if it has one.
func pending(p *pipelinesv1.Pipeline, seen observations) *metav1.Condition {
	if len(seen) == 0 || len(seen[0]) == 0 {
		return nil
	}
	fleet := seen.fleet(p, 0)
	if _, ok := fleet.Agree(); ok {
		return nil
	}
	var unready, running []string
	for j, t := range fleet.Targets {
		if t.Standing.LeftOut() {
			continue
		}
		if t.Ready && t.Fresh {
			running = append(running, fmt.Sprintf("%s has %s", targetText(p, 0, j), t.Revision))
		} else {
			unready = append(unready, targetText(p, 0, j)+seen[0][j].why())
		}
	}
	message := fmt.Sprintf("Environment %q is not ready: %s", p.Spec.Environments[0].Name, shorten(unready))
	switch {
	case p.Spec.Environments[0].IsFleet():
		message = fmt.Sprintf("Environment %q is not ready: %s", p.Spec.Environments[0].Name, fleetStatus(p, 0, fleet, seen[0]).Message)
	case len(unready) == 0:
		message = fmt.Sprintf("The targets of environment %q run different revisions: %s", p.Spec.Environments[0].Name, shorten(running))
	}
	return &metav1.Condition{
		Type: pipelinesv1.PromotionPendingCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.EnvironmentNotReadyReason, Message: message,
	}
}

// targetText returns the name of a target in a message.
func targetText(p *pipelinesv1.Pipeline, i, j int) string {
	return appText(p, &p.Spec.Environments[i].Targets[j])
}

// appText returns the name of the application of a target in a message.
func appText(p *pipelinesv1.Pipeline, t *pipelinesv1.Target) string {
	return fmt.Sprintf("%s/%s in %s", t.Namespace, p.Spec.AppRef.Name, clusterText(string(reference(p, t).ClusterName())))
}

// stalled returns the condition that something keeps the Pipeline from advancing; nil if
// nothing does.
func stalled(unfinished []*capstanv1.Promotion, found []problem) *metav1.Condition {
	if len(found) > 0 {
		return &metav1.Condition{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.InvalidSpecReason, Message: messages(found)}
	}
	var failed, old []string
	for _, newest := range unfinished {
		if newest.Status.Phase == capstanv1.PhaseFailed {
			failed = append(failed, fmt.Sprintf("promotion %s into environment %q failed: %s", newest.Name, newest.Spec.Environment, newest.Status.Message))
			continue
		}
		if c := meta.FindStatusCondition(newest.Status.Conditions, capstanv1.StalledCondition); c != nil && c.Status == metav1.ConditionTrue {
			old = append(old, fmt.Sprintf("promotion %s into environment %q: %s", newest.Name, newest.Spec.Environment, c.Message))
		}
	}
	switch {
	case len(failed) > 0:
		return &metav1.Condition{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.PromotionFailedReason, Message: shorten(failed)}
	case len(old) > 0:
		return &metav1.Condition{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.PromotionStalledReason, Message: shorten(old)}
	default:
		return nil
	}
}

// starvedAfter is how many revisions in sequence are replaced before they have soaked until an
// environment is starved.
const starvedAfter = 5

// starved returns the condition that the source of an environment changes too often for its soak; nil
// if none does.
func starved(p *pipelinesv1.Pipeline, promotions []capstanv1.Promotion) *metav1.Condition {
	var all []string
	for i := 1; i < len(p.Spec.Environments); i++ {
		soak := gate.For(p, i).Soak()
		if soak == nil {
			continue
		}
		env := p.Spec.Environments[i].Name
		if n := decision.LedgerOf(decision.LineOf(p), promotions, env, 0).SupersededSoaking(); n >= starvedAfter {
			all = append(all, fmt.Sprintf("environment %q got none of the last %d revisions, because %q changed before each had soaked for %s: shorten the soak, or release less often",
				env, n, p.Spec.Environments[i-1].Name, period.Text(soak.For)))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &metav1.Condition{Type: pipelinesv1.StarvedCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.SoakNeverEndsReason, Message: shorten(all)}
}

// shared returns the condition that other Pipelines promote into the same applications; nil
// if none does.
func shared(rivals []index.Rival) *metav1.Condition {
	if len(rivals) == 0 {
		return nil
	}
	all := make([]string, len(rivals))
	for i, r := range rivals {
		all[i] = fmt.Sprintf("Pipeline %s also promotes into %s %s/%s in %s", r.Pipeline, r.Object.Kind.Kind, r.Object.Namespace, r.Object.Name, clusterText(r.Object.Cluster))
	}
	return &metav1.Condition{
		Type: pipelinesv1.AppSharedCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.PromotedByOtherPipelineReason,
		Message: shorten(all) + ": remove the target from one of the Pipelines",
	}
}
