package event

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// Extension attributes of the hub's events.
const (
	// PartitionKeyExtension names the cluster or Pipeline.
	PartitionKeyExtension = "partitionkey"
	// SeverityExtension is info, warning or error.
	SeverityExtension = "severity"
)

// maxMessage is the largest size of a message in an event, in bytes. Every broker must
// accept the whole event.
const maxMessage = 1024

// Hub publishes the events.
type Hub struct {
	// Name in the source of events: /hubs/<name>.
	Name string
	// UID is unique among hubs, such as that of the management cluster's namespace
	// kube-system.
	UID types.UID
	// SchemaBase is the URL under which the hub serves the schemas of data, with a
	// slash at its end. When it is empty, events have no attribute dataschema.
	SchemaBase string
}

// details are the input of a constructor for one event.
type details struct {
	kind Kind
	// object is the object's UID, or another unique name.
	object string
	// transition identifies this transition among others of the same object and kind.
	transition string
	// attempt is the number of the retry, from 0.
	attempt   int64
	at        time.Time
	subject   string
	partition string
	data      any
}

// event returns the event of the details.
func (h Hub) event(n details) ce.Event {
	entry, known := entries[n.kind]
	if !known {
		panic(fmt.Sprintf("kind %q is not in the catalogue", n.kind))
	}
	data, err := json.Marshal(n.data)
	if err != nil {
		panic(fmt.Sprintf("the data of kind %s cannot be encoded as JSON: %v", n.kind, err)) // Its type is a struct of this package.
	}
	e := ce.New(ce.CloudEventsVersionV1)
	e.SetID(h.id(n))
	e.SetSource("/hubs/" + h.Name)
	e.SetType(DefaultPrefix + "." + string(n.kind))
	e.SetSubject(n.subject)
	e.SetTime(second(n.at))
	e.SetDataContentType(ce.ApplicationJSON)
	if h.SchemaBase != "" {
		e.SetDataSchema(h.SchemaBase + string(n.kind))
	}
	e.SetExtension(PartitionKeyExtension, n.partition)
	e.SetExtension(SeverityExtension, string(entry.Severity))
	e.DataEncoded = data
	return e
}

// id is the same for the same transition, on every replica and at any time.
func (h Hub) id(n details) string {
	return digest(string(h.UID), n.object, string(n.kind), n.transition, fmt.Sprint(n.attempt))
}

// digest of parts, each with its length before it.
func digest(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		sum.Write(length[:])
		sum.Write([]byte(part))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Prefixed returns the event with another prefix before its kind.
func Prefixed(e ce.Event, prefix string) ce.Event {
	k := KindOf(e)
	if k == "" || prefix == "" || e.Type() == prefix+"."+string(k) {
		return e
	}
	e = e.Clone()
	e.SetType(prefix + "." + string(k))
	return e
}

// PartitionKey returns the partition key of an event; its subject when it has none.
func PartitionKey(e ce.Event) string {
	if key, ok := e.Extensions()[PartitionKeyExtension].(string); ok && key != "" {
		return key
	}
	return e.Subject()
}

// second rounds a time down, as the API server stores it.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// stamp formats a time for a transition.
func stamp(t time.Time) string { return second(t).Format(time.RFC3339) }

// cut shortens a message to maxMessage.
func cut(text string) string { return truncate.Bytes(text, maxMessage) }
