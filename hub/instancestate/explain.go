package instancestate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// LabelledKinds returns the kinds that Explain explains.
func LabelledKinds() []schema.GroupKind { return labelled() }

// Explanation says which label an object has, and why.
type Explanation struct {
	// Cluster of the object as namespace/name; empty when there is none.
	Cluster string
	// LabelKey and Label of the object; Label is empty when it has none.
	LabelKey, Label string
	// Instances of the object, and Group of a pool: its ARN or, while that is not known, its name.
	Instances []string
	Group     string
	// Event behind the label; nil when there is none or it is not known.
	Event *EventBridgeEvent
	// Source that delivered it, as namespace/name; empty when it is not known.
	Source string
	// Held are the records that the label is made of, first the one that it shows.
	Held []guard.Held
	// Region and Account of the instances; empty when not known. RegionBy and AccountBy say which
	// object names them, or why they are not known.
	Region, RegionBy, Account, AccountBy string
	// Sources of events, by name. NoSources is why not all of them are known; empty when they are.
	Sources   []SourceOf
	NoSources string
	// Missing are the handlers in other processes that have not reported the event, and Until is
	// how long it waits for them.
	Missing []string
	Until   time.Time
	// Notes are further facts, one sentence each.
	Notes []string
	// Why the object has its label, or has none; one sentence.
	Why string
	// Effects are what the hub would do with ExplainOptions.Event, one sentence each.
	Effects []string
}

// SourceOf is a source, as an object sees it.
type SourceOf struct {
	// Name of the EventingBackend as namespace/name.
	Name string
	// Delivers reports whether events of the object can come from it, by its region and accounts.
	Delivers bool
	// Why it does or does not.
	Why string
	// Ready reports whether its queue is read. Message is why not.
	Ready   bool
	Message string
}

// ExplainReader reads Kubernetes objects with the rights of a user, and knows which versions the
// API server serves.
type ExplainReader interface {
	client.Reader
	RESTMapper() meta.RESTMapper
}

// ExplainOptions are the options of Explain.
type ExplainOptions struct {
	// HubNamespace is where the EventingBackends are read, if the user may not list those of all
	// namespaces.
	HubNamespace string
	// Event is the body of a message whose effect is explained; nil for none.
	Event []byte
	// Now is the time of the explanation.
	Now time.Time
}

// Explain returns which label an AWSMachine or AWSMachinePool has, and why, by the rules that the
// Labeler follows. It reads only Kubernetes objects of the cluster of the object, and calls neither
// AWS nor another cluster. An object that cannot be read is named in the Explanation.
// Errors: none of a reader; they are part of the Explanation.
func Explain(ctx context.Context, c ExplainReader, u *unstructured.Unstructured, o ExplainOptions) Explanation {
	x := &explaining{Reader: served{c}, options: o, whole: u, annotations: u.GetAnnotations()}
	x.readSources(ctx)
	name := multicluster.ClusterName("")
	if x.member {
		name = "member" // Any name but that of the management cluster: identities do not apply.
	}
	x.object = objectOf(name, u)
	x.readPlace(ctx)
	x.matchSources()
	x.known, x.unreadable = historyOf(x.object.Key, x.annotations)
	x.describe(ctx)
	x.Why = x.why()
	if o.Event != nil {
		x.Effects = x.consider(ctx, o.Event)
	}
	return x.Explanation
}

// explaining is an Explanation in the making.
type explaining struct {
	client.Reader
	Explanation
	options     ExplainOptions
	whole       *unstructured.Unstructured
	annotations map[string]string
	object      owner.Object
	known       history
	// unreadable is why the guard cannot be read; nil when it can.
	unreadable error
	// place of the object by its own cluster, and unplaced why it is not known.
	place    owner.Place
	unplaced error
	// sources are the valid configurations of the sources.
	sources []origin
	// member is set when the cluster serves no EventingBackends.
	member bool
}

// describe sets what is known of the label.
func (x *explaining) describe(ctx context.Context) {
	key := x.object.Key
	x.LabelKey, x.Label = labelOf(key), x.whole.GetLabels()[labelOf(key)]
	x.Instances, x.Source = x.object.Instances, x.annotations[AnnotationSource]
	if x.object.ClusterName != "" {
		x.Cluster = key.Namespace + "/" + x.object.ClusterName
	}
	if key.Pool() {
		x.Group = x.object.GroupName
		if x.object.GroupARN != "" {
			x.Group = x.object.GroupARN
		}
	}
	if e, err := GetEventFromSQS(ctx, x.whole); err == nil {
		x.Event = &e
	}
	switch known := x.known.(type) {
	case instance:
		x.Held = known.Held()
	case group:
		x.Held = known.Held()
	}
	d := declarationOf(x.annotations)
	declared := d.Handlers
	if from := slices.IndexFunc(x.sources, func(s origin) bool { return s.source == x.Source }); from >= 0 {
		declared = x.sources[from].declared
	}
	x.Missing, x.Until = d.missing(x.annotations, declared), d.Until
	x.note(ctx)
}

// note adds the facts that do not fit elsewhere.
func (x *explaining) note(ctx context.Context) {
	add := func(format string, args ...any) { x.Notes = append(x.Notes, fmt.Sprintf(format, args...)) }
	if x.unreadable != nil {
		add("The annotation %s cannot be read: %v. It counts as empty, and the next event replaces it.", AnnotationGuard, x.unreadable)
	}
	if paused(ctx, x.Reader, x.object.ClusterName, x.whole) {
		add("It or its Cluster is paused: the hub labels it, but neither remediates it nor repairs its label from status.instanceState.")
	}
	if x.member {
		add("Events of objects of a self-managed cluster are on its Cluster in the management cluster.")
	}
	if len(x.Missing) == 0 {
		return
	}
	if x.options.Now.Before(x.Until) {
		add("The message of the event waits for the report of the handlers %s until %s: they set the annotation %sNAME to %s.",
			strings.Join(x.Missing, ", "), x.Until.Format(time.RFC3339), processedPrefix, declarationOf(x.annotations).Event)
	} else {
		add("The handlers %s did not report the event by %s: its message is deleted at its next delivery.", strings.Join(x.Missing, ", "), x.Until.Format(time.RFC3339))
	}
}

