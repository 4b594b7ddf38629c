package view

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// newest are the maxFeed newest changes, newest first. Of tens of thousands, only those that may be among them are described.
type newest []FeedEntry

func (n *newest) add(at time.Time, describe func() FeedEntry) {
	if len(*n) == maxFeed && at.Before((*n)[maxFeed-1].At) {
		return
	}
	one := describe()
	one.At = at
	place, _ := slices.BinarySearchFunc(*n, one, func(a, b FeedEntry) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.key, b.key))
	})
	*n = slices.Insert(*n, place, one)
	*n = (*n)[:min(len(*n), maxFeed)]
}

// feed returns the blocks of the newest changes of all kinds of objects.
func (f *fleet) feed(rows []ClusterRow) []Block {
	var all newest
	for i := range rows {
		if r := &rows[i]; !r.Since.IsZero() {
			all.add(r.Since, func() FeedEntry {
				return FeedEntry{Mark: r.Health[aspectConnection].Mark, Kind: "Cluster", Name: r.Cluster.String(), Link: r.Link, Text: r.Reason, key: clusterID(r.Cluster)}
			})
		}
	}
	for i := range f.Promotions {
		if p := &f.Promotions[i]; f.scope.Promotions.Has(p.Namespace) {
			all.add(changed(p), func() FeedEntry { return promotionChange(p, f.scope) })
		}
	}
	for i := range f.Backends {
		b := &f.Backends[i]
		if at := sinceBackend(b); !at.IsZero() && f.scope.Backends.Has(b.Namespace) {
			all.add(at, func() FeedEntry {
				name := b.Namespace + "/" + b.Name
				return FeedEntry{Mark: backendMark(b), Kind: "Backend", Name: name, Link: Query{Search: name}.At(BackendsPath), Text: whyBackend(b), key: name}
			})
		}
	}
	for _, e := range f.Events {
		if e.Action == actionInstances && f.scope.Events.Has(e.Namespace) {
			shown := eventOf(e)
			all.add(shown.At, func() FeedEntry {
				mark := Mark{Idle, shown.Reason}
				if shown.Warning {
					mark.Tone = Warning
				}
				return FeedEntry{Mark: mark, Kind: e.Regarding.Kind, Name: e.Regarding.Namespace + "/" + e.Regarding.Name,
					Link: Query{Search: e.Regarding.Name}.At(InstancesPath), Text: shown.Note, key: "event/" + e.Namespace + "/" + e.Name}
			})
		}
	}
	blocks := make([]Block, 0, maxFeed)
	for _, e := range all {
		blocks = append(blocks, Block{ID: "feed/" + e.Kind + "/" + e.key + "/" + e.At.UTC().Format(time.RFC3339), List: "feed", Template: "feed-entry", Data: e})
	}
	if len(blocks) == 0 {
		blocks = append(blocks, Block{ID: "feed-empty", List: "feed", Template: "empty-item", Data: Empty{Text: "Nothing that you may see has changed yet."}})
	}
	return blocks
}

// changed returns the time of the newest change of a promotion that its status has a time of.
func changed(p *capstanv1.Promotion) time.Time {
	newest := p.CreationTimestamp.Time
	for _, at := range []*metav1.Time{p.Status.StartTime, p.Status.GatesOpenTime, p.Status.CarriedOutTime, p.Status.VerifyTime, p.Status.FinishTime} {
		if at != nil && at.After(newest) {
			newest = at.Time
		}
	}
	return newest
}

// promotionChange returns that change.
func promotionChange(p *capstanv1.Promotion, scope Scope) FeedEntry {
	e := FeedEntry{Mark: phaseMark(p.Status.Phase, stalled(p)), Kind: "Promotion",
		Name: p.Namespace + "/" + p.Spec.Pipeline.Name + " into " + p.Spec.Environment, Text: p.Spec.Revision, key: p.Namespace + "/" + p.Name}
	if scope.Pipelines.Has(p.Namespace) {
		e.Link = pipelinePath(p.Namespace, p.Spec.Pipeline.Name) + "#" + entryID(p.Namespace, p.Name)
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
