package instancestate

import (
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
	"github.com/capstan-hub/capstan/internal/truncate"
)

// Reasons of Events on AWSMachines and AWSMachinePools.
const (
	ReasonStateChanged  = "InstanceStateChanged"
	ReasonSpot          = "SpotInterruption"
	ReasonRebalance     = "RebalanceRecommended"
	ReasonMaintenance   = "ScheduledMaintenance"
	ReasonScalingFailed = "ScalingActivityFailed"
	ReasonMalformed     = "MalformedMessage"
	ReasonForeign       = "ForeignEvent"
	ReasonConflicting   = "ConflictingWriter"
	ReasonDeadLetters   = "DeadLettersPresent"
	action              = "FollowInstances"
	// An Event is a write as a label is: more would take a burst's labels a third of
	// their rate.
	calmPerSecond, calmBurst   = 2, 25
	gravePerSecond, graveBurst = 5, 50
	quiet                      = time.Hour
	mostQuiet                  = 1000
)

// teller makes Events of what is new.
type teller struct {
	recorder events.EventRecorder
	metrics  *metrics
	clock    clock.PassiveClock
	// home reads the management cluster.
	home client.Reader
	// calm are the Events of ordinary changes, and grave the others.
	calm, grave *rate.Limiter

	// mu guards told.
	mu sync.Mutex
	// told: what was told of a source, and when: the same is not told again for a while.
	told *lru.Cache
}

func newTeller(recorder events.EventRecorder, m *metrics, c clock.PassiveClock, home client.Reader) *teller {
	return &teller{
		recorder: recorder, metrics: m, clock: c, home: home, told: lru.New(mostQuiet),
		calm: rate.NewLimiter(calmPerSecond, calmBurst), grave: rate.NewLimiter(gravePerSecond, graveBurst),
	}
}

// changed says that an object's label did.
func (t *teller) changed(ctx context.Context, key owner.Key, before seen, c *change, works []work) {
	severity, reason := corev1.EventTypeNormal, ReasonStateChanged
	switch c.record.Kind { //nolint:exhaustive // The rest are changes of state.
	case message.SpotInterruption:
		severity, reason = corev1.EventTypeWarning, ReasonSpot
	case message.Rebalance:
		reason = ReasonRebalance
	case message.ScheduledChange:
		severity, reason = corev1.EventTypeWarning, ReasonMaintenance
	case message.CapacityReservation:
		severity = corev1.EventTypeWarning
	}
	if c.label == message.WordLaunchFailed || c.label == message.WordTerminateFailed {
		severity, reason = corev1.EventTypeWarning, ReasonScalingFailed
	}
	bucket := t.calm
	if severity == corev1.EventTypeWarning {
		bucket = t.grave
	}
	if !bucket.AllowN(t.clock.Now(), 1) {
		t.metrics.suppressed.Inc()
		return
	}
	regarding, prefix := t.regarding(ctx, key, before)
	t.recorder.Eventf(regarding, nil, severity, reason, action, "%s", note("%s%s", prefix, describe(before, c, works)))
}

// describe a change to people.
func describe(before seen, c *change, works []work) string {
	was := before.label
	if was == "" {
		was = "not known"
	}
	said := fmt.Sprintf("%s, was %s; event %s of %s", c.label, was, c.record.ID, c.record.Time.Format(time.RFC3339))
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

// regarding is where an object's Event goes: to itself; of one in a self-managed
// cluster, where nothing can be created, to that Cluster, with its name before the
// message.
func (t *teller) regarding(ctx context.Context, key owner.Key, at seen) (runtime.Object, string) {
	kind := kindOf(key)
	if key.Cluster == "" {
		return &corev1.ObjectReference{
			APIVersion: at.gvk.GroupVersion().String(), Kind: kind.Kind, Namespace: key.Namespace, Name: key.Name,
			UID: at.uid, ResourceVersion: at.resourceVersion,
		}, ""
	}
	prefix := fmt.Sprintf("%s %s/%s: ", kind.Kind, key.Namespace, key.Name)
	ref, err := clusters.ParseClusterName(multicluster.ClusterName(key.Cluster))
	if err != nil {
		return &corev1.ObjectReference{Kind: capa.Cluster.Kind, Name: key.Cluster}, prefix
	}
	if u := clusterOf(ctx, t.home, ref.Namespace, ref.Name); u != nil {
		return u, prefix
	}
	return &corev1.ObjectReference{APIVersion: clusterv1.GroupVersion.String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, prefix
}

// foreign says that a source brought what is of another account or region.
func (t *teller) foreign(_ context.Context, source string, f message.Fact) {
	t.once(source, ReasonForeign, f.Account+"/"+f.Region,
		"events of account %q in region %q are not of the clusters' accounts and regions, or not of this source's accounts, and are passed over; event %s of %s",
		f.Account, f.Region, f.ID, f.InstanceID+f.GroupName)
}

// malformed says that a source brought what cannot be read.
func (t *teller) malformed(source string, why error, sample string) {
	t.once(source, ReasonMalformed, "", "a message cannot be read and goes to the dead letters: %v; it begins with %q", why, sample)
}

// stranger says that somebody else writes labels.
func (t *teller) stranger(source string, key owner.Key, wrote, ours string) {
	t.once(source, ReasonConflicting, "",
		"somebody else writes the label %s: %s %s/%s has %q in the place of %q; switch off the feature gate EventBridgeInstanceState of Cluster API Provider AWS",
		labelOf(key), kindOf(key).Kind, key.Namespace, key.Name, wrote, ours)
}

// deadLetters says that there are some, each time that there were none before.
func (t *teller) deadLetters(source string, n int) {
	t.event(source, ReasonDeadLetters, "%d messages are in the dead-letter queue; look at them, and delete them or have SQS redrive them", n)
}

// once in a while tells the same of a source.
func (t *teller) once(source, reason, what, format string, args ...any) {
	key, now := source+"|"+reason+"|"+what, t.clock.Now()
	t.mu.Lock()
	at, said := t.told.Get(key)
	again := said && now.Sub(at.(time.Time)) < quiet
	if !again {
		t.told.Add(key, now)
	}
	t.mu.Unlock()
	if !again {
		t.event(source, reason, format, args...)
	}
}

func (t *teller) event(source, reason, format string, args ...any) {
	name, ok := parseSource(source)
	if !ok {
		return // It came from no queue.
	}
	t.recorder.Eventf(&corev1.ObjectReference{
		APIVersion: eventingv1.GroupVersion.String(), Kind: eventingv1.EventingBackendKind, Namespace: name.Namespace, Name: name.Name,
	}, nil, corev1.EventTypeWarning, reason, action, "%s", note(format, args...))
}

// maxNote is how many bytes the note of an Event may have.
const maxNote = 1024

// note of an Event, cut at the end of a character.
func note(format string, args ...any) string {
	return truncate.Bytes(fmt.Sprintf(format, args...), maxNote)
}
