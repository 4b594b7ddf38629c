package view

import (
	"fmt"
	"slices"
	"time"
)

const (
	// PastSlot is the resolution of the past.
	PastSlot = 30 * time.Minute
	// PastSlots is how many slots are kept: a day.
	PastSlots = 48
)

// Past has the worst state of a connection in each slot that this replica observed.
type Past struct {
	// State is the last one. It lasts until another one is observed.
	State Tone
	// Last is the number of the last slot, in PastSlots since 1970.
	Last int64
	// Tones of the slots that end with the last one; the oldest is the first. At most PastSlots.
	Tones []Tone
}

// SlotOf returns the number of the slot of a time.
func SlotOf(at time.Time) int64 { return at.Unix() / int64(PastSlot/time.Second) }

// Observe returns the past with a state that begins at a slot. It does not change p.
func (p Past) Observe(tone Tone, slot int64) Past {
	if len(p.Tones) == 0 {
		return Past{State: tone, Last: slot, Tones: []Tone{tone}}
	}
	p = p.Until(slot)
	p.Tones = slices.Clone(p.Tones)
	last := &p.Tones[len(p.Tones)-1]
	*last, p.State = min(*last, tone), tone
	return p
}

// Until returns the past until a slot, in which the last state lasts. It does not change p.
func (p Past) Until(slot int64) Past {
	if len(p.Tones) == 0 || slot <= p.Last {
		return p
	}
	tones := slices.Clone(p.Tones)
	for range min(slot-p.Last, PastSlots) {
		tones = append(tones, p.State)
	}
	return Past{State: p.State, Last: slot, Tones: tones[max(0, len(tones)-PastSlots):]}
}

// Strip is the picture of the availability of a cluster in the last day, and its text. It changes each half hour.
type Strip struct {
	Slots []Slot
	Text  string
}

// Slot is a slot of a Strip at a place from 0 to PastSlots-1. Without an observation there is none.
type Slot struct {
	X    int
	Tone Tone
}

// Problem reports whether the connection had a problem in the slot; its bar is higher.
func (b Slot) Problem() bool { return b.Tone <= Warning }

// availability returns the strip of a cluster; without bars if nothing was observed.
func (f *Facts) availability(c Cluster) Strip {
	p := f.Past[c].Until(SlotOf(f.Now))
	var s Strip
	problems, last := 0, int64(0)
	for i, tone := range p.Tones {
		s.Slots = append(s.Slots, Slot{X: PastSlots - len(p.Tones) + i, Tone: tone})
		if (Slot{Tone: tone}).Problem() {
			problems++
			last = p.Last - int64(len(p.Tones)-1-i)
		}
	}
	if len(s.Slots) == 0 {
		return s
	}
	at := func(slot int64) string {
		return time.Unix(slot*int64(PastSlot/time.Second), 0).UTC().Format("15:04 UTC")
	}
	s.Text = "No problem of the connection since " + at(p.Last-int64(len(p.Tones)-1))
	if problems > 0 {
		s.Text = fmt.Sprintf("Problems of the connection in %d of %d half hours since %s, the last at %s", problems, len(p.Tones), at(p.Last-int64(len(p.Tones)-1)), at(last))
	}
	return s
}
