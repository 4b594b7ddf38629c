package promotion

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
	"github.com/capstan-hub/capstan/internal/promotions"
	"github.com/capstan-hub/capstan/internal/revision"
)

// view holds the hub's objects around one Promotion.
type view struct {
	// pipeline of the Promotion; nil if none of its name and UID exists.
	pipeline *pipelinesv1.Pipeline
	// early: this process has not observed the Pipeline yet. stands: it has not observed the environment or its
	// source yet, whose targets count as stale here.
	early, stands bool
	// ledger of the environment, with the promotions of former Pipelines of the name.
	ledger decision.Ledger
	// source is the ledger of the source environment.
	source decision.Ledger
	// failedInWave is whether the revision failed in another wave of the environment (decision.FailedInWave).
	failedInWave bool
	// requestDeleted: the PromotionRequest that caused the promotion was deleted.
	requestDeleted bool
	// secretChanged: the Secret with which the promotion, or its last attempt, failed has
	// changed since.
	secretChanged bool
	// rules are the gates of the environment; none if it was removed.
	rules gate.Rules
	// verification of the environment; none if it was removed, or is the first.
	verification verify.Rules
	// now is when the objects were read, for the gates.
	now time.Time
}

// view reads the Pipeline and its other Promotions. PromotionWindows are read from the cache: before a
// step outside, the permit reads them from the API server.
func (r *Reconciler) view(ctx context.Context, reader client.Reader, p *capstanv1.Promotion) (view, error) {
	v := view{now: r.Clock.Now()}
	var err error
	if v.pipeline, err = r.pipelineOf(ctx, reader, p); err != nil {
		return v, err
	}
	r.distrust(p, &v)
	if v.rules, err = rulesFor(ctx, r.Client, v.pipeline, p); err != nil {
		return v, err
	}
	v.rules = r.measured(p, v.rules)
	if i := placeOf(v.pipeline, p); i > 0 {
		v.verification = verify.For(v.pipeline, i)
	}
	all, err := promotions.OfName(ctx, reader, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name})
	if err != nil {
		return v, err
	}
	var mark int64
	if status := v.status(p.Spec.Environment); status != nil {
		mark = status.LastPromotion
	}
	v.ledger = decision.LedgerOf(lineOf(p), all, p.Spec.Environment, mark)
	v.readSource(p, all)
	if v.requestDeleted, err = r.requestDeleted(ctx, p); err != nil {
		return v, err
	}
	v.secretChanged, err = r.secretChanged(ctx, p)
	return v, err
}

// distrust makes the targets stale of which the status has only what an earlier process has observed.
func (r *Reconciler) distrust(p *capstanv1.Promotion, v *view) {
	if v.pipeline == nil {
		return
	}
	stands, observed := r.Observed(client.ObjectKeyFromObject(v.pipeline), v.pipeline.UID)
	v.early = !observed
	if len(stands) == 0 {
		return
	}
	v.stands = slices.Contains(stands, p.Spec.Environment) || slices.Contains(stands, p.Spec.Source.Environment)
	pipeline := *v.pipeline
	pipeline.Status.Environments = maps.Clone(pipeline.Status.Environments)
	for _, name := range stands {
		if status := pipeline.Status.Environments[name].DeepCopy(); status != nil {
			for i := range status.Targets {
				status.Targets[i].Stale = true
			}
			if status.Fleet != nil { // Those that the status counts and does not list.
				status.Fleet.Ready, status.Fleet.Unready = 0, 0
			}
			pipeline.Status.Environments[name] = status
		}
	}
	v.pipeline = &pipeline
}

// readSource sets what sourceFailed needs, from the promotions of the Pipeline's name. v.pipeline is set.
func (v *view) readSource(p *capstanv1.Promotion, all []capstanv1.Promotion) {
	v.source = decision.LedgerOf(lineOf(p), all, p.Spec.Source.Environment, 0)
	if i := placeOf(v.pipeline, p); i > 0 {
		v.failedInWave = decision.FailedInWave(v.pipeline, all, i, p.Spec.Source, p.Spec.Revision) != ""
	}
}

