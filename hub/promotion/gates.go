package promotion

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/strategy"
)

const (
	// judgeEvery bounds the time between two judgements of gates, if the event or the timer is
	// lost that should cause one.
	judgeEvery = 5 * time.Minute

	// openSpread is the time over which the promotions continue that wait for one window.
	openSpread = 30 * time.Second

	// sameTime is how far the expected times of two judgements may differ and still be the same:
	// that of a soak moves with each pause.
	sameTime = 5 * time.Second

	// mergeHeld is the reason while a gate holds the merge of an open pull request.
	mergeHeld = "MergeHeld"
)

// reasonCRDOutdated is the reason why a step is held of a promotion whose Pipeline is served without gates.
const reasonCRDOutdated = "CRDOutdated"

// errPruned is returned if the Pipeline of a promotion is served by a CRD without gates.
var errPruned = errors.New("the CRD pipelines.pipelines.weave.works does not keep gates: apply config/crd of this version of Capstan")

func (v view) sourceAgreed(p *capstanv1.Promotion) *pipelinesv1.AgreedRevision {
	if status := v.status(p.Spec.Source.Environment); status != nil {
		return status.Agreed
	}
	return nil
}

// closed returns the first gate that is closed; nil if all are open.
func (v view) closed(p *capstanv1.Promotion) *gate.Result {
	if v.rules.Empty() {
		return nil
	}
	return gate.FirstClosed(v.rules.Judge(gate.FactsOf(v.pipeline, p, v.now)))
}

// noteSoak records that the revision has soaked, while the source runs it. The source may leave it
// later; then the record is all that is known.
func (v view) noteSoak(p *capstanv1.Promotion) {
	agreed, soak := v.sourceAgreed(p), v.rules.Soak()
	switch {
	case v.pipeline == nil || v.pruned() || p.Status.Phase.Finished():
	case v.rules.SoakInvalid(): // It is judged when the spec is corrected.
	case soak == nil:
		p.Status.SoakedSeconds = 0
	case p.Spec.Request != nil && (v.ledger.Succeeded(p.Spec.Revision) || p.Status.SoakedSeconds >= int64(soak.For/time.Second)):
		// It was promoted here before; the source, which runs another one, need not prove it again.
		p.Status.SoakedSeconds = max(p.Status.SoakedSeconds, int64(soak.For/time.Second))
	case agreed == nil || !revision.Same(agreed.Revision, p.Spec.Revision):
	case agreed.Soak == nil || time.Duration(agreed.Soak.Seconds)*time.Second < soak.For:
		p.Status.SoakedSeconds = 0
	case time.Duration(p.Status.SoakedSeconds)*time.Second < soak.For:
		p.Status.SoakedSeconds = agreed.Soak.Seconds
	}
}

// gatesMatter returns whether the gates of a promotion are judged: until it is carried out, or ends. One
// that failed before may be tried again, and its pull request may be open.
func gatesMatter(p *capstanv1.Promotion) bool {
	switch phase := p.Status.Phase; phase { //nolint:exhaustive // The others are about what comes before.
	case capstanv1.PhaseFailed:
		return !failedInEnvironment(p)
	case capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
		return false
	default:
		return !phase.Finished()
	}
}

// failedInEnvironment returns whether a promotion was rolled out, or was to be, and failed because of
// what was observed then.
func failedInEnvironment(p *capstanv1.Promotion) bool {
	return decision.FailedInEnvironment(p.Status.Phase, p.Status.Reason)
}

