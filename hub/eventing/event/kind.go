package event

import (
	"path"
	"strings"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

// DefaultPrefix stands before the kind in the type of an event.
const DefaultPrefix = "dev.capstan"

// Kind of news: object, operation and version of its data.
type Kind string

// Kinds of news.
const (
	PromotionDetected   Kind = "promotion.detected.v1"
	PromotionWaiting    Kind = "promotion.waiting.v1"
	PromotionApproved   Kind = "promotion.approved.v1"
	PromotionStarted    Kind = "promotion.started.v1"
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
	// Level news tell of a state: the newest of an object makes those before it
	// worthless, and a flapping object may be told of less often. All other news are
	// told one by one.
	Level bool
	// When it is told.
	When string
}

// catalogue of all kinds, in the order of docs/events.md.
var catalogue = []Entry{
	{PromotionDetected, Info, false, "a promotion was decided upon and recorded"},
	{PromotionWaiting, Info, false, "a manual promotion waits for its approval"},
	{PromotionApproved, Info, false, "somebody approved it"},
	{PromotionStarted, Info, false, "it begins to be carried out"},
	{PromotionSucceeded, Info, false, "every target runs the revision"},
	{PromotionFailed, Error, false, "it cannot be carried out until somebody changes something"},
	{PromotionRejected, Warning, false, "a person closed its pull request"},
	{PromotionSuperseded, Info, false, "something newer took its place"},

	{ClusterRegistered, Info, false, "the hub was asked to connect to a cluster for the first time"},
	{ClusterReady, Info, true, "a cluster answers, and every watched kind is synced"},
	{ClusterDegraded, Warning, true, "a cluster answers, with something amiss"},
	{ClusterUnreachable, Error, true, "a cluster does not answer"},
	{ClusterAuthFailed, Error, true, "the credentials for a cluster are missing, refused or rejected"},
	{ClusterRecovered, Info, true, "a cluster is Ready again after it was Degraded, Unreachable or AuthFailed"},
	{ClusterCredentialsRotated, Info, false, "the credentials for a cluster have another end"},
	{ClusterCredentialsExpiring, Warning, false, "the credentials for a cluster end soon"},
	{ClusterRemoved, Info, true, "the cluster object is gone or going"},

	{InstanceStateChanged, Info, false, "an instance or its group changed its state"},
	{InstanceSpotInterruption, Warning, false, "a spot instance is about to be taken back"},
	{InstanceLifecycleHook, Info, false, "an instance waits in a lifecycle hook of its group"},
	{InstanceScheduledChange, Warning, false, "AWS announced maintenance of an instance"},

	{MachineDeploymentAnnotated, Info, false, "capacity annotations were written"},
	{MachineDeploymentAnnotationFailed, Warning, false, "the capacity could not be told"},

	{BackendReady, Info, true, "an event backend is ready; told to the other ones"},
	{BackendNotReady, Warning, true, "an event backend is not ready; told to the other ones"},
}

var entries = func() map[Kind]Entry {
	m := make(map[Kind]Entry, len(catalogue))
	for _, entry := range catalogue {
		m[entry.Kind] = entry
	}
	return m
}()

// Catalogue of all kinds, which the caller may not change.
func Catalogue() []Entry { return catalogue }

// EntryOf a kind; false when the catalogue has none such.
func EntryOf(k Kind) (Entry, bool) {
	entry, known := entries[k]
	return entry, known
}

// kindSegments are the dots' parts of a kind: object, operation, version.
const kindSegments = 3

// KindOf an event, whatever its prefix; empty when it is none of the catalogue's.
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

// Matches tells whether one of the patterns (such as *, promotion.* and
// cluster.unreachable.v1) fits the kind; a malformed one fits none.
func (k Kind) Matches(patterns []string) bool {
	for _, pattern := range patterns {
		if fits, err := path.Match(pattern, string(k)); err == nil && fits {
			return true
		}
	}
	return false
}
