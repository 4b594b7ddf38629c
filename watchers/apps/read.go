package apps

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/index"
)

// maxMessage is how much of a foreign message is kept, in bytes.
const maxMessage = 512

// state is what all kinds share of an object's status.
type state struct {
	object   map[string]any
	ready    bool
	message  string
	deleting bool
}

// status reads what all kinds share.
func status(u *unstructured.Unstructured) state {
	s := state{object: u.Object, deleting: u.GetDeletionTimestamp() != nil}
	s.ready, s.message = readyCondition(u.Object)
	if observed, found, err := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); err == nil && found && observed != u.GetGeneration() {
		s.ready, s.message = false, fmt.Sprintf("generation %d is not observed yet", u.GetGeneration())
	}
	if s.deleting {
		s.ready, s.message = false, "is being deleted"
	}
	return s
}

// readyCondition reads the condition Ready, of which the observedGeneration must
// not be behind where it is given.
func readyCondition(object map[string]any) (bool, string) {
	conditions, _, err := unstructured.NestedSlice(object, "status", "conditions")
	if err != nil {
		return false, "status.conditions cannot be read"
	}
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != "Ready" {
			continue
		}
		if condition["status"] == "True" {
			return true, ""
		}
		return false, clean(fmt.Sprintf("%v: %v", condition["reason"], condition["message"]))
	}
	return false, "has no condition Ready yet"
}

// generic reads a kind by its condition Ready and status.lastAppliedRevision.
func generic(s state) index.Observation {
	o := index.Observation{Found: true, Ready: s.ready, Message: s.message, Revision: text(s.object, "status", "lastAppliedRevision")}
	if o.Ready && o.Revision == "" {
		o.Ready, o.Message = false, "is Ready, but has no status.lastAppliedRevision"
	}
	return o
}

// helmRelease reads the newest deployed snapshot of v2, and lastAppliedRevision of
// the versions before.
func helmRelease(s state) index.Observation {
	history, _, err := unstructured.NestedSlice(s.object, "status", "history")
	if err != nil {
		return index.Observation{Found: true, Message: "status.history cannot be read"}
	}
	if applied := text(s.object, "status", "lastAppliedRevision"); applied != "" || len(history) == 0 {
		o := generic(s)
		o.Revision, o.Digest = normalise(o.Revision, "")
		if s.ready && applied == "" {
			o.Message = "is Ready, but has no deployed release in status.history"
		}
		return o
	}
	o := index.Observation{Found: true, Ready: s.ready, Message: s.message}
	// Newest first (api/v2 Snapshots). What was superseded or failed is not what runs.
	for i, h := range history {
		snapshot, ok := h.(map[string]any)
		if !ok {
			continue
		}
		if text(snapshot, "status") != "deployed" {
			if i == 0 && o.Ready {
				o.Ready, o.Message = false, clean(fmt.Sprintf("the newest release is %s", text(snapshot, "status")))
			}
			continue
		}
		o.Revision, o.Digest = normalise(text(snapshot, "chartVersion"), text(snapshot, "ociDigest"))
		break
	}
	if o.Revision == "" {
		o.Ready = false
		if o.Message == "" {
			o.Message = "has no deployed release in status.history"
		}
	}
	return o
}

// ociSuffix is what helm-controller appends to the version of a chart from an OCI
// artifact: the first 12 hex digits of its digest.
var ociSuffix = regexp.MustCompile(`^(.+)\+([0-9a-f]{12})$`)

// normalise splits the digest from a chart version: 6.6.1+0cc9a8446c95 is 6.6.1.
// Build metadata of the chart's own stays: it is part of the version.
func normalise(version, digest string) (string, string) {
	m := ociSuffix.FindStringSubmatch(version)
	if m == nil {
		return clean(version), ""
	}
	_, hex, found := strings.Cut(digest, ":")
	if !found || !strings.HasPrefix(hex, m[2]) {
		return clean(version), ""
	}
	return clean(m[1]), m[2]
}

func text(object map[string]any, fields ...string) string {
	s, _, err := unstructured.NestedString(object, fields...)
	if err != nil {
		return ""
	}
	return s
}

// clean cuts a foreign text and takes out what would upset a terminal or a log.
func clean(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
