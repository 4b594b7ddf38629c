package apps

import (
	"fmt"
	"strings"
	"unicode"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// maxText is the largest text of a cluster that is kept, in bytes. A message of
// helm-controller can contain the whole output of a hook.
const maxText = 512

// generic reads a kind by its condition Ready and status.lastAppliedRevision. Not every kind
// has an observedGeneration; if there is one, it is compared.
func generic(u *unstructured.Unstructured) index.Observation {
	_, has, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return applied(u, has)
}

// kustomization reads a Kustomization, which has an observedGeneration.
func kustomization(u *unstructured.Unstructured) index.Observation { return applied(u, true) }

// applied reads status.lastAppliedRevision.
func applied(u *unstructured.Unstructured, generation bool) index.Observation {
	o := health(u, generation)
	o.Revision = shared(clean(text(u.Object, "status", "lastAppliedRevision")))
	return withRevision(o, "status.lastAppliedRevision is empty")
}

// health reads everything except the revision.
func health(u *unstructured.Unstructured, generation bool) index.Observation {
	o := index.Observation{Found: true}
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	status, reason, message := readyCondition(u.Object)
	pending := generation && observed != u.GetGeneration()
	switch {
	case text(u.Object, "metadata", "deletionTimestamp") != "":
		o.Message = "is being deleted"
	case pending && suspended:
		// A change of the spec, such as the suspension itself, waits until the resume.
		o.Message = fmt.Sprintf("is suspended and has not reconciled generation %d (observed: %d)", u.GetGeneration(), observed)
	case status != metav1.ConditionTrue:
		// kustomize-controller sets Unknown at each reconciliation, helm-controller while it
		// installs or upgrades. If suspended, no controller is at work.
		o.Progressing = status == metav1.ConditionUnknown && !suspended
		o.Reason, o.Message = reason, message
	case pending:
		o.Progressing = true
		o.Message = fmt.Sprintf("has not reconciled generation %d yet (observed: %d)", u.GetGeneration(), observed)
	default:
		o.Ready = true
	}
	return o
}

// withRevision makes an observation without a revision not ready.
func withRevision(o index.Observation, missing string) index.Observation {
	if o.Ready && o.Revision == "" {
		o.Ready, o.Reason, o.Message = false, index.ReasonNoRevision, "is Ready, but "+missing
	}
	return o
}

// readyCondition returns the status of the condition Ready, empty for none, and if it is not True,
// its reason and message.
func readyCondition(object map[string]any) (status metav1.ConditionStatus, reason, message string) {
	field, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions")
	conditions, _ := field.([]any)
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != fluxmeta.ReadyCondition {
			continue
		}
		status := metav1.ConditionStatus(text(condition, "status"))
		if status == metav1.ConditionTrue {
			return status, "", ""
		}
		reason, message = clean(text(condition, "reason")), clean(text(condition, "message"))
		if reason == "" && message == "" {
			message = "is not Ready, and gives no reason"
		}
		return status, reason, message
	}
	return "", "", "has not reported Ready yet"
}

// text of a field; empty if the field is not a string.
func text(object map[string]any, fields ...string) string {
	s, _, _ := unstructured.NestedString(object, fields...)
	return s
}

// clean truncates a text of a cluster, and removes control and format characters, which
// disturb terminals and logs. The result shares no memory with a long original, which would
// stay in memory otherwise.
func clean(s string) string {
	s = truncate.Prefix(s, maxText)
	return strings.Clone(strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)))
}
