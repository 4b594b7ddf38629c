package view

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// A state lasts until the next one is observed, and a slot shows its worst state.
func TestPast(t *testing.T) {
	g := NewWithT(t)
	slot := SlotOf(now)
	p := Past{}.Observe(Busy, slot).Observe(Good, slot)
	g.Expect(p).To(Equal(Past{State: Good, Last: slot, Tones: []Tone{Busy}}))
	later := p.Observe(Bad, slot+3)
	g.Expect(later.Tones).To(Equal([]Tone{Busy, Good, Good, Bad}))
	g.Expect(later.Observe(Good, slot+3).Until(slot + 5).Tones).To(Equal([]Tone{Busy, Good, Good, Bad, Good, Good}))
	g.Expect(p.Tones).To(Equal([]Tone{Busy}), "it is shared and does not change")
	g.Expect(later.Until(slot + 1000).Tones).To(And(HaveLen(PastSlots), HaveEach(Bad)))
	g.Expect(Past{}.Until(slot)).To(BeZero())

	f := facts()
	f.Past = map[Cluster]Past{cluster("dev"): later.Observe(Good, slot+3)}
	f.Now = now.Add(4 * PastSlot)
	s := f.availability(cluster("dev"))
	g.Expect(s.Text).To(Equal("Problems of the connection in 1 of 5 half hours since 12:00 UTC, the last at 13:30 UTC"))
	g.Expect(s.Slots).To(Equal([]Slot{{43, Busy}, {44, Good}, {45, Good}, {46, Bad}, {47, Good}}))
	g.Expect(f.availability(cluster("prod"))).To(BeZero())
	f.Now = f.Now.Add(time.Minute)
	g.Expect(f.availability(cluster("dev"))).To(Equal(s), "it changes with each half hour")
}
