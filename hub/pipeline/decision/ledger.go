package decision

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Intent is the part of a Promotion that follows from the Pipeline's spec alone. If it
// changes while a promotion is not done, a promotion with the next number replaces that.
type Intent struct {
	App      pipelinesv1.LocalAppReference
	Strategy pipelinesv1.Strategy
	Manual   bool
}

// Equal returns whether two intents are semantically equal.
func (i Intent) Equal(j Intent) bool { return equality.Semantic.DeepEqual(i, j) }

// Entry is one Promotion, with the fields that the tables read.
type Entry struct {
	Number   int64
	Revision string
	// Sequence of the source environment's agreement.
	Sequence int64
	Source   string
	Intent   Intent
	Phase    capstanv1.PromotionPhase
	Reason   string
}

// EntryOf returns the Entry of a Promotion.
func EntryOf(p *capstanv1.Promotion) Entry {
	return Entry{
		Number:   p.Spec.Number,
		Revision: p.Spec.Revision,
		Sequence: p.Spec.Source.Sequence,
		Source:   p.Spec.Source.Environment,
		Intent:   Intent{App: p.Spec.App, Strategy: p.Spec.Strategy, Manual: p.Spec.Manual},
		Phase:    p.Status.Phase,
		Reason:   p.Status.Reason,
	}
}

// Ledger holds the known promotions into one environment.
type Ledger struct {
	// entries in the order of their numbers, the highest first.
	entries []Entry
	mark    int64
}

// NewLedger makes a ledger from the promotions into one environment and the mark: the
// highest number that Pipeline.status keeps.
func NewLedger(entries []Entry, mark int64) Ledger {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int {
		switch {
		case a.Number > b.Number:
			return -1
		case a.Number < b.Number:
			return 1
		default:
			return 0
		}
	})
	return Ledger{entries: sorted, mark: mark}
}

// Newest returns the promotion with the highest number; nil if there is none. Creation
// times do not give the order: they can be equal, and a delayed create request may take
// effect after a newer one.
func (l Ledger) Newest() *Entry {
	if len(l.entries) == 0 {
		return nil
	}
	return &l.entries[0]
}

// Highest returns the highest number ever used: by the promotions that exist, and by
// those that were deleted since the mark was written.
func (l Ledger) Highest() int64 {
	if n := l.Newest(); n != nil && n.Number > l.mark {
		return n.Number
	}
	return l.mark
}

// Next returns the number of the next promotion.
func (l Ledger) Next() int64 { return l.Highest() + 1 }

// NewestSucceeded returns the succeeded promotion with the highest number; nil if there
// is none.
func (l Ledger) NewestSucceeded() *Entry {
	for i := range l.entries {
		if l.entries[i].Phase == capstanv1.PhaseSucceeded {
			return &l.entries[i]
		}
	}
	return nil
}

// HasEarlier returns whether a promotion with a lower number than n is for the revision.
func (l Ledger) HasEarlier(revision string, n int64) bool {
	return slices.ContainsFunc(l.entries, func(e Entry) bool { return e.Number < n && e.Revision == revision })
}
