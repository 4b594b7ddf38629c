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

// work is a fact to merge into an object.
type work struct {
	arrival
	fact    message.Fact
	tracker *tracker
	// repair restores the label from the guard, without a new fact.
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

// instance returns the id of the instance that an AWSMachine's label shows; empty when it
// is not known.
func (at seen) instance() string {
	i, err := guard.ParseInstance(at.annotations[AnnotationGuard])
	if err != nil {
		return ""
	}
	return i.ID
}

// history holds the facts that were merged into a label: a guard.Instance or guard.Group.
type history interface {
	merge(message.Fact) (history, bool)
	// current returns the record that the label shows. There may be none although facts are Known:
	// then there must be no label.
	current() (guard.Record, bool)
	Known() bool
	String() string
}

type instance struct{ guard.Instance }

func (i instance) merge(f message.Fact) (history, bool) {
	merged, changed := i.Merge(f)
	return instance{merged}, changed
}

func (i instance) current() (guard.Record, bool) { return i.Current() }

type group struct {
	guard.Group
	// learns is set for a pool whose object does not name its group.
	learns bool
}

func (g group) merge(f message.Fact) (history, bool) {
	merged, changed := g.Merge(f)
	if g.learns {
		var taught bool
		merged, taught = merged.Learn(f)
		changed = changed || taught
	}
	return group{merged, g.learns}, changed
}

func (g group) current() (guard.Record, bool) { return g.Current() }

// historyOf returns the history of an object. An annotation that another client has made
// unreadable counts as empty: the next fact replaces it.
func historyOf(key owner.Key, annotations map[string]string) (history, error) {
	if key.Pool() {
		g, err := guard.ParseGroup(annotations[AnnotationGuard])
		return group{g, key.Learns()}, err
	}
	i, err := guard.ParseInstance(annotations[AnnotationGuard])
	return instance{i}, err
}

// change of an object's metadata.
type change struct {
	// label and event are removed when they are empty.
	label, guard, event string
	// declaration is the value of AnnotationHandlers; empty for none.
	declaration string
	// record is the record that the label shows, zero when there is none; behind is its event.
	record guard.Record
	behind EventBridgeEvent
	// replaced is set when that event was not behind the label before; from is then its origin, if it is known.
	replaced bool
	from     origin
	// fresh is set when the event behind the label is one of the works.
	fresh bool
	// merged are the works whose facts were not known before, nor older than another of their kind.
	merged []work
}

// ended returns the work that ended a scheduled change, if the label has changed for that reason; else nil.
func (c *change) ended() *work {
	if c.fresh {
		return nil
	}
	for i := range c.merged {
		if c.merged[i].fact.Over {
			return &c.merged[i]
		}
	}
	return nil
}

// isBehind reports whether a record is that of the work's fact.
func (w *work) isBehind(r guard.Record) bool {
	f := w.fact
	return !w.repair && f.ID == r.ID && f.Kind == r.Kind && f.Time.Equal(r.Time) && f.Label == r.Label && f.Over == r.Over
}

// merge merges works into the state of an object. It returns nil when nothing changes.
// The error reports an annotation that could not be read; the change replaces it.
func merge(key owner.Key, at seen, works []work) (*change, error) {
	known, err := historyOf(key, at.annotations)
	before, had := known.current()
	changed, repair := err != nil, false
	var merged []work
	for _, w := range works {
		if w.repair {
			repair = true
			continue
		}
		next, isNew := known.merge(w.fact)
		known, changed = next, changed || isNew
		if isNew {
			merged = append(merged, w)
		}
	}
	record, has := known.current()
	repairs := repair && at.label != record.Label
	if !known.Known() || !changed && !repairs {
		return nil, err
	}
	c := &change{label: record.Label, guard: known.String(), event: at.annotations[AnnotationEvent], record: record, merged: merged}
	if had && before == record {
		return c, err
	}
	c.replaced = true
	if !has {
		c.event = ""
		return c, err
	}
	c.behind = remembered(record)
	for _, w := range works {
		if w.isBehind(record) {
			c.behind, c.from, c.fresh = w.event.of(w.fact.InstanceID), w.from, true
		}
	}
	raw, jsonErr := json.Marshal(c.behind)
	if jsonErr != nil { // Not expected: the detail was decoded from JSON.
		return nil, jsonErr
	}
	c.event = string(raw)
	return c, err
}

// patch returns the merge patch of a change. Its resourceVersion makes it apply only to
// the state that was read.
func (c *change) patch(key owner.Key, at seen) ([]byte, error) {
	annotations := map[string]any{AnnotationGuard: c.guard, AnnotationEvent: orNull(c.event)}
	if c.replaced {
		annotations[AnnotationSource] = nil
		if c.from.source != "" {
			annotations[AnnotationSource] = c.from.source
		}
	}
	switch {
	case c.declaration != "":
		annotations[AnnotationHandlers] = c.declaration
	case at.annotations[AnnotationHandlers] != "":
		annotations[AnnotationHandlers] = nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": at.resourceVersion,
		"labels":          map[string]any{labelOf(key): orNull(c.label)},
		"annotations":     annotations,
	}})
}

// orNull returns a value for a merge patch: null, which removes the key, instead of an empty text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// applied returns the state of an object after a change, with the resourceVersion of the
// API server's response.
func (c *change) applied(at seen, resourceVersion string) seen {
	at.resourceVersion, at.label = resourceVersion, c.label
	at.annotations = maps.Clone(at.annotations)
	if at.annotations == nil {
		at.annotations = map[string]string{}
	}
	at.annotations[AnnotationGuard], at.annotations[AnnotationEvent] = c.guard, c.event
	if c.event == "" {
		delete(at.annotations, AnnotationEvent)
	}
	delete(at.annotations, AnnotationHandlers)
	if c.declaration != "" {
		at.annotations[AnnotationHandlers] = c.declaration
	}
	return at
}
