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

// maxMessage is how many bytes of a message for people an event carries: an event must
// fit into every broker beside everything else.
const maxMessage = 1024

// Hub that tells.
type Hub struct {
	// Name in the source of events: /hubs/<name>.
	Name string
	// UID that no other hub has, such as that of the management cluster's namespace
	// kube-system.
	UID types.UID
	// SchemaBase is the URL under which the hub serves the schemas of data, with a
	// slash at its end; empty leaves the attribute dataschema out.
	SchemaBase string
}

// news is what a constructor knows of an event.
type news struct {
	kind Kind
	// object's UID, or what stands for one.
	object string
	// transition tells this edge of the object from its others of the same kind.
	transition string
	// attempt of the object's life, from 0.
	attempt   int64
	at        time.Time
	subject   string
	partition string
	data      any
}

// event of the news.
func (h Hub) event(n news) ce.Event {
	entry, known := entries[n.kind]
	if !known {
		panic(fmt.Sprintf("kind %q is not in the catalogue", n.kind))
	}
	data, err := json.Marshal(n.data)
	if err != nil {
		panic(fmt.Sprintf("the data of kind %s is no JSON: %v", n.kind, err)) // Its type is a struct of this package.
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

// id of the news: the same for the same transition, whoever tells of it and when.
func (h Hub) id(n news) string {
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

// Prefixed is the event with another prefix before its kind.
func Prefixed(e ce.Event, prefix string) ce.Event {
	k := KindOf(e)
	if k == "" || prefix == "" || e.Type() == prefix+"."+string(k) {
		return e
	}
	e = e.Clone()
	e.SetType(prefix + "." + string(k))
	return e
}

// PartitionKey of an event; its subject when it has none.
func PartitionKey(e ce.Event) string {
	if key, ok := e.Extensions()[PartitionKeyExtension].(string); ok && key != "" {
		return key
	}
	return e.Subject()
}

// second is a time as the API server keeps it.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// stamp of a time, for a transition.
func stamp(t time.Time) string { return second(t).Format(time.RFC3339) }

// cut shortens a message for people.
func cut(text string) string { return truncate.Bytes(text, maxMessage) }