// requestDeleted returns whether the PromotionRequest of a promotion that can still be carried out was deleted.
// The cache may not have the request yet, so that its absence is read uncached.
func (r *Reconciler) requestDeleted(ctx context.Context, p *capstanv1.Promotion) (bool, error) {
	by := p.Spec.Request
	if by == nil || p.Status.CarriedOutTime != nil || p.Status.Phase.Finished() && p.Status.Phase != capstanv1.PhaseFailed {
		return false, nil
	}
	key, request := types.NamespacedName{Namespace: p.Namespace, Name: by.Name}, &capstanv1.PromotionRequest{}
	err := r.Client.Get(ctx, key, request, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && request.UID != by.UID {
		request = &capstanv1.PromotionRequest{}
		err = r.APIReader.Get(ctx, key, request)
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading PromotionRequest %s: %w", key, err)
	}
	return err != nil || request.UID != by.UID, nil
}

// lineOf returns the line whose history a promotion is part of.
func lineOf(p *capstanv1.Promotion) decision.Line {
	return decision.Line{UID: p.Spec.Pipeline.UID, App: p.Spec.App}
}

// pipelineOf reads the Pipeline of a promotion, with the targets and the stages that its status has; nil if none of its name and
// UID exists.
func (*Reconciler) pipelineOf(ctx context.Context, reader client.Reader, p *capstanv1.Promotion) (*pipelinesv1.Pipeline, error) {
	pipeline := &pipelinesv1.Pipeline{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Spec.Pipeline.Name}, pipeline)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // None is the answer.
	case err != nil:
		return nil, fmt.Errorf("reading Pipeline %s/%s: %w", p.Namespace, p.Spec.Pipeline.Name, err)
	case pipeline.UID != p.Spec.Pipeline.UID || !pipeline.DeletionTimestamp.IsZero():
		return nil, nil //nolint:nilnil // None is the answer.
	}
	return pipeline.Shown(), nil
}

// secretChanged reads the version of the Secret with which a promotion failed, uncached
// and as metadata only. If the hub may not read it, it counts as unchanged.
func (r *Reconciler) secretChanged(ctx context.Context, p *capstanv1.Promotion) (bool, error) {
	failedWith := p.Status.Secret
	if failedWith == nil || p.Status.Phase.Finished() && p.Status.Phase != capstanv1.PhaseFailed {
		return false, nil
	}
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.APIReader.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: failedWith.Name}, now)
	switch {
	case apierrors.IsNotFound(err):
		return failedWith.ResourceVersion != "", nil
	case apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the metadata of Secret %s/%s: %w", p.Namespace, failedWith.Name, err)
	}
	return now.ResourceVersion != failedWith.ResourceVersion, nil
}

// placeOf returns the place of the environment of a promotion in its Pipeline; -1 if it was removed.
func placeOf(pipeline *pipelinesv1.Pipeline, p *capstanv1.Promotion) int {
	if pipeline == nil {
		return -1
	}
	return slices.IndexFunc(pipeline.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == p.Spec.Environment })
}

// rulesFor returns the gates of the environment of a promotion, with the PromotionWindows that select
// it. They are read live: an edit has its effect at the next step. An environment, or a Pipeline (nil),
// that was removed has no gates of its own any more, and is still selected by PromotionWindows.
func rulesFor(ctx context.Context, reader client.Reader, pipeline *pipelinesv1.Pipeline, p *capstanv1.Promotion) (gate.Rules, error) {
	rules := gate.Parse(nil, "")
	if i := placeOf(pipeline, p); i > 0 {
		rules = gate.For(pipeline, i)
	}
	rules = rules.Of(p)
	var list capstanv1.PromotionWindowList
	if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return rules, fmt.Errorf("listing PromotionWindows: %w", err)
	}
	windows := gate.SortWindows(list.Items)
	var namespace corev1.Namespace
	if slices.ContainsFunc(windows, (*gate.ClusterWindow).NeedsNamespace) {
		if err := reader.Get(ctx, types.NamespacedName{Name: p.Namespace}, &namespace); err != nil {
			return rules, fmt.Errorf("reading the labels of namespace %s: %w", p.Namespace, err)
		}
	}
	return rules.Within(windows, pipeline, p.Spec.Environment, namespace.Labels), nil
}

