package outbox

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ToldAnnotation of an object says who was told what of it: JSON, the hub's own.
const ToldAnnotation = "capstan.dev/told"

// idLength is how much of an id is recorded: 64 bits tell the few events of one object
// apart.
const idLength = 16

// record is the value of ToldAnnotation.
type record struct {
	// To holds, by the UID of an EventingBackend, the ids that are settled there, each
	// cut to idLength.
	To map[types.UID][]string `json:"to,omitempty"`
	// Level that was told last.
	Level *level `json:"level,omitempty"`
	// Credentials that were told of, or taken as given, last.
	Credentials *credentials `json:"credentials,omitempty"`
}

// level is a state that is told of when it changes.
type level struct {
	// From which state it came; empty for none that is known.
	From  string `json:"from,omitempty"`
	State string `json:"state"`
	// At is since when, as its object said then: what leads back to the state without
	// being told of is no edge.
	At time.Time `json:"at"`
	// Repeat tells apart edges to one state within one second, which is all that the
	// times of objects tell.
	Repeat int `json:"repeat,omitempty"`
}

// credentials of a cluster.
type credentials struct {
	// End, and from when on it is told that they end.
	End    time.Time `json:"end"`
	WarnAt time.Time `json:"warnAt"`
	// RotatedAt is when this end was first seen after another; zero for never.
	RotatedAt time.Time `json:"rotatedAt,omitzero"`
}

// recordOf an object. What somebody has made unreadable counts as nothing told.
func recordOf(o client.Object) record {
	var r record
	if err := json.Unmarshal([]byte(o.GetAnnotations()[ToldAnnotation]), &r); err != nil {
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
	if err != nil { // Texts, numbers and times have a JSON form.
		return ""
	}
	return string(raw)
}

func short(id string) string { return id[:min(len(id), idLength)] }
