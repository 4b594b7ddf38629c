package view

import (
	"fmt"
	"slices"
	"time"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

const (
	// trendSlot is the resolution of the trend of a backend, and trendSlots is how many slots are kept: an hour.
	trendSlot  = 5 * time.Minute
	trendSlots = 12
	// trendHeight is the height of the picture, in its units; a slot is one unit wide.
	trendHeight = 10
)

// BackendKey identifies an EventingBackend.
type BackendKey struct{ Namespace, Name string }

// BackendPast has the deliveries of a backend that this replica observed in the last hour.
type BackendPast struct {
	// last is the number of the last slot, in trendSlots since 1970, and slots are those that end with it.
	last  int64
	slots []trendSample
	// delivery is the last state.
	delivery eventingv1.Delivery
}

// trendSample is the most events that waited in a slot, and those that failed.
type trendSample struct{ waiting, failed int64 }

func trendSlotOf(at time.Time) int64 { return at.Unix() / int64(trendSlot/time.Second) }

// Observe returns the past with the state of the delivery at a time. It does not change p.
func (p BackendPast) Observe(d eventingv1.Delivery, at time.Time) BackendPast {
	first := len(p.slots) == 0
	p = p.until(trendSlotOf(at))
	p.slots = slices.Clone(p.slots)
	last := &p.slots[len(p.slots)-1]
	last.waiting = max(last.waiting, d.Waiting)
	if !first { // What had failed before the first observation did so at another time.
		last.failed += risen(p.delivery.RefusedInARow, d.RefusedInARow) + risen(p.delivery.GivenUp, d.GivenUp)
	}
	p.delivery = d
	return p
}

// risen returns by how much a counter rose that may begin again.
func risen(before, after int64) int64 {
	if after < before {
		return after
	}
	return after - before
}

func (p BackendPast) until(slot int64) BackendPast {
	if len(p.slots) == 0 {
		return BackendPast{last: slot, slots: []trendSample{{}}}
	}
	if slot <= p.last {
		return p
	}
	slots := slices.Clone(p.slots)
	for range min(slot-p.last, trendSlots) {
		slots = append(slots, trendSample{waiting: p.delivery.Waiting})
	}
	p.last, p.slots = slot, slots[max(0, len(slots)-trendSlots):]
	return p
}

// Trend is a picture of the last hour of a backend, and its text. It changes every five minutes, or with the backend.
type Trend struct {
	Bars []TrendBar
	// Failed in the last hour.
	Failed int64
	Text   string
}

// TrendBar is a slot of a Trend.
type TrendBar struct {
	X, Y, Height int64
	// Failed is whether events failed in it.
	Failed bool
}

// trend returns the trend of a backend; without bars if nothing was observed.
func (f *Facts) trend(b *eventingv1.EventingBackend) Trend {
	past, observed := f.BackendPast[BackendKey{b.Namespace, b.Name}]
	if !observed || b.Status.Delivery == nil {
		return Trend{}
	}
	past = past.until(trendSlotOf(f.Now))
	most := int64(1)
	for _, s := range past.slots {
		most = max(most, s.waiting)
	}
	var t Trend
	for i, s := range past.slots {
		height := s.waiting * trendHeight / most
		if s.failed > 0 || s.waiting > 0 {
			height = max(height, 1)
		}
		t.Bars = append(t.Bars, TrendBar{X: int64(trendSlots - len(past.slots) + i), Y: trendHeight - height, Height: height, Failed: s.failed > 0})
		t.Failed += s.failed
	}
	waited := int64(0)
	for _, s := range past.slots {
		waited = max(waited, s.waiting)
	}
	t.Text = fmt.Sprintf("In the last %d minutes at most %d events waited, and %d failed", len(past.slots)*int(trendSlot/time.Minute), waited, t.Failed)
	return t
}
