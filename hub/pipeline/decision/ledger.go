package decision

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Intent is what of a Promotion follows from the Pipeline's spec alone: when it
// changes under a promotion that is not done, the next number takes its place.
type Intent struct {
	App      pipelinesv1.LocalAppReference
	Strategy pipelinesv1.Strategy
	Manual   bool
}

// Equal compares two intents by their meaning.
func (i Intent) Equal(j Intent) bool { return equality.Semantic.DeepEqual(i, j) }

// Entry is one Promotion, as the tables see it.
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

// EntryOf reads a Promotion.
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

// Ledger is what is known of the promotions into one environment.
type Ledger struct {
	// entries in the order of their numbers, the highest first.
	entries []Entry
	mark    int64
}

// NewLedger makes a ledger of the promotions into one environment and the mark
// that Pipeline.status keeps of their highest number.
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

// Newest is the promotion with the highest number; nil when there is none.
// Creation times do not tell: they tie, and a late create may land after a newer one.
func (l Ledger) Newest() *Entry {
	if len(l.entries) == 0 {
		return nil
	}
	return &l.entries[0]
}

// Highest is the highest number ever seen: of the promotions there are, and of
// those deleted since the mark was written.
func (l Ledger) Highest() int64 {
	if n := l.Newest(); n != nil && n.Number > l.mark {
		return n.Number
	}
	return l.mark
}

// Next is the number of the next promotion.
func (l Ledger) Next() int64 { return l.Highest() + 1 }

// NewestSucceeded is the succeeded promotion with the highest number; nil when
// there is none.
func (l Ledger) NewestSucceeded() *Entry {
	for i := range l.entries {
		if l.entries[i].Phase == capstanv1.PhaseSucceeded {
			return &l.entries[i]
		}
	}
	return nil
}

// Brought tells whether a promotion with a lower number than n was to bring the
// revision.
func (l Ledger) Brought(revision string, n int64) bool {
	return slices.ContainsFunc(l.entries, func(e Entry) bool { return e.Number < n && e.Revision == revision })
}
