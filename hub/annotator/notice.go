package annotator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/internal/capa"
)

// Reasons of Events. The requirements fix the first two. FailedUpdate: the node group cannot be
// annotated until a user changes something. ReconcileError: this attempt failed.
const (
	ReasonFailedUpdate      = "FailedUpdate"
	ReasonReconcileError    = "ReconcileError"
	ReasonInvalidAnnotation = "InvalidCapacityAnnotation"
	ReasonOverridden        = "CapacityOverridden"
	// ReasonResolved: no problem is left of those that were reported.
	ReasonResolved = "CapacityResolved"
)

// Words at the start of Event messages. They are label values of capstan_annotator_problems.
const (
	WordInvalidReference  = "InvalidReference"
	WordTemplateNotFound  = "TemplateNotFound"
	WordNoInstanceType    = "NoInstanceType"
	WordRegionUnknown     = "RegionUnknown"
	WordTypeUnknown       = "InstanceTypeUnknown"
	WordTypeIncomplete    = "InstanceTypeIncomplete"
	WordNoArchitecture    = "UnknownArchitecture"
	WordArchitectures     = "ConflictingArchitectures"
	WordRegionNotOptedIn  = "RegionNotOptedIn"
	WordAccessDenied      = "AWSAccessDenied"
	WordCredentials       = "AWSCredentials"
	WordThrottled         = "AWSThrottled"
	WordUnavailable       = "AWSUnavailable"
	WordUnreadable        = "Unreadable"
	WordNotWritten        = "NotWritten"
	WordUndone            = "Undone"
	WordInvalidMaxPods    = "InvalidMaxPods"
	WordInvalidAnnotation = "InvalidAnnotation"
	WordOverridden        = "Overridden"
	WordResolved          = "Resolved"
)

// repeatAfter is how long after an Event about a problem that lasts there is another one: API
// servers delete Events after an hour by default.
const repeatAfter = 40 * time.Minute

// repeating returns the wait of a node group, for which there was none or a longer one, until its
// Warnings are repeated.
func repeating(wait time.Duration, notices []notice) time.Duration {
	if slices.ContainsFunc(notices, notice.warning) && (wait == 0 || wait > repeatAfter) {
		return repeatAfter
	}
	return wait
}

// notice is a problem of a node group, or another state to report.
type notice struct {
	// severity is the type of the Event.
	severity     string
	reason, word string
	message      string
	// patience is how many times in a row the notice occurs before it is reported: AWS
	// throttles every account from time to time.
	patience int
}

func (n notice) warning() bool { return n.severity == corev1.EventTypeWarning }

func warn(reason, word, format string, args ...any) notice {
	return notice{severity: corev1.EventTypeWarning, reason: reason, word: word, message: fmt.Sprintf(format, args...)}
}

// notifier creates one Event and one log line for each notice, until the notice is over. It
// repeats a Warning after repeatAfter, and when another Warning is over, and it says when
// the last one is over. So the newest Event about a node group always says what is wrong now.
type notifier struct {
	recorder events.EventRecorder
	metrics  *metrics
	kind     string
	// home reads the management cluster.
	home client.Reader
	// report receives failures; may be nil.
	report func(Report)
	clock  clock.PassiveClock

	mu          sync.Mutex
	lockedState struct {
		// seen are the notices of each request.
		seen map[mcreconcile.Request]map[notice]sighting
	}
}

// sighting is how many times in a row a notice occurred, and when it was reported last; zero
// for not yet.
type sighting struct {
	times    int
	reported time.Time
}

func newNotifier(kind string, o Options, m *metrics) *notifier {
	t := &notifier{kind: kind, recorder: o.Recorder, home: o.Watchers.Reader(clusters.LocalName), metrics: m, report: o.Notify, clock: o.Clock}
	t.lockedState.seen = map[mcreconcile.Request]map[notice]sighting{}
	return t
}

