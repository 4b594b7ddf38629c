package event

import (
	"path"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// DefaultPrefix stands before the kind in the type of an event.
const DefaultPrefix = "dev.capstan"

// Kind of an event: object, operation and version of its data.
type Kind string

// Kinds of events.
const (
	PromotionDetected   Kind = "promotion.detected.v1"
	PromotionRolledBack Kind = "promotion.rolledback.v1"
	PromotionBlocked    Kind = "promotion.blocked.v1"
	PromotionUnblocked  Kind = "promotion.unblocked.v1"
	PromotionVerifying  Kind = "promotion.verifying.v1"
	PromotionOverridden Kind = "promotion.overridden.v1"
	PromotionWaiting    Kind = "promotion.waiting.v1"
	PromotionApproved   Kind = "promotion.approved.v1"
	PromotionStarted    Kind = "promotion.started.v1"
	PromotionStalled    Kind = "promotion.stalled.v1"
	PromotionSucceeded  Kind = "promotion.succeeded.v1"
	PromotionFailed     Kind = "promotion.failed.v1"
	PromotionRejected   Kind = "promotion.rejected.v1"
	PromotionSuperseded Kind = "promotion.superseded.v1"

	ClusterRegistered          Kind = "cluster.registered.v1"
	ClusterReady               Kind = "cluster.ready.v1"
	ClusterDegraded            Kind = "cluster.degraded.v1"
	ClusterUnreachable         Kind = "cluster.unreachable.v1"
	ClusterAuthFailed          Kind = "cluster.authfailed.v1"
	ClusterRecovered           Kind = "cluster.recovered.v1"
	ClusterCredentialsRotated  Kind = "cluster.credentialsrotated.v1"
	ClusterCredentialsExpiring Kind = "cluster.credentialsexpiring.v1"
	ClusterRemoved             Kind = "cluster.removed.v1"

	InstanceStateChanged     Kind = "instance.statechanged.v1"
	InstanceSpotInterruption Kind = "instance.spotinterruption.v1"
	InstanceLifecycleHook    Kind = "instance.lifecyclehook.v1"
	InstanceScheduledChange  Kind = "instance.scheduledchange.v1"

	MachineDeploymentAnnotated        Kind = "machinedeployment.annotated.v1"
	MachineDeploymentAnnotationFailed Kind = "machinedeployment.annotationfailed.v1"

	BackendReady    Kind = "backend.ready.v1"
	BackendNotReady Kind = "backend.notready.v1"
)

// Severity of an event, in its extension of that name.
type Severity string

// Severities.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Entry of the catalogue.
type Entry struct {
	Kind     Kind
	Severity Severity
	// Level events report a state: the newest one of an object replaces the previous
	// ones, and those of a flapping object are published less often. All other events
	// are published one by one.
	Level bool
	// When describes when it is published.
	When string
}

// catalogue of all kinds, in the order of docs/events.md.
var catalogue = []Entry{
	{PromotionDetected, Info, false, "a Promotion was created"},
	{PromotionRolledBack, Warning, false, "the Promotion is a rollback: it promotes an earlier revision again; the reason is failure or request"},
	{PromotionBlocked, Info, false, "a gate of the promotion is closed; until it opens, reason and message are those of the first one"},
	{PromotionUnblocked, Info, false, "all gates of the promotion are open again"},
	{PromotionVerifying, Info, false, "every target runs the revision, which is verified now; the event of the end has the verdict as its reason"},
	{PromotionOverridden, Warning, false, "a user opened a gate of the promotion; the reason is the name of the gate"},
	{PromotionWaiting, Info, false, "a manual promotion waits for an approval"},
	{PromotionApproved, Info, false, "a user approved the promotion"},
	{PromotionStarted, Info, false, "the hub starts the promotion"},
	{PromotionStalled, Warning, false, "the promotion does not advance: it is older than --stall-after, or a user changed its branch; the reason says which"},
	{PromotionSucceeded, Info, false, "every target runs the revision"},
	{PromotionFailed, Error, false, "the promotion failed; it needs a change by a user"},
	{PromotionRejected, Warning, false, "a user closed its pull request"},
	{PromotionSuperseded, Info, false, "a newer promotion replaced it"},

	{ClusterRegistered, Info, false, "the hub connects to a cluster for the first time"},
	{ClusterReady, Info, true, "a cluster answers, and all watched kinds are synced"},
	{ClusterDegraded, Warning, true, "a cluster answers, but with a problem; the reason names it"},
	{ClusterUnreachable, Error, true, "a cluster does not answer"},
	{ClusterAuthFailed, Error, true, "the credentials for a cluster are missing, refused or rejected"},
	{ClusterRecovered, Info, true, "a cluster is Ready again after it was Degraded, Unreachable or AuthFailed"},
	{ClusterCredentialsRotated, Info, false, "the credentials for a cluster have a new expiry time"},
	{ClusterCredentialsExpiring, Warning, false, "the credentials for a cluster expire soon"},
	{ClusterRemoved, Info, true, "the cluster object is deleted or is being deleted"},

	{InstanceStateChanged, Info, false, "the state of an instance or its Auto Scaling group changed"},
	{InstanceSpotInterruption, Warning, false, "AWS is going to interrupt a spot instance"},
	{InstanceLifecycleHook, Info, false, "an instance waits in a lifecycle hook of its group"},
	{InstanceScheduledChange, Warning, false, "AWS announced maintenance of an instance"},

	{MachineDeploymentAnnotated, Info, false, "the hub wrote capacity annotations"},
	{MachineDeploymentAnnotationFailed, Warning, false, "the hub could not find out the capacity"},

	{BackendReady, Info, true, "an EventingBackend is ready; published to the others"},
	{BackendNotReady, Warning, true, "an EventingBackend is not ready; published to the others"},
}

var entries = func() map[Kind]Entry {
	m := make(map[Kind]Entry, len(catalogue))
	for _, entry := range catalogue {
		m[entry.Kind] = entry
	}
	return m
}()

// Catalogue returns all kinds. The caller must not change them.
func Catalogue() []Entry { return catalogue }

// EntryOf returns the entry of a kind; false when the catalogue has no such kind.
func EntryOf(k Kind) (Entry, bool) {
	entry, known := entries[k]
	return entry, known
}

// kindSegments is the number of parts of a kind: object, operation, version.
const kindSegments = 3

// KindOf returns the kind of an event with any prefix; empty when it is not in the catalogue.
func KindOf(e ce.Event) Kind {
	parts := strings.Split(e.Type(), ".")
	if len(parts) < kindSegments {
		return ""
	}
	k := Kind(strings.Join(parts[len(parts)-kindSegments:], "."))
	if _, known := entries[k]; !known {
		return ""
	}
	return k
}

// Matches reports whether one of the patterns (such as *, promotion.* and
// cluster.unreachable.v1) matches the kind. A malformed pattern matches none.
func (k Kind) Matches(patterns []string) bool {
	for _, pattern := range patterns {
		if fits, err := path.Match(pattern, string(k)); err == nil && fits {
			return true
		}
	}
	return false
}