// pruned returns whether the Pipeline is served by a CRD that hides its gates. Nothing is done then.
func (v view) pruned() bool { return v.pipeline != nil && !v.pipeline.ServedInFull() }

func (v view) suspended() bool { return v.pipeline != nil && v.pipeline.Spec.Suspend }

func (v view) status(env string) *pipelinesv1.EnvironmentStatus {
	if v.pipeline == nil {
		return nil
	}
	return v.pipeline.Status.Environments[env]
}

// environment returns an environment of the Pipeline's spec by name, and the name of its
// source, which is the environment before it; nil if there is none. The first environment
// has no source.
func (v view) environment(name string) (env *pipelinesv1.Environment, source string) {
	environments := v.pipeline.Spec.Environments
	i := slices.IndexFunc(environments, func(e pipelinesv1.Environment) bool { return e.Name == name })
	switch {
	case i < 0:
		return nil, ""
	case i == 0:
		return &environments[0], ""
	default:
		return &environments[i], environments[i-1].Name
	}
}

// maybeSent returns whether the newest attempt sends a notification and no outcome of it is
// recorded: the process that made it ended, or still makes it, or is about to record the
// outcome. A notification cannot be taken back. A pull request can be closed, so it does not
// count.
func maybeSent(p *capstanv1.Promotion) bool {
	return p.Spec.Strategy.Notification != nil && p.Status.Phase == capstanv1.PhasePromoting &&
		p.Status.Attempt != nil && p.Status.Attempt.Error == ""
}

// facts returns the facts that the lifecycle table reads.
func (v view) facts(p *capstanv1.Promotion, outcome decision.Outcome) decision.Facts {
	f := decision.Facts{
		GateClosed:      v.closed(p) != nil,
		Begun:           p.Status.Attempt != nil || p.Status.PullRequest != nil,
		Opened:          p.Status.PullRequest != nil,
		PipelineDeleted: v.pipeline == nil,
		Newer:           v.ledger.Outranks(decision.EntryOf(p)),
		Manual:          p.Spec.Manual,
		Approved:        approvalOfRun(p) != nil,
		RunRejected:     p.Rejected(),
		Retry:           retryDue(p),
		Tried:           p.Status.Attempt != nil,
		MaybeSent:       maybeSent(p),
		Outcome:         outcome,
		Verification:    v.verification.Set(),
		Judged:          decision.Judged(p.Status.Phase, p.Status.Reason),
		Verdict:         v.verdict(p),

		SecretChanged: v.secretChanged && p.Status.Secret != nil && !failedInEnvironment(p),
	}
	if v.pipeline == nil {
		return f
	}
	env, source := v.environment(p.Spec.Environment)
	f.EnvironmentRemoved = env == nil
	f.PromotionRemoved = env != nil && v.pipeline.PromotionFor(env) == nil
	_, f.Rejected = v.rules.Rejected(p.Spec.Revision)
	f.RequestDeleted = v.requestDeleted
	outOfTurn := decision.EntryOf(p).OutOfTurn() // It did not come from what the source runs.
	f.SourceChanged = env != nil && source != p.Spec.Source.Environment && (!outOfTurn || source == "")
	if status := v.status(p.Spec.Environment); status != nil && env != nil {
		// A request or a rollback is carried out also where the targets run its revision already: Git, or
		// the receiver, may still have another one.
		f.Runs = v.arrived(p) && (p.Status.CarriedOutTime != nil || outcome == decision.OutcomeDone || !outOfTurn && v.allRun(p))
		f.EnvironmentMovedOn = v.movedOn(p, status.Agreed)
	}
	if outOfTurn {
		return f
	}
	f.SourceFailed = v.sourceFailed(p)
	f.WaveChanged = v.moved(p) != ""
	if agreed := v.sourceAgreed(p); agreed != nil && !v.pruned() && !v.rules.SoakInvalid() {
		f.SourceMovedOn = agreed.Sequence > p.Spec.Source.Sequence && !revision.Same(agreed.Revision, p.Spec.Revision) &&
			!v.ledger.Qualified(decision.EntryOf(p), v.rules.Soak(), agreed.Revision)
	}
	return f
}

