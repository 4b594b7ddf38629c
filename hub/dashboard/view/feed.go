package view

import (
	"cmp"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// maxFeed is how many changes the first page shows.
const maxFeed = 20

// FeedEntry is a change of the state of an object.
type FeedEntry struct {
	At   time.Time
	Mark Mark
	// Kind and Name of the object, and its page; Link is empty when it has none.
	Kind, Name, Link string
	// Text says more; empty if there is nothing to say.
	Text string
	// key is unique among the objects of the Kind, or among their Events.
	key string
}

// feed returns the blocks of the newest changes of all kinds of objects.
func (f *fleet) feed(rows []ClusterRow) []Block {
	var all []FeedEntry
	for i := range rows {
		if r := &rows[i]; !r.Since.IsZero() {
			all = append(all, FeedEntry{At: r.Since, Mark: r.Health[aspectConnection].Mark, Kind: "Cluster", Name: r.Cluster.String(), Link: r.Link, Text: r.Reason, key: clusterID(r.Cluster)})
		}
	}
	for i := range f.Promotions {
		if p := &f.Promotions[i]; f.scope.Promotions.Has(p.Namespace) {
			all = append(all, promotionChange(p, f.scope))
		}
	}
	for i := range f.Backends {
		if b := &f.Backends[i]; f.scope.Backends.Has(b.Namespace) {
			if at := sinceBackend(b); !at.IsZero() {
				all = append(all, FeedEntry{At: at, Mark: backendMark(b), Kind: "Backend", Name: b.Namespace + "/" + b.Name,
					Link: Query{Search: b.Namespace + "/" + b.Name}.At(BackendsPath), Text: whyBackend(b), key: b.Namespace + "/" + b.Name})
			}
		}
	}
	for _, e := range f.Events {
		if e.Action == actionInstances && f.scope.Events.Has(e.Namespace) {
			shown := eventOf(e)
			mark := Mark{Idle, shown.Reason}
			if shown.Warning {
				mark.Tone = Warning
			}
			all = append(all, FeedEntry{At: shown.At, Mark: mark, Kind: e.Regarding.Kind, Name: e.Regarding.Namespace + "/" + e.Regarding.Name,
				Link: Query{Search: e.Regarding.Name}.At(InstancesPath), Text: shown.Note, key: "event/" + e.Namespace + "/" + e.Name})
		}
	}
	slices.SortFunc(all, func(a, b FeedEntry) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.key, b.key))
	})
	blocks := make([]Block, 0, maxFeed)
	for _, e := range all[:min(len(all), maxFeed)] {
		blocks = append(blocks, Block{ID: "feed/" + e.Kind + "/" + e.key + "/" + e.At.UTC().Format(time.RFC3339), List: "feed", Template: "feed-entry", Data: e})
	}
	if len(blocks) == 0 {
		blocks = append(blocks, Block{ID: "feed-empty", List: "feed", Template: "empty-item", Data: Empty{Text: "Nothing that you may see has changed yet."}})
	}
	return blocks
}

// promotionChange returns the newest change of a promotion that its status has a time of.
func promotionChange(p *capstanv1.Promotion, scope Scope) FeedEntry {
	e := FeedEntry{At: p.CreationTimestamp.Time, Mark: phaseMark(p.Status.Phase, stalled(p)), Kind: "Promotion",
		Name: p.Namespace + "/" + p.Spec.Pipeline.Name + " into " + p.Spec.Environment, Text: p.Spec.Revision, key: p.Namespace + "/" + p.Name}
	if scope.Pipelines.Has(p.Namespace) {
		e.Link = pipelinePath(p.Namespace, p.Spec.Pipeline.Name) + "#" + entryID(p.Namespace, p.Name)
	}
	for _, at := range []time.Time{timeOf(p.Status.StartTime), timeOf(p.Status.GatesOpenTime), timeOf(p.Status.CarriedOutTime), timeOf(p.Status.VerifyTime), timeOf(p.Status.FinishTime)} {
		if at.After(e.At) {
			e.At = at
		}
	}
	return e
}

// whyBackend returns the reason and message of the first condition of a backend that is not True; empty if there is none.
func whyBackend(b *eventingv1.EventingBackend) string {
	if len(b.Status.ValidationErrors) > 0 {
		return b.Status.ValidationErrors[0].Config + ": " + b.Status.ValidationErrors[0].Error
	}
	for _, c := range b.Status.Conditions {
		if c.Status != "True" {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// sinceBackend returns when a condition of a backend changed last; zero if it has none.
func sinceBackend(b *eventingv1.EventingBackend) time.Time {
	var at time.Time
	for _, c := range b.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