// why returns why the object has its label, or has none.
func (x *explaining) why() string {
	differs := x.difference()
	record, has := x.known.current()
	i, machine := x.known.(instance)
	id := strings.Join(x.Instances, "")
	switch {
	case x.whole.GetDeletionTimestamp() != nil:
		return "it is being deleted: the hub does not change it any more."
	case differs.wrote != "" || differs.ours != "":
		return fmt.Sprintf("another client set %s to %q, and the events say %s: the hub restores it after %s. Find the client by the managedFields; it may be Cluster API Provider AWS with the feature gate EventBridgeInstanceState.",
			x.LabelKey, differs.wrote, differs.ours, DefaultDriftGrace)
	case differs.polled != "":
		return fmt.Sprintf("status.instanceState is %s, and no event has reported it: the hub repairs the label after %s, unless the event comes before.", differs.polled, DefaultDriftGrace)
	case has && machine && i.ID != "" && i.ID != id:
		return fmt.Sprintf("the label is that of the previous instance %s; no event of its present instance has come. Present instance: %s.", i.ID, orNone(id))
	case has:
		return fmt.Sprintf("AWS reported %s at %s, and nothing that came since takes its place.", record.Label, record.Time.Format(time.RFC3339)) + x.next(record)
	case x.Label != "":
		return "another client set the label: the hub has merged no event of it."
	case machine && id == "":
		return "it has no instance yet: spec.instanceID and spec.providerID are empty, so that no event can be about it."
	}
	return x.unlabelled()
}

// next returns which events change a label that shows a record.
func (x *explaining) next(record guard.Record) string {
	switch {
	case x.object.Pool():
		return " A newer event of the group changes the label."
	case record.Label == message.LabelTerminated:
		return " That is final for this instance."
	case record.Kind.Notice():
		return " A newer state of the instance changes the label, or a notice of a higher rank."
	}
	return " A newer state changes the label, or a notice."
}

// unlabelled returns why no event has come.
func (x *explaining) unlabelled() string {
	var ready, others []string
	for _, s := range x.Sources {
		switch {
		case s.Delivers && s.Ready:
			ready = append(ready, s.Name)
		case s.Delivers:
			others = append(others, s.Name+" ("+strings.TrimSuffix(s.Message, ".")+")")
		}
	}
	switch {
	case x.NoSources != "" && len(ready)+len(others) == 0:
		return "no event of it has come. Its sources are not known here: " + x.NoSources + "."
	case len(x.Sources) == 0:
		return "no source of events is declared: create an EventingBackend of type sqs with role source."
	case len(ready)+len(others) == 0 && x.Region == "":
		return "no source can deliver its events, and its region is not known: " + x.RegionBy + "."
	case len(ready)+len(others) == 0:
		return fmt.Sprintf("no source delivers events of region %s and account %s: declare a queue there, or correct its accounts.", x.Region, orUnknown(x.Account))
	case len(ready) == 0:
		return "its sources are not ready: " + strings.Join(others, "; ") + "."
	case x.unplaced != nil:
		return "no event of it has come, or its account and region cannot be read, so that its events wait in the queue: " + x.RegionBy + "."
	}
	return fmt.Sprintf("no event of it has come since %s can deliver one: AWS sends an event only when a state changes. If it changed, check that the rules of EventBridge are in its account and region (`capstan aws-eventing print`), and the Events ForeignEvent of the source.",
		strings.Join(ready, ", "))
}

// difference of the label from what it should be, by the rules of drift.
func (x *explaining) difference() difference {
	kind, _ := Kind(x.object.Key.Kind)
	reduced, err := kind.Reduce(x.whole)
	if u, ok := reduced.(*unstructured.Unstructured); ok && err == nil {
		return differenceOf(x.object.Key, u)
	}
	return difference{}
}

func orNone(text string) string { return cmp.Or(text, "none") }

func orUnknown(text string) string { return cmp.Or(text, "(not known)") }

// served reads objects in the version that the API server prefers.
type served struct{ ExplainReader }

// Get implements client.Reader. An object without a name does not exist.
func (s served) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return s.ExplainReader.Get(ctx, key, o, opts...)
	}
	kind := u.GroupVersionKind().GroupKind()
	if key.Name == "" {
		return apierrors.NewNotFound(capa.Resource(kind), "")
	}
	mapping, err := s.RESTMapper().RESTMapping(kind)
	if err != nil {
		return err
	}
	u.SetGroupVersionKind(mapping.GroupVersionKind)
	return s.ExplainReader.Get(ctx, key, u, opts...)
}

// list returns the objects of a kind in a namespace, or in all for an empty one; none if the kind is
// not installed.
func (s served) list(ctx context.Context, kind schema.GroupKind, namespace string) ([]unstructured.Unstructured, error) {
	mapping, err := s.RESTMapper().RESTMapping(kind)
	if err != nil {
		if capa.Absent(err) {
			return nil, nil
		}
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
	err = s.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

// seen returns the object as a Labeler reads it.
func (x *explaining) seen() seen { return seenOf(x.whole.GroupVersionKind(), x.whole, x.object.Key) }
