package instancestate

import (
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// work is a fact that is to be told on an object.
type work struct {
	arrival
	fact    message.Fact
	tracker *tracker
	// repair has the label be what the guard says, without a new fact.
	repair bool
}

// seen is an object as it was last read or written.
type seen struct {
	gvk             schema.GroupVersionKind
	uid             types.UID
	resourceVersion string
	label           string
	annotations     map[string]string
	cluster         string
	owners          []metav1.OwnerReference
	deleting        bool
}

func seenOf(gvk schema.GroupVersionKind, o metav1.Object, key owner.Key) seen {
	return seen{
		gvk: gvk, uid: o.GetUID(), resourceVersion: o.GetResourceVersion(),
		label: o.GetLabels()[labelOf(key)], annotations: o.GetAnnotations(), cluster: o.GetLabels()[clusterv1.ClusterNameLabel],
		owners: o.GetOwnerReferences(), deleting: o.GetDeletionTimestamp() != nil,
	}
}

// instance that an AWSMachine's label tells of; empty when that is not known.
func (at seen) instance() string {
	i, err := guard.ParseInstance(at.annotations[AnnotationGuard])
	if err != nil {
		return ""
	}
	return i.ID
}

// history is what is merged into a label: a guard.Instance or a guard.Group.
type history interface {
	merge(message.Fact) (history, bool)
	current() (guard.Record, bool)
	String() string
}

type instance struct{ guard.Instance }

func (i instance) merge(f message.Fact) (history, bool) {
	merged, changed := i.Merge(f)
	return instance{merged}, changed
}

func (i instance) current() (guard.Record, bool) { return i.Current() }

type group struct{ guard.Group }

func (g group) merge(f message.Fact) (history, bool) {
	merged, changed := g.Merge(f)
	return group{merged}, changed
}

func (g group) current() (guard.Record, bool) { return g.Current() }

// historyOf an object. What somebody has made unreadable counts as nothing known: the
// next fact makes it whole.
func historyOf(key owner.Key, annotations map[string]string) (history, error) {
	if key.Pool {
		g, err := guard.ParseGroup(annotations[AnnotationGuard])
		return group{g}, err
	}
	i, err := guard.ParseInstance(annotations[AnnotationGuard])
	return instance{i}, err
}

// change of an object's metadata.
type change struct {
	label, guard, event string
	// record that the label shows, and the event behind it.
	record guard.Record
	behind EventBridgeEvent
}

// merge works into what an object is; nil when nothing changes. The error is of an
// annotation that could not be read; it is overcome.
func merge(key owner.Key, at seen, works []work) (*change, error) {
	known, err := historyOf(key, at.annotations)
	before, had := known.current()
	changed, repair := err != nil, false
	for _, w := range works {
		if w.repair {
			repair = true
			continue
		}
		next, news := known.merge(w.fact)
		known, changed = next, changed || news
	}
	record, has := known.current()
	repairs := repair && at.label != record.Word
	if !has || !changed && !repairs {
		return nil, err
	}
	c := &change{label: record.Word, guard: known.String(), event: at.annotations[AnnotationEvent], record: record}
	if had && before == record {
		return c, err
	}
	c.behind = remembered(record)
	for _, w := range works {
		if f := w.fact; f.ID == record.ID && f.Kind == record.Kind && f.Time.Equal(record.Time) && f.Word == record.Word {
			c.behind = w.event.of(f.InstanceID)
		}
	}
	raw, jsonErr := json.Marshal(c.behind)
	if jsonErr != nil { // A detail that is no JSON cannot have been decoded.
		return nil, jsonErr
	}
	c.event = string(raw)
	return c, err
}

// patch is the merge patch that brings a change to the object that was seen, and to no
// other state of it.
func (c *change) patch(key owner.Key, at seen) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": at.resourceVersion,
		"labels":          map[string]any{labelOf(key): c.label},
		"annotations":     map[string]any{AnnotationGuard: c.guard, AnnotationEvent: c.event},
	}})
}

// applied is what an object is after a change, if the API server's answer is not to be
// had.
func (c *change) applied(at seen, resourceVersion string) seen {
	at.resourceVersion, at.label = resourceVersion, c.label
	at.annotations = maps.Clone(at.annotations)
	if at.annotations == nil {
		at.annotations = map[string]string{}
	}
	at.annotations[AnnotationGuard], at.annotations[AnnotationEvent] = c.guard, c.event
	return at
}
