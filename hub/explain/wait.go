package explain

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/causes"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// WaitKind is what kind of cause an environment, a Pipeline or an EventingBackend waits for. It is a value of
// the JSON output, which does not change.
type WaitKind string

// Kinds of causes, the worst first.
const (
	// WaitFailed: the newest promotion failed. The reason is that of the Promotion.
	WaitFailed WaitKind = "Failed"
	// WaitInvalid: the spec of the Pipeline is invalid, or the API server does not serve all of it.
	WaitInvalid WaitKind = "Invalid"
	// WaitDown: an EventingBackend is not ready. The reason is that of its condition Ready.
	WaitDown WaitKind = "NotReady"
	// WaitUnreadable: a target cannot be read. The reason is the state of its cluster, or that of the target; it is Lost if
	// more targets are lost than the quorum permits.
	WaitUnreadable WaitKind = "TargetUnreadable"
	// WaitTarget: an application is not ready. The reason is its own; it is Joining if too many targets join.
	WaitTarget WaitKind = "TargetNotReady"
	// WaitStalled: a promotion is older than --stall-after, or cannot be carried out. The reason is its phase.
	WaitStalled WaitKind = "Stalled"
	// WaitRejected: the pull request was closed unmerged.
	WaitRejected WaitKind = "Rejected"
	// WaitApproval: a promotion needs an approval.
	WaitApproval WaitKind = "AwaitingApproval"
	// WaitUnobserved: the hub has not observed a target, or the newest edit of a Pipeline.
	WaitUnobserved WaitKind = "NotObserved"
	// WaitOther: a user can act, such as for an environment that is held.
	WaitOther WaitKind = "Other"
	// WaitSuspended: the Pipeline is suspended.
	WaitSuspended WaitKind = "Suspended"
	// WaitDryRun: the hub is in dry run, and a promotion is due, or the Pipeline cannot be read completely.
	WaitDryRun WaitKind = "DryRun"
	// WaitGate: a gate is closed. The reason is the name of the gate.
	WaitGate WaitKind = "GateClosed"
	// WaitProgress: a promotion is in progress. The reason is its phase.
	WaitProgress WaitKind = "InProgress"
)

// waitSeverity of a kind; the worst is 0.
var waitSeverity = map[WaitKind]int{
	WaitFailed: 0, WaitInvalid: 0, WaitDown: 0, WaitUnreadable: 1, WaitTarget: 1, WaitStalled: 1, WaitRejected: 2,
	WaitApproval: 3, WaitUnobserved: 4, WaitOther: 4, WaitDryRun: 4, WaitSuspended: 5, WaitGate: 5, WaitProgress: 6,
}

// waitText is a kind for users; %s is the reason.
var waitText = map[WaitKind]string{
	WaitFailed:     "promotion failed (%s)",
	WaitInvalid:    "invalid (%s)",
	WaitDown:       "not ready (%s)",
	WaitUnreadable: "target cannot be read (%s)",
	WaitTarget:     "application not ready (%s)",
	WaitStalled:    "stalled (%s)",
	WaitRejected:   "pull request closed unmerged",
	WaitApproval:   "awaiting approval",
	WaitUnobserved: "not observed by the hub yet",
	WaitOther:      "a user can act",
	WaitSuspended:  "suspended",
	WaitDryRun:     "dry run",
	WaitGate:       "gate %s is closed",
	WaitProgress:   "in progress (%s)",
}

// wait is one cause for which one object waits.
type wait struct {
	kind            WaitKind
	reason, message string
	since           time.Time
	// noun says what the object is. Its name is "apps/shop prod" for an environment.
	noun, name string
	// own are names in the message that are not a part of the cause.
	own []string
}

// text of the cause with its message, for one object.
func (w *wait) text() string {
	switch {
	case w.kind == WaitUnobserved:
		return waitText[w.kind]
	case w.message == "":
		return w.reason
	}
	return cmp.Or(w.reason, "unknown reason") + ": " + w.message
}

// waitOf returns why an environment waits, if it does.
func (f *Facts) waitOf(i int, newest *capstanv1.Promotion) wait {
	p, env := f.Pipeline, f.Pipeline.Spec.Environments[i].Name
	w := wait{kind: WaitOther, noun: "environment", name: p.Namespace + "/" + p.Name + " " + env, own: []string{p.Name, env, p.Spec.AppRef.Name}}
	if newest != nil {
		w.own = append(w.own, newest.Name, newest.Spec.Revision)
		if f.ofPromotion(i, newest, &w) {
			return w
		}
	}
	f.ofTargets(i, &w)
	return w
}

