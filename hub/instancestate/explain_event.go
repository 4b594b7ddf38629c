package instancestate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// consider returns what the hub would do with the body of a message that SQS receives now.
func (x *explaining) consider(ctx context.Context, body []byte) []string {
	m, err := message.Decode(body, x.options.Now)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("It cannot be decoded, and goes to the dead letters: %v.", err)}
	case m.Disposition == message.Ignore:
		return []string{fmt.Sprintf("It is ignored and deleted (%s): %s.", m.Reason, ignored(m))}
	}
	index, notes := x.index(ctx)
	froms := x.sources
	if len(froms) == 0 {
		froms = []origin{{}}
	}
	var about []string
	for _, f := range m.Facts {
		var texts []string
		by := map[string][]string{}
		for _, from := range froms {
			text := x.effect(ctx, index, arrival{newExcerpts(m.Event), from}, from.placed(f))
			if by[text] == nil {
				texts = append(texts, text)
			}
			by[text] = append(by[text], from.source)
		}
		for _, text := range texts {
			if text == "" {
				continue
			}
			if len(texts) > 1 {
				text = "Delivered by " + strings.Join(by[text], ", ") + ": " + text
			}
			about = append(about, text)
		}
	}
	if len(about) == 0 {
		about = []string{x.stranger(m)}
	}
	if slices.ContainsFunc(m.Facts, func(f message.Fact) bool { return f.Guessed }) {
		about = append(about, "Its time is missing, wrong or in the future: the time at which SQS receives it counts; here that is now.")
	}
	return append(about, notes...)
}

// index returns an index of the objects that can represent what the object represents. A pool
// represents an instance only if no AWSMachine does.
func (x *explaining) index(ctx context.Context) (index *owner.Index, notes []string) {
	index = &owner.Index{}
	index.Set(x.object)
	if !x.object.Pool() {
		return index, nil
	}
	for _, kind := range labelled() {
		items, err := x.others(ctx, kind)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%ss cannot be listed: an event that is also about one of them is not recognized: %v.", kind.Kind, err))
		}
		for i := range items {
			index.Set(objectOf(multicluster.ClusterName(x.object.Cluster), &items[i]))
		}
	}
	return index, notes
}

// others lists the objects of a kind: of all namespaces, else of that of the object.
func (x *explaining) others(ctx context.Context, kind schema.GroupKind) ([]unstructured.Unstructured, error) {
	reader, ok := x.Reader.(served)
	if !ok {
		return nil, nil
	}
	items, err := reader.list(ctx, kind, "")
	if apierrors.IsForbidden(err) {
		items, err = reader.list(ctx, kind, x.object.Namespace)
	}
	return items, err
}

// effect returns what the hub would do with a fact that a source delivers; empty when the fact is not
// about the object.
func (x *explaining) effect(ctx context.Context, index *owner.Index, a arrival, f message.Fact) string {
	where := func(o owner.Object) (owner.Place, bool) {
		p, err := placeOf(ctx, x.Reader, o)
		return a.from.place(p), err == nil
	}
	// Whom it is about is found without the place, which only decides what becomes of it.
	concerned, _ := index.Find(f, func(owner.Object) (owner.Place, bool) { return owner.Place{}, true })
	if !hasKey(concerned, x.object.Key) && !x.shares(f) {
		return ""
	}
	found, verdict := a.from.find(index, f, where)
	switch {
	case verdict == owner.Foreign:
		return x.foreign(a.from, f, where)
	case verdict == owner.Unplaced && !hasKey(found, x.object.Key):
		return fmt.Sprintf("Whether it is accepted is not known: the account and region of the object cannot be read: %v.", x.unplaced)
	case verdict == owner.Unknown:
		return fmt.Sprintf("It waits, and has no effect after that: several pools may be of group %s, and none is known to be.", f.GroupName)
	case !hasKey(found, x.object.Key):
		o := found[0]
		return fmt.Sprintf("It does not change this object: it labels %s %s/%s.", o.Key.Kind.Kind, o.Namespace, o.Name)
	}
	return x.merged(work{arrival: a, fact: f})
}

func hasKey(all []owner.Object, key owner.Key) bool {
	return slices.ContainsFunc(all, func(o owner.Object) bool { return o.Key == key })
}

// shares reports whether a fact is about an instance or group of the object, which another object
// may represent.
func (x *explaining) shares(f message.Fact) bool {
	if f.Kind.Group() {
		return x.object.Pool() && f.GroupName == x.object.GroupName && (f.GroupARN == "" || x.object.GroupARN == "" || f.GroupARN == x.object.GroupARN)
	}
	return slices.Contains(x.object.Instances, f.InstanceID)
}

// foreign returns why a source does not accept a fact for the object.
func (x *explaining) foreign(from origin, f message.Fact, where func(owner.Object) (owner.Place, bool)) string {
	if !from.takes(f.Account) {
		return fmt.Sprintf("It is foreign, and dropped: accounts of the source are %s, without %q of the event.", strings.Join(from.accounts, ", "), f.Account)
	}
	place, _ := owner.PlaceOf(&x.object, where)
	if account, _ := place.Of(f); !account {
		return fmt.Sprintf("It is foreign, and dropped: account %q of the event is not %s of the object.", f.Account, place.Account)
	}
	return fmt.Sprintf("It is foreign, and dropped: region %q of the event is not %s of the object.", f.Region, place.Region)
}