// showGates puts the states of the gates into the status of a promotion that was not carried out, and
// says what it waits for.
func (v view) showGates(p *capstanv1.Promotion) {
	s, now := &p.Status, metav1.NewTime(v.now)
	if !gatesMatter(p) {
		if s.Phase != capstanv1.PhaseVerifying { // It expects its own end.
			s.ExpectedTime = nil
		}
		return
	}
	if v.pipeline == nil || v.pruned() {
		return
	}
	results := v.rules.Judge(gate.FactsOf(v.pipeline, p, v.now))
	wasClosed := slices.ContainsFunc(s.Gates, isClosed)
	s.Gates = gateStatuses(s.Gates, results, now)
	s.Checks = keepChecks(s.Checks, v.rules.Checks(gate.FactsOf(v.pipeline, p, v.now)), now)
	closed := gate.FirstClosed(results)
	if closed == nil {
		s.ExpectedTime = nil
		if wasClosed {
			s.GatesOpenTime = &now
		}
		if s.Reason == mergeHeld {
			s.Reason, s.Message = string(decision.PullRequestOpened), sentence(p, decision.PullRequestOpened)
		}
		return
	}
	if !wasClosed {
		s.GatesCloseTime = &now
	}
	s.ExpectedTime = keepTime(s.ExpectedTime, v.rules.Expected(gate.FactsOf(v.pipeline, p, v.now)))
	switch {
	case s.Phase == capstanv1.PhaseFailed: // The gates are not what it waits for first.
		s.ExpectedTime = nil
	case s.Phase == capstanv1.PhaseAwaitingGates:
		s.Reason, s.Message = closed.Reason, closed.Message
	case s.Phase == capstanv1.PhasePromoting && !v.suspended():
		s.Reason, s.Message = closed.Reason, "blocked: "+closed.Message
	case s.Phase == capstanv1.PhaseAwaitingMerge && !modified(p) && s.Reason != retrying:
		s.Reason, s.Message = mergeHeld, fmt.Sprintf("the pull request is open, and must not be merged yet: %s", closed.Message)
	}
}

// aGateIsClosed returns whether a promotion waits for a gate. One that failed does not, and of one that
// was carried out the gates stay as they were.
func aGateIsClosed(p *capstanv1.Promotion) bool {
	return !p.Status.Phase.Finished() && gatesMatter(p) && slices.ContainsFunc(p.Status.Gates, isClosed)
}

func isClosed(g capstanv1.GateStatus) bool { return g.State != capstanv1.GateOpen }

func gateStatuses(before []capstanv1.GateStatus, results []gate.Result, now metav1.Time) []capstanv1.GateStatus {
	if len(results) == 0 {
		return nil
	}
	known := map[string]capstanv1.GateStatus{}
	for _, g := range before {
		known[g.Name] = g
	}
	all := make([]capstanv1.GateStatus, len(results))
	for i, r := range results {
		all[i] = capstanv1.GateStatus{Name: r.Name, Type: r.Type, State: r.State, Reason: r.Reason, Message: cut(r.Message), LastTransitionTime: &now}
		was, is := known[r.Name]
		if is && was.State == r.State {
			all[i].LastTransitionTime = was.LastTransitionTime
		}
		all[i].NextChangeTime = keepTime(was.NextChangeTime, r.Change)
	}
	return all
}

// keepTime returns a time for a status: the one that is there if it is about the same; nil for zero.
func keepTime(was *metav1.Time, now time.Time) *metav1.Time {
	switch {
	case now.IsZero():
		return nil
	case was != nil && was.Sub(now).Abs() <= sameTime:
		return was
	}
	return &metav1.Time{Time: now.Truncate(time.Second)}
}

// judges returns whether the gates of a promotion are judged from time to time.
func (v view) judges(p *capstanv1.Promotion) bool {
	return gatesMatter(p) && !v.rules.Empty() && (v.pipeline != nil || !p.Status.Phase.Finished())
}

// untilJudged returns the time until the gates of a promotion are judged again if no event causes
// that before: when one of them changes by itself. Promotions that wait for one window continue one
// after the other, over openSpread.
func (v view) untilJudged(p *capstanv1.Promotion) time.Duration {
	next := judgeEvery
	for _, r := range v.rules.Judge(gate.FactsOf(v.pipeline, p, v.now)) {
		left := r.Change.Sub(v.now)
		if r.Change.IsZero() || left <= 0 {
			continue
		}
		if r.Type != capstanv1.SoakGate && r.Type != capstanv1.CheckGate && !r.Open() {
			left += spread(p.UID)
		}
		next = min(next, left)
	}
	return max(next, time.Millisecond)
}

// spread returns a part of openSpread, always the same for a promotion.
func spread(uid types.UID) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return time.Duration(h.Sum32()%uint32(openSpread/time.Millisecond)) * time.Millisecond
}