// moved returns a cluster of the wave of a promotion in flight that belongs to another wave now or, if the promotion failed, to
// none; empty if none does.
func (v view) moved(p *capstanv1.Promotion) string {
	failed := p.Status.Phase == capstanv1.PhaseFailed
	if v.pipeline == nil || p.Spec.Wave == nil || p.Status.CarriedOutTime != nil || p.Status.Phase.Finished() && !failed {
		return ""
	}
	return decision.Moved(v.pipeline, p.Spec.Environment, p.Spec.Wave.Clusters, failed)
}

// arrived returns whether every target of the environment, or its quorum, runs the revision, fresh and ready.
func (v view) arrived(p *capstanv1.Promotion) bool {
	if v.pipeline == nil {
		return false
	}
	i := placeOf(v.pipeline, p)
	if i < 0 || v.status(p.Spec.Environment) == nil {
		return false
	}
	runs, agrees := quorum.FleetOf(v.pipeline, i).Agree()
	return agrees && revision.Same(runs, p.Spec.Revision)
}

// allRun returns whether a promotion has nothing to change: of a wave, whether every one of its clusters that counts and
// can be observed runs the revision. A quorum is not enough: the promotion may be for a cluster that joined those that do.
func (v view) allRun(p *capstanv1.Promotion) bool {
	i := placeOf(v.pipeline, p)
	return p.Spec.Wave == nil || i < 0 || !quorum.FleetOf(v.pipeline, i).Elsewhere(p.Spec.Revision, p.Spec.Wave)
}

// leftOut says which targets of a fleet do not run the revision although the environment does, as the end of a sentence;
// empty if all do.
func (v view) leftOut(p *capstanv1.Promotion) string {
	status := v.status(p.Spec.Environment)
	if status == nil || status.Fleet == nil || status.Fleet.Ready == status.Fleet.Targets {
		return ""
	}
	text := fmt.Sprintf("; %d of its %d targets do, and %d must", status.Fleet.Ready, status.Fleet.Targets, status.Fleet.Required)
	if status.Fleet.Message != "" {
		text += "; " + status.Fleet.Message
	}
	return text
}

// sourceFailed returns whether the last verdict about the revision in its source is a bad one, or whether it is
// being rolled back there, or failed in a wave before. The ledgers say so, also when newer promotions exist.
func (v view) sourceFailed(p *capstanv1.Promotion) bool {
	if v.failedInWave {
		return true
	}
	i := slices.IndexFunc(v.pipeline.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == p.Spec.Source.Environment })
	if i < 0 {
		return false
	}
	return v.source.RollsBack(p.Spec.Revision) || decision.Verifies(v.pipeline, i) && v.source.Failed(p.Spec.App, p.Spec.Revision)
}

// verdict returns what is known about the roll-out or the verification of a promotion in its phase.
func (v view) verdict(p *capstanv1.Promotion) verify.Verdict {
	if t := p.Status.Trial; t == nil || t.Phase != p.Status.Phase {
		return verify.Open
	}
	return v.verification.Judge(p.Status.Trial, p.Status.Checks)
}

// movedOn returns whether the environment agreed, since the promotion was created, on a
// revision that can only come from outside the pipeline. This is a revision that is none
// of: the promoted one; one that a target ran at the creation; one of an earlier promotion,
// which may take effect late. If a target ran nothing at the creation, the result is false.
func (v view) movedOn(p *capstanv1.Promotion, agreed *pipelinesv1.AgreedRevision) bool {
	if agreed == nil || p.Spec.From == nil || agreed.Sequence <= p.Spec.From.Sequence || revision.Same(agreed.Revision, p.Spec.Revision) {
		return false
	}
	from := p.Spec.From.Revisions
	ran := func(one string) bool { return revision.Same(one, agreed.Revision) }
	return !slices.Contains(from, "") && !slices.ContainsFunc(from, ran) && !v.ledger.HasEarlier(agreed.Revision, p.Spec.Number)
}