// merged returns what the merge of a fact changes.
func (x *explaining) merged(w work) string {
	at := x.seen()
	if at.deleting {
		return "It changes nothing: the object is being deleted."
	}
	var why guard.Effect
	switch known := x.known.(type) {
	case instance:
		why = known.Why(w.fact)
	case group:
		why = known.Why(w.fact)
	}
	f, by := w.fact, why.By
	event := fmt.Sprintf("%s of %s", f.Label, f.Time.Format(time.RFC3339))
	prevails := fmt.Sprintf("%s of %s (event %s)", by.Label, by.Time.Format(time.RFC3339), orUnknown(by.ID))
	c, _ := merge(x.object.Key, at, []work{w}) // The error is in Notes; the change replaces the annotation.
	switch {
	case why.Changes() && c != nil:
		return x.changes(at, c, why, event, prevails)
	case why.Result == guard.Final:
		return fmt.Sprintf("It changes nothing: the instance is terminated, which is final: %s.", prevails)
	case why.Result == guard.Over:
		return fmt.Sprintf("It changes nothing: the scheduled change is over: its end is of %s (event %s).", by.Time.Format(time.RFC3339), orUnknown(by.ID))
	case why.Result == guard.Repeated:
		return fmt.Sprintf("It changes nothing: the same event was merged before: %s.", prevails)
	case by.Time.Equal(f.Time):
		return fmt.Sprintf("It changes nothing: %s is of the same second as %s, which has a higher rank or comes later in the order of ids.", event, prevails)
	case by.Kind.Notice():
		return fmt.Sprintf("It changes nothing: %s is older than the notice %s.", event, prevails)
	case x.object.Pool():
		return fmt.Sprintf("It changes nothing: %s is older than the newest event of the group, %s.", event, prevails)
	}
	return fmt.Sprintf("It changes nothing: %s is older than the state %s.", event, prevails)
}

// changes returns what a change does to the label.
func (x *explaining) changes(at seen, c *change, why guard.Effect, event, prevails string) string {
	hidden := ""
	if why.Result == guard.Hidden {
		hidden = fmt.Sprintf("%s is kept, and hidden by %s: ", event, prevails)
		if by := why.By; by.Kind.Notice() {
			hidden += "a notice hides the state before it, and notices of a lower rank"
		}
		hidden = strings.TrimSuffix(hidden, ": ")
	}
	switch {
	case why.Result == guard.Ended && c.label == at.label:
		return fmt.Sprintf("It ends a scheduled change, and does not change the label, which is %s.", orNone(at.label))
	case c.label != at.label && hidden == "":
		return fmt.Sprintf("It changes the label from %s to %s.", orNone(at.label), orNone(c.label))
	case c.label != at.label:
		return fmt.Sprintf("It changes the label from %s to %s: %s.", orNone(at.label), c.label, hidden)
	case hidden != "":
		return fmt.Sprintf("It does not change the label: %s.", hidden)
	}
	return fmt.Sprintf("It does not change the label, which is %s already; %s becomes the event behind it.", c.label, event)
}

// stranger returns why no fact of a message is about the object.
func (x *explaining) stranger(m message.Message) string {
	f := m.Facts[0]
	switch {
	case f.Kind.Group() && !x.object.Pool():
		return fmt.Sprintf("It is not about this object: an event of Auto Scaling labels the pool of group %s.", f.GroupName)
	case f.Kind.Group():
		return fmt.Sprintf("It is not about this object: it is about group %s, and this object has %s.", cmp.Or(f.GroupARN, f.GroupName), x.Group)
	}
	var ids []string
	for _, f := range m.Facts {
		ids = append(ids, f.InstanceID)
	}
	const most = 3
	more := ""
	if len(ids) > most {
		ids, more = ids[:most], fmt.Sprintf(" and %d more", len(ids)-most)
	}
	has := x.Instances
	if len(has) > most {
		has = append(slices.Clone(has[:most]), fmt.Sprintf("%d more", len(has)-most))
	}
	return fmt.Sprintf("It is not about this object: it is about %s%s, and this object has %s.", strings.Join(ids, ", "), more, orNone(strings.Join(has, ", ")))
}

// ignored returns why a message is ignored, for users.
func ignored(m message.Message) string {
	switch m.Reason {
	case "detail-type":
		return fmt.Sprintf("events of source %q with detail-type %q change no label", m.Event.Source, m.Event.DetailType)
	case "state":
		return "its state is none that the label can show"
	case "service", "category":
		return "only scheduled changes of EC2 of AWS Health change a label"
	case "no-instances":
		return "it affects no instance any more"
	case "transition":
		return "this notification of Auto Scaling changes no label"
	case "test":
		if m.Event.Source == message.TestSource {
			return "it is the test event of `capstan aws-eventing check`"
		}
		return "it is Auto Scaling's test of a new target"
	}
	return "it is an envelope of SNS without an event"
}