// publish reports the current notices of an object. Earlier notices that are not in the list
// are over.
func (t *notifier) publish(ctx context.Context, who mcreconcile.Request, about *unstructured.Unstructured, notices ...notice) {
	due := t.due(who, notices)
	for _, n := range due.fresh {
		line := log.FromContext(ctx).WithValues("reason", n.reason, "word", n.word, "message", n.message)
		if n.warning() {
			line.Error(nil, "node group has a problem") // The requirements ask for this level (FR2.5, FR7.1).
			t.failed(who, about, n)
		} else {
			line.V(1).Info("node group has values other than the computed ones")
		}
	}
	all := slices.Concat(due.fresh, due.again)
	if due.resolved {
		log.FromContext(ctx).Info("the problem of the node group no longer exists")
		all = append(all, notice{severity: corev1.EventTypeNormal, reason: ReasonResolved, word: WordResolved, message: "the reported problem no longer exists"})
	}
	for _, n := range all {
		regarding, related, prefix := t.regarding(ctx, who, about)
		// client-go (v0.36) counts Events that differ only in their message as repetitions of
		// one. So the word is the action as well.
		t.recorder.Eventf(regarding, related, n.severity, n.reason, n.word, "%s", prefix+n.word+": "+n.message)
	}
}

// forget removes a deleted node group.
func (t *notifier) forget(who mcreconcile.Request) { t.due(who, nil) }

// dueNotices are the notices to report now: for the first time, and again. resolved is set when
// Warnings were reported before, and none is left.
type dueNotices struct {
	fresh, again []notice
	resolved     bool
}

// due counts the notices, and returns those to report now.
func (t *notifier) due(who mcreconcile.Request, notices []notice) dueNotices {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.clock.Now()
	before := t.lockedState.seen[who]
	now := make(map[notice]sighting, len(notices))
	for _, n := range notices {
		now[n] = sighting{times: before[n].times + 1, reported: before[n].reported}
	}
	over := false
	for n, s := range before {
		if _, still := now[n]; !still {
			over = over || n.warning() && !s.reported.IsZero()
			t.metrics.problems.WithLabelValues(t.kind, n.word).Dec()
		}
	}
	due := dueNotices{resolved: over}
	for _, n := range notices {
		s := now[n]
		if s.times == 1 {
			t.metrics.problems.WithLabelValues(t.kind, n.word).Inc()
		}
		switch {
		case s.times == n.patience+1:
			due.fresh = append(due.fresh, n)
		case n.warning() && !s.reported.IsZero() && (over || at.Sub(s.reported) >= repeatAfter):
			due.again = append(due.again, n)
		default:
			due.resolved = due.resolved && (!n.warning() || s.reported.IsZero())
			continue
		}
		due.resolved = due.resolved && !n.warning()
		s.reported = at
		now[n] = s
	}
	if len(now) == 0 {
		delete(t.lockedState.seen, who)
	} else {
		t.lockedState.seen[who] = now
	}
	return due
}

// regarding returns the object of a node group's Event: the group itself. The hub cannot create
// Events in a self-managed cluster. The Event then regards its Cluster; the group is the
// related object, and its name precedes the message.
func (t *notifier) regarding(ctx context.Context, who mcreconcile.Request, about *unstructured.Unstructured) (regarding, related runtime.Object, prefix string) {
	if who.ClusterName == clusters.LocalName {
		return about, nil, ""
	}
	related = &corev1.ObjectReference{APIVersion: about.GetAPIVersion(), Kind: t.kind, Namespace: who.Namespace, Name: who.Name}
	return t.cluster(ctx, who.ClusterName), related, fmt.Sprintf("%s %s: ", t.kind, who.NamespacedName)
}

func (t *notifier) cluster(ctx context.Context, name multicluster.ClusterName) runtime.Object {
	ref, err := clusters.ParseClusterName(name)
	if err != nil {
		return &corev1.ObjectReference{Kind: capa.Cluster.Kind, Name: string(name)}
	}
	if u, err := capa.Get(ctx, t.home, capa.Cluster.WithVersion(capa.CoreVersion), client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}); err == nil {
		return u
	}
	return &corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}
