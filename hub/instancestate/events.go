package instancestate

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// Reasons of Events on AWSMachines and pools.
const (
	ReasonStateChanged = "InstanceStateChanged"
	ReasonSpot         = "SpotInterruption"
	ReasonRebalance    = "RebalanceRecommended"
	ReasonMaintenance  = "ScheduledMaintenance"
	// ReasonMaintenanceEnded: a scheduled change is over, and the label no longer shows it.
	ReasonMaintenanceEnded = "MaintenanceEnded"
	ReasonScalingFailed    = "ScalingActivityFailed"
	ReasonMalformed        = "MalformedMessage"
	ReasonForeign          = "ForeignEvent"
	ReasonConflicting      = "ConflictingWriter"
	ReasonDeadLetters      = "DeadLettersPresent"
	// ReasonHandlerTimeout: a handler in another process did not report an event in time.
	ReasonHandlerTimeout = "HandlerTimeout"
	// ReasonRemediationForbidden: the hub may not annotate the Machines of a cluster.
	ReasonRemediationForbidden = "RemediationForbidden"
	action                     = "FollowInstances"
	// An Event costs one write, like a label. Without a limit, a burst of labels would be
	// written at two thirds of its rate.
	normalPerSecond, normalBurst   = 2, 25
	warningPerSecond, warningBurst = 5, 50
	// repeatAfter is when the same Event of a source is written again.
	repeatAfter = time.Hour
	maxRecorded = 1000
)

// eventRecorder writes Kubernetes Events.
type eventRecorder struct {
	recorder events.EventRecorder
	metrics  *metrics
	clock    clock.PassiveClock
	// home reads the management cluster.
	home client.Reader
	// normal and warning limit the rates of Events of these types.
	normal, warning *rate.Limiter

	// mu guards recorded.
	mu sync.Mutex
	// recorded: Events of a source → when they were last written.
	recorded *lru.Cache
}

func newEventRecorder(recorder events.EventRecorder, m *metrics, c clock.PassiveClock, home client.Reader) *eventRecorder {
	return &eventRecorder{
		recorder: recorder, metrics: m, clock: c, home: home, recorded: lru.New(maxRecorded),
		normal: rate.NewLimiter(normalPerSecond, normalBurst), warning: rate.NewLimiter(warningPerSecond, warningBurst),
	}
}

// changed writes the Event of a changed label.
func (t *eventRecorder) changed(ctx context.Context, key owner.Key, before seen, c *change, works []work) {
	severity, reason := corev1.EventTypeNormal, ReasonStateChanged
	switch c.record.Kind { //nolint:exhaustive // The other kinds are changes of state.
	case message.SpotInterruption:
		severity, reason = corev1.EventTypeWarning, ReasonSpot
	case message.Rebalance:
		reason = ReasonRebalance
	case message.ScheduledChange:
		severity, reason = corev1.EventTypeWarning, ReasonMaintenance
	case message.CapacityReservation:
		severity = corev1.EventTypeWarning
	}
	if ended := c.ended(); ended != nil {
		t.about(ctx, key, before, corev1.EventTypeNormal, ReasonMaintenanceEnded, func() string { return describeEnd(before, c, ended) })
		return
	}
	if c.label == message.LabelLaunchFailed || c.label == message.LabelTerminateFailed {
		severity, reason = corev1.EventTypeWarning, ReasonScalingFailed
	}
	t.about(ctx, key, before, severity, reason, func() string { return describe(before, c, works) })
}

// late writes the Event that handlers in other processes did not report an event in time.
func (t *eventRecorder) late(ctx context.Context, key owner.Key, at seen, d Declaration, handlers string) {
	t.about(ctx, key, at, corev1.EventTypeWarning, ReasonHandlerTimeout, func() string {
		return fmt.Sprintf("no report of event %s by %s from the handlers %s, and its message is deleted; check the processes that set the annotations %sNAME, or correct handlers of the source",
			d.Event, d.Until.Format(time.RFC3339), handlers, processedPrefix)
	})
}

// forbidden writes the Event that the hub may not annotate the Machines of a cluster, once for each cluster within repeatAfter.
func (t *eventRecorder) forbidden(ctx context.Context, key owner.Key, at seen, machine string, why error) {
	if t.again(ReasonRemediationForbidden + "|" + key.Cluster) {
		return
	}
	t.about(ctx, key, at, corev1.EventTypeWarning, ReasonRemediationForbidden, func() string {
		return fmt.Sprintf("Machine %s/%s is not annotated for remediation, and the message of the event is retried until it is a dead letter: %v; give the hub the verb patch on machines (in a self-managed cluster: config/rbac/self-managed), or remove remediate of the source",
			key.Namespace, machine, why)
	})
}

// about writes an Event about an object, unless the rate limit of its type is reached.
func (t *eventRecorder) about(ctx context.Context, key owner.Key, at seen, severity, reason string, say func() string) {
	bucket := t.normal
	if severity == corev1.EventTypeWarning {
		bucket = t.warning
	}
	if !bucket.AllowN(t.clock.Now(), 1) {
		t.metrics.suppressed.Inc()
		return
	}
	regarding, prefix := t.regarding(ctx, key, at)
	t.recorder.Eventf(regarding, nil, severity, reason, action, "%s%s", prefix, say())
}

