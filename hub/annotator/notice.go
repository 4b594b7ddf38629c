package annotator

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
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
)

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

func warn(reason, word, format string, args ...any) notice {
	return notice{severity: corev1.EventTypeWarning, reason: reason, word: word, message: fmt.Sprintf(format, args...)}
}

// notifier creates one Event and one log line for each notice, until the notice is over.
type notifier struct {
	recorder events.EventRecorder
	metrics  *metrics
	kind     string
	// home reads the management cluster.
	home client.Reader
	// report receives failures; may be nil.
	report func(Report)

	mu          sync.Mutex
	lockedState struct {
		// seen: request → notice → how many times in a row.
		seen map[mcreconcile.Request]map[notice]int
	}
}

func newNotifier(kind string, recorder events.EventRecorder, home client.Reader, m *metrics, report func(Report)) *notifier {
	t := &notifier{kind: kind, recorder: recorder, home: home, metrics: m, report: report}
	t.lockedState.seen = map[mcreconcile.Request]map[notice]int{}
	return t
}

// publish reports the current notices of an object. Earlier notices that are not in the list
// are over.
func (t *notifier) publish(ctx context.Context, who mcreconcile.Request, about *unstructured.Unstructured, notices ...notice) {
	for _, n := range t.fresh(who, notices) {
		line := log.FromContext(ctx).WithValues("reason", n.reason, "word", n.word, "message", n.message)
		if n.severity == corev1.EventTypeWarning {
			line.Info("node group has a problem")
			t.failed(who, about, n)
		} else {
			line.V(1).Info("node group has values other than the computed ones")
		}
		regarding, related, prefix := t.regarding(ctx, who, about)
		// client-go (v0.36) counts Events that differ only in their message as repetitions of
		// one. So the word is the action as well.
		t.recorder.Eventf(regarding, related, n.severity, n.reason, n.word, "%s", prefix+n.word+": "+n.message)
	}
}

// forget removes a deleted node group.
func (t *notifier) forget(who mcreconcile.Request) { t.fresh(who, nil) }

// fresh counts the notices, and returns those to report now.
func (t *notifier) fresh(who mcreconcile.Request, notices []notice) []notice {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.lockedState.seen[who]
	now := make(map[notice]int, len(notices))
	var due []notice
	for _, n := range notices {
		now[n] = before[n] + 1
		if now[n] == n.patience+1 {
			due = append(due, n)
		}
		if before[n] == 0 {
			t.metrics.problems.WithLabelValues(t.kind, n.word).Inc()
		}
	}
	for n := range before {
		if now[n] == 0 {
			t.metrics.problems.WithLabelValues(t.kind, n.word).Dec()
		}
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