// reportGates records how long a gate was closed that opened. If the promotion stays in its phase, it
// records one Event when gates close, and one when all are open again: else the Event of the new phase
// says so.
func (r *Reconciler) reportGates(ctx context.Context, before, p *capstanv1.Promotion) {
	known := map[string]capstanv1.GateStatus{}
	for _, g := range before.Status.Gates {
		known[g.Name] = g
	}
	for _, was := range before.Status.Gates {
		closed := func(g capstanv1.GateStatus) bool { return g.Name == was.Name && isClosed(g) }
		if isClosed(was) && was.LastTransitionTime != nil && !slices.ContainsFunc(p.Status.Gates, closed) { // It opened, or was removed.
			r.metrics.gateWait.WithLabelValues(string(was.Type)).Observe(r.Clock.Since(was.LastTransitionTime.Time).Seconds())
		}
	}
	for _, g := range p.Status.Gates {
		if by := p.OverrideOf(g.Name); by != nil && g.Reason == gate.ReasonOverridden && known[g.Name].Reason != g.Reason {
			r.metrics.overrides.WithLabelValues(string(g.Type)).Inc()
			r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, ReasonGateOverridden, "Promote", "The gate %q is open: %s", g.Name, g.Message)
			log.FromContext(ctx).Info("a gate of the promotion is overridden", "gate", g.Name, "by", by.By, "reason", by.Reason)
		}
	}
	was, is := aGateIsClosed(before), aGateIsClosed(p)
	if was == is || before.Status.Phase != p.Status.Phase {
		return
	}
	reason, message := ReasonGatesOpened, "all gates are open: the promotion continues"
	if is {
		reason, message = ReasonGatesClosed, p.Status.Message
	}
	r.Recorder.Eventf(p, nil, corev1.EventTypeNormal, reason, "Promote", "%s", message)
	log.FromContext(ctx).Info("the gates of the promotion changed", "closed", is, "phase", p.Status.Phase, "message", message)
}

// Reasons of Events about gates.
const (
	ReasonGatesClosed    = "GatesClosed"
	ReasonGatesOpened    = "GatesOpened"
	ReasonGateOverridden = "GateOverridden"
)

// permission is the right of one attempt to take steps outside.
type permission struct {
	r *Reconciler
	p *capstanv1.Promotion
	// repeats is whether an earlier attempt may have been sent: the attempt is repeated also for a
	// Pipeline that does not exist any more, so that the record says what was sent.
	repeats bool
	// taken is whether a step was permitted.
	taken bool
}

// permit reads the Pipeline uncached, and judges the gates. It implements strategy.Permit.
func (m *permission) permit(ctx context.Context, step strategy.Step) error {
	held := func(reason, message string) error {
		return &strategy.HeldError{Step: step, Reason: reason, Message: message}
	}
	v := view{now: m.r.Clock.Now()}
	pipeline, err := m.r.pipelineOf(ctx, m.r.APIReader, m.p)
	if err != nil {
		return err
	}
	v.pipeline = pipeline
	m.r.distrust(m.p, &v)
	if v.pruned() {
		return held(reasonCRDOutdated, errPruned.Error())
	}
	if v.rules, err = rulesFor(ctx, m.r.APIReader, pipeline, m.p); err != nil {
		return err
	}
	v.rules = m.r.measured(m.p, v.rules)
	if v.suspended() {
		return held(reasonSuspended, suspendedMessage(m.p))
	}
	if v.requestDeleted, err = m.r.requestDeleted(ctx, m.p); err != nil {
		return err
	}
	if why := m.removed(v); why != "" && !m.repeats {
		return held(string(why), sentence(m.p, why))
	}
	if _, is := v.rules.Rejected(m.p.Spec.Revision); is {
		return held(string(decision.RevisionRejected), sentence(m.p, decision.RevisionRejected))
	}
	all, err := promotions.OfName(ctx, m.r.Client, types.NamespacedName{Namespace: m.p.Namespace, Name: m.p.Spec.Pipeline.Name})
	if err != nil {
		return err
	}
	v.readSource(m.p, all) // Only the hub writes verdicts: the cache has them.
	if pipeline != nil && !decision.EntryOf(m.p).OutOfTurn() && v.sourceFailed(m.p) {
		return held(string(decision.SourceFailed), sentence(m.p, decision.SourceFailed))
	}
	v.noteSoak(m.p)
	if closed := v.closed(m.p); closed != nil {
		return held(closed.Reason, closed.Message)
	}
	m.taken = true
	return nil
}

// removed returns why the promotion is not wanted any more; empty if it is.
func (m *permission) removed(v view) decision.PhaseReason {
	if v.pipeline == nil {
		return decision.PipelineDeleted
	}
	if v.requestDeleted {
		return decision.RequestDeleted
	}
	switch env, source := v.environment(m.p.Spec.Environment); {
	case env == nil:
		return decision.EnvironmentRemoved
	case v.moved(m.p) != "":
		return decision.WaveChanged
	case source != "" && decision.EntryOf(m.p).OutOfTurn():
		return ""
	case source != m.p.Spec.Source.Environment:
		return decision.SourceChanged
	}
	return ""
}