// moved returns the label of a change and the one before.
func moved(before seen, c *change) string {
	return fmt.Sprintf("Now %s (previously %s)", cmp.Or(c.label, "without a label"), cmp.Or(before.label, "unknown"))
}

// describeEnd returns the message of a change by the end of a scheduled change.
func describeEnd(before seen, c *change, ended *work) string {
	f := ended.fact
	said := fmt.Sprintf("%s: the maintenance of instance %s is over; event %s of %s", moved(before, c), f.InstanceID, f.ID, f.Time.Format(time.RFC3339))
	if code := f.Details["eventTypeCode"]; code != "" {
		said += ": " + code
	}
	return said
}

// describe returns the message of a change.
func describe(before seen, c *change, works []work) string {
	said := moved(before, c)
	if c.record.ID == "" {
		return said
	}
	said += fmt.Sprintf("; event %s of %s", c.record.ID, c.record.Time.Format(time.RFC3339))
	for _, w := range works {
		if w.fact.ID != c.record.ID || w.repair {
			continue
		}
		if w.fact.InstanceID != "" {
			said += ", instance " + w.fact.InstanceID
		}
		if !w.fact.Deadline.IsZero() {
			said += ", due " + w.fact.Deadline.Format(time.RFC3339)
		}
		for _, detail := range []string{"eventTypeCode", "statusMessage"} {
			if more := w.fact.Details[detail]; more != "" {
				said += ": " + more
			}
		}
		break
	}
	return said
}

// regarding returns the object that an Event is about, and a prefix of its message. For an
// object in a self-managed cluster, where the hub cannot create Events, it is the Cluster
// in the management cluster, and the prefix names the object.
func (t *eventRecorder) regarding(ctx context.Context, key owner.Key, at seen) (runtime.Object, string) {
	if key.Cluster == "" {
		return &corev1.ObjectReference{
			APIVersion: at.gvk.GroupVersion().String(), Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name,
			UID: at.uid, ResourceVersion: at.resourceVersion,
		}, ""
	}
	prefix := fmt.Sprintf("%s %s/%s: ", key.Kind.Kind, key.Namespace, key.Name)
	ref, err := clusters.ParseClusterName(multicluster.ClusterName(key.Cluster))
	if err != nil {
		return &corev1.ObjectReference{Kind: capa.Cluster.Kind, Name: key.Cluster}, prefix
	}
	if u, err := clusterOf(ctx, t.home, ref.Namespace, ref.Name); err == nil && u != nil {
		return u, prefix
	}
	return &corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, prefix
}

// foreign reports that a source delivered an event of another account or region.
func (t *eventRecorder) foreign(_ context.Context, source string, f message.Fact) {
	t.once(source, ReasonForeign, f.Account+"/"+f.Region,
		"events of account %q in region %q are ignored: no cluster with the instance is in this account and region, or the account is not in accounts of the source; the first is event %s of %s; correct accounts, or find the sender",
		f.Account, f.Region, f.ID, f.InstanceID+f.GroupName)
}

// malformed reports that a source delivered a message that cannot be decoded.
func (t *eventRecorder) malformed(source string, why error, sample string) {
	t.once(source, ReasonMalformed, "", "a message cannot be read, and goes to the dead-letter queue if there is one: %v; it begins with %q; find its sender", why, sample)
}

// conflictingWriter reports that another client writes labels.
func (t *eventRecorder) conflictingWriter(source string, key owner.Key, wrote, ours string) {
	t.once(source, ReasonConflicting, "",
		"another client writes the label %s: %s %s/%s has %q instead of %q; disable the feature gate EventBridgeInstanceState of Cluster API Provider AWS",
		labelOf(key), key.Kind.Kind, key.Namespace, key.Name, wrote, ours)
}

// deadLetters reports messages in the dead-letter queue, each time that it was empty before.
func (t *eventRecorder) deadLetters(source string, n int) {
	t.event(source, ReasonDeadLetters, "the dead-letter queue has %d messages; read them, and delete them or redrive them to the queue", n)
}

// once writes an Event of a source, unless the same was written within repeatAfter.
func (t *eventRecorder) once(source, reason, what, format string, args ...any) {
	if !t.again(source + "|" + reason + "|" + what) {
		t.event(source, reason, format, args...)
	}
}

// again reports whether an Event was recorded within repeatAfter; else it is recorded now.
func (t *eventRecorder) again(key string) bool {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, said := t.recorded.Get(key); said && now.Sub(at.(time.Time)) < repeatAfter {
		return true
	}
	t.recorded.Add(key, now)
	return false
}

func (t *eventRecorder) event(source, reason, format string, args ...any) {
	name, ok := parseSource(source)
	if !ok {
		return // No queue delivered it.
	}
	t.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: eventingv1.GroupVersion.String(), Kind: eventingv1.EventingBackendKind, Namespace: name.Namespace, Name: name.Name,
	}, nil, corev1.EventTypeWarning, reason, action, format, args...)
}