// ofPromotion sets the cause in the newest promotion into environment i; false if it is not there.
func (f *Facts) ofPromotion(i int, p *capstanv1.Promotion, w *wait) bool {
	w.since = timeOf(p.Status.StartTime)
	if c := meta.FindStatusCondition(p.Status.Conditions, capstanv1.StalledCondition); c != nil && c.Status == metav1.ConditionTrue && !p.Status.Phase.Finished() {
		w.kind, w.reason, w.message = WaitStalled, promotions.PhaseText(p), c.Message
		return true
	}
	switch p.Status.Phase {
	case capstanv1.PhaseFailed:
		w.kind, w.reason, w.message, w.since = WaitFailed, p.Status.Reason, p.Status.Message, timeOf(p.Status.FinishTime)
	case capstanv1.PhaseRejected:
		w.kind, w.since = WaitRejected, timeOf(p.Status.FinishTime)
	case capstanv1.PhaseAwaitingApproval:
		w.kind = WaitApproval
	case capstanv1.PhaseAwaitingGates:
		w.kind, w.reason = WaitProgress, promotions.PhaseText(p)
		if closed := gate.FirstClosed(gate.For(f.Pipeline, i).Of(p).Judge(gate.FactsOf(f.Pipeline, p, f.Now))); closed != nil {
			w.kind, w.reason = WaitGate, closed.Name
		}
	case "", capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
		w.kind, w.reason = WaitProgress, promotions.PhaseText(p)
	case capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
		w.since = time.Time{}
		return false
	}
	return true
}

// ofFleet sets the cause in the targets of environment i that are left out; false if it is not there.
func (f *Facts) ofFleet(i int, w *wait) bool {
	standing := quorum.FleetOf(f.Pipeline, i).Lacking()
	if standing == "" {
		return false
	}
	w.kind, w.reason, w.message = WaitTarget, string(standing), f.fleetMessage(i)
	if standing == pipelinesv1.TargetLost {
		w.kind = WaitUnreadable
	}
	for j := range f.Pipeline.Spec.Environments[i].Targets {
		s := f.status(i, j)
		if s == nil || s.Standing == "" {
			continue
		}
		if ref := s.ClusterAppRef.ClusterRef; ref != nil {
			w.own = append(w.own, ref.Name)
		}
		if since := timeOf(s.StandingTime); s.Standing == standing && (w.since.IsZero() || since.Before(w.since)) {
			w.since = since
		}
	}
	return true
}

// ofTargets sets the cause in the targets of environment i that are left out, or in the first one that is not ready. If there is
// none, a user can act, and the explanation says how.
func (f *Facts) ofTargets(i int, w *wait) {
	if f.ofFleet(i, w) {
		return
	}
	for j := range f.Pipeline.Spec.Environments[i].Targets {
		if f.obstacle(i, j, "") == "" {
			continue
		}
		if ref := f.Pipeline.Spec.Environments[i].Targets[j].ClusterRef; ref != nil {
			w.own = append(w.own, ref.Name)
		}
		s := f.status(i, j)
		switch {
		case s == nil:
			w.kind = WaitUnobserved
		case s.Stale || s.Error != "":
			w.kind, w.reason, w.message = WaitUnreadable, s.Reason, s.Error
			if c := f.connection(i, j); c != nil && c.Status.State != capstanv1.ConnectionReady && c.Status.State != "" {
				// The message is that of the cluster, which has a row of its own.
				w.reason, w.message, w.since = "cluster "+string(c.Status.State), "", timeOf(c.Status.LastTransitionTime)
			}
		default:
			w.kind, w.reason, w.message = WaitTarget, s.Reason, s.Message
		}
		return
	}
}

// backendWait returns why an EventingBackend is not ready; nil if it is.
func backendWait(o *eventingv1.EventingBackend) *wait {
	ready := o.Status.Condition(eventingv1.ReadyCondition)
	w := wait{kind: WaitDown, noun: "backend", name: o.Namespace + "/" + o.Name, own: []string{o.Name}}
	switch {
	case ready == nil:
		w.kind, w.since = WaitUnobserved, o.CreationTimestamp.Time
	case ready.Status == metav1.ConditionTrue:
		return nil
	default:
		w.reason, w.message, w.since = ready.Reason, ready.Message, ready.LastTransitionTime.Time
	}
	return &w
}

// key of the cause, which is equal for equal causes.
func (w *wait) key() string {
	return fmt.Sprintf("%s\x00%s\x00%s", w.kind, w.reason, causes.Shape(w.message, w.own...))
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
