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
	"github.com/capstan-hub/capstan/internal/truncate"
)

// Reasons of Events. The first two are the seed's: the node group cannot be annotated
// until somebody changes something, and it could not be this time.
const (
	ReasonFailedUpdate      = "FailedUpdate"
	ReasonReconcileError    = "ReconcileError"
	ReasonInvalidAnnotation = "InvalidCapacityAnnotation"
	ReasonOverridden        = "CapacityOverridden"
)

// Words that open the messages of Events, and stand in capstan_annotator_problems.
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

// notice is something to tell of a node group.
type notice struct {
	// severity is the type of the Event.
	severity     string
	reason, word string
	message      string
	// patience is how many times in a row it is to be seen before it is told: AWS
	// throttles everybody now and then.
	patience int
}

func warn(reason, word, format string, args ...any) notice {
	return notice{severity: corev1.EventTypeWarning, reason: reason, word: word, message: fmt.Sprintf(format, args...)}
}

// teller makes one Event and one line in the log of each notice, until it was gone.
type teller struct {
	recorder events.EventRecorder
	metrics  *metrics
	kind     string
	// home reads the management cluster.
	home client.Reader
	// news are told to it; nil for nobody.
	news func(News)

	mu          sync.Mutex
	lockedState struct {
		// seen: who → notice → how many times in a row.
		seen map[mcreconcile.Request]map[notice]int
	}
}

func newTeller(kind string, recorder events.EventRecorder, home client.Reader, m *metrics, news func(News)) *teller {
	t := &teller{kind: kind, recorder: recorder, home: home, metrics: m, news: news}
	t.lockedState.seen = map[mcreconcile.Request]map[notice]int{}
	return t
}

// tell what is to be said of an object now. Without notices, what was said is over.
func (t *teller) tell(ctx context.Context, who mcreconcile.Request, about *unstructured.Unstructured, notices ...notice) {
	for _, n := range t.fresh(who, notices) {
		line := log.FromContext(ctx).WithValues("reason", n.reason, "word", n.word, "message", n.message)
		if n.severity == corev1.EventTypeWarning {
			line.Info("node group has a problem")
			t.failed(who, about, n)
		} else {
			line.V(1).Info("node group is otherwise than computed")
		}
		regarding, related, prefix := t.regarding(ctx, who, about)
		// client-go (v0.36) takes Events for repetitions of one that differ in their words
		// alone. So the word is the action as well.
		t.recorder.Eventf(regarding, related, n.severity, n.reason, n.word, "%s", cut(prefix+n.word+": "+n.message))
	}
}

// mostNote is how long the note of an Event may be, in bytes, or API servers refuse it.
const mostNote = 1024

// cut a text to what fits an Event.
func cut(note string) string {
	return truncate.Bytes(note, mostNote)
}

// forget a node group that is gone.
func (t *teller) forget(who mcreconcile.Request) { t.fresh(who, nil) }

// fresh counts what is seen, and returns what is to be told of it.
func (t *teller) fresh(who mcreconcile.Request, notices []notice) []notice {
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

// regarding is where the Event of a node group goes: to itself; of one in a
// self-managed cluster, where nothing can be created, to that Cluster, with its name
// before the message and as what is related.
func (t *teller) regarding(ctx context.Context, who mcreconcile.Request, about *unstructured.Unstructured) (regarding, related runtime.Object, prefix string) {
	if who.ClusterName == clusters.LocalName {
		return about, nil, ""
	}
	related = &corev1.ObjectReference{APIVersion: about.GetAPIVersion(), Kind: t.kind, Namespace: who.Namespace, Name: who.Name}
	return t.cluster(ctx, who.ClusterName), related, fmt.Sprintf("%s %s: ", t.kind, who.NamespacedName)
}

func (t *teller) cluster(ctx context.Context, name multicluster.ClusterName) runtime.Object {
	ref, err := clusters.ParseClusterName(name)
	if err != nil {
		return &corev1.ObjectReference{Kind: capa.Cluster.Kind, Name: string(name)}
	}
	if u, err := capa.Get(ctx, t.home, capa.Cluster.WithVersion(capa.CoreVersion), client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}); err == nil {
		return u
	}
	return &corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}
