package apps

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/index"
)

// Values of Argo CD's status (argo-cd v3.3.17: docs/operator-manual/health.md, SyncStatusCode of
// pkg/apis/application/v1alpha1/types.go, and the phases of an operation of its sync engine). Its
// Go module has hundreds of dependencies, which some names do not justify.
const (
	argoHealthy     = "Healthy"
	argoProgressing = "Progressing"
	argoSynced      = "Synced"
	argoRunning     = "Running"
	argoTerminating = "Terminating"
	argoFailed      = "Failed"
	argoError       = "Error"
)

// applicationReads are the fields that application reads.
var applicationReads = []string{
	"metadata.generation", "metadata.deletionTimestamp", "spec.sources",
	"status.health", "status.sync.status", "status.sync.revision", "status.sync.revisions",
	"status.operationState.phase", "status.operationState.message", "status.conditions", "status.history",
}

// application reads an Application of Argo CD. It has no condition Ready and no
// observedGeneration: it is ready if it is Synced and Healthy, and its last operation neither
// runs nor failed.
func application(u *unstructured.Unstructured) index.Observation {
	o := index.Observation{Found: true, Revision: shared(clean(deployedRevision(u.Object)))}
	health, sync := text(u.Object, "status", "health", "status"), text(u.Object, "status", "sync", "status")
	operation := text(u.Object, "status", "operationState", "phase")
	switch {
	case text(u.Object, "metadata", "deletionTimestamp") != "":
		o.Message = "is being deleted"
	case health == "" && sync == "":
		o.Message = "has not reported its health and sync status yet"
	case operation == argoRunning || operation == argoTerminating:
		o.Progressing, o.Reason = true, "Sync"+operation
		o.Message = operationMessage(u.Object, "an operation is "+operation)
	case operation == argoFailed || operation == argoError:
		o.Reason = "Sync" + operation
		o.Message = operationMessage(u.Object, "its last operation ended as "+operation)
	case sync != argoSynced:
		o.Reason = clean(orUnknown(sync))
		o.Message = "its sync status is " + o.Reason
		if problem := applicationProblem(u.Object); problem != "" {
			o.Message = problem
		}
	case health != argoHealthy:
		o.Reason, o.Progressing = clean(orUnknown(health)), health == argoProgressing
		if o.Message = clean(text(u.Object, "status", "health", "message")); o.Message == "" {
			o.Message = "its health is " + o.Reason
		}
	default:
		o.Ready = true
	}
	return withRevision(o, "status.sync.revision is empty")
}

// deployedRevision returns the revision that runs. status.sync.revision is the one that the cluster
// was compared with: it runs if it is Synced. Otherwise the last entry of status.history runs.
func deployedRevision(object map[string]any) string {
	if text(object, "status", "sync", "status") == argoSynced {
		return revisionOf(object, field(object, "status", "sync"))
	}
	history, _, _ := unstructured.NestedFieldNoCopy(object, "status", "history")
	entries, _ := history.([]any)
	if len(entries) == 0 {
		return ""
	}
	last, _ := entries[len(entries)-1].(map[string]any) // The oldest is first.
	return revisionOf(object, last)
}

// revisionOf returns the revision of one source. Of several sources it is the version of the
// only chart. Without a chart, or with several, it is all different revisions, with commas.
func revisionOf(object, of map[string]any) string {
	list, _ := of["revisions"].([]any)
	if len(list) == 0 {
		return text(of, "revision")
	}
	specified, _, _ := unstructured.NestedFieldNoCopy(object, "spec", "sources")
	sources, _ := specified.([]any)
	var charts, all []string
	for i, entry := range list {
		revision, _ := entry.(string)
		if i < len(sources) && len(sources) == len(list) {
			if source, ok := sources[i].(map[string]any); ok && text(source, "chart") != "" {
				charts = append(charts, revision)
			}
		}
		if revision != "" && !slices.Contains(all, revision) {
			all = append(all, revision)
		}
	}
	if len(charts) == 1 {
		return charts[0]
	}
	return strings.Join(all, ",")
}

// applicationProblem returns the message of the first condition that is an error, such as
// ComparisonError. Conditions of Argo CD have a type and a message.
func applicationProblem(object map[string]any) string {
	list, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions")
	conditions, _ := list.([]any)
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && strings.HasSuffix(text(condition, "type"), "Error") {
			return clean(text(condition, "type") + ": " + text(condition, "message"))
		}
	}
	return ""
}

// operationMessage returns the message of the last operation, or another one if it has none.
func operationMessage(object map[string]any, otherwise string) string {
	if message := clean(text(object, "status", "operationState", "message")); message != "" {
		return message
	}
	return otherwise
}

func orUnknown(s string) string {
	if s == "" {
		return "Unknown"
	}
	return s
}

// field returns a map of an object; nil if there is none.
func field(object map[string]any, fields ...string) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, fields...)
	found, _ := value.(map[string]any)
	return found
}
