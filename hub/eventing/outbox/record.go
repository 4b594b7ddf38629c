package outbox

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RecordAnnotation records, on an object, which backends have settled which of its events.
// Its value is JSON that only the hub writes.
const RecordAnnotation = "capstan.dev/told"

// idLength is how many characters of an id are recorded: 64 bits distinguish the few events
// of one object.
const idLength = 16

// record is the value of RecordAnnotation.
type record struct {
	// To holds, by the UID of an EventingBackend, the ids that are settled there, each
	// cut to idLength.
	To map[types.UID][]string `json:"to,omitempty"`
	// Level that may have been published. It is recorded before its event is published.
	Level *level `json:"level,omitempty"`
	// Credentials that were published, or seen without an event, last.
	Credentials *credentials `json:"credentials,omitempty"`
}

// level is a state whose changes are published.
type level struct {
	// From is the state before; empty if it is not known.
	From  string `json:"from,omitempty"`
	State string `json:"state"`
	// At is since when, as the object showed it then. A way back to the same state over
	// states that are not published is no edge.
	At time.Time `json:"at"`
	// Repeat distinguishes edges to one state within one second, the resolution of the
	// times of objects.
	Repeat int `json:"repeat,omitempty"`
}

func (l level) equal(o level) bool {
	return l.From == o.From && l.State == o.State && l.Repeat == o.Repeat && l.At.Equal(o.At)
}

// credentials of a cluster.
type credentials struct {
	// End is when they expire; WarnAt is when the event about it is published.
	End    time.Time `json:"end"`
	WarnAt time.Time `json:"warnAt"`
	// RotatedAt is when this End was first seen after another; zero for never.
	RotatedAt time.Time `json:"rotatedAt,omitzero"`
}

// recordOf reads the record of an object. A value that is not valid JSON counts as no record.
func recordOf(o client.Object) record {
	var r record
	if err := json.Unmarshal([]byte(o.GetAnnotations()[RecordAnnotation]), &r); err != nil {
		return record{}
	}
	return r
}

func (r record) has(backend types.UID, id string) bool {
	return slices.Contains(r.To[backend], short(id))
}

// String is the annotation's value.
func (r record) String() string {
	raw, err := json.Marshal(r)
	if err != nil { // Cannot happen: strings, numbers and times have a JSON form.
		return ""
	}
	return string(raw)
}

func short(id string) string { return id[:min(len(id), idLength)] }
