package guard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// The label of a group shows the newest of its open scheduled changes and its other events. An end hides its own change, of
// its own instance, only.
func TestGroupChanges(t *testing.T) {
	of := func(f message.Fact, instance string) message.Fact {
		f.InstanceID = instance
		return f
	}
	const one, two = "i-1234567890abcdef1", "i-1234567890abcdef2"
	for name, c := range map[string]struct {
		facts []message.Fact
		want  string
	}{
		"the end":                             {[]message.Fact{of(planned(t, "a", false, 5), one), of(planned(t, "a", true, 6), one)}, ""},
		"the end for one instance":            {[]message.Fact{of(planned(t, "a", false, 5), one), of(planned(t, "a", false, 5), two), of(planned(t, "a", true, 6), one)}, "scheduled-maintenance"},
		"the end shows the event before":      {[]message.Fact{of(state(t, "running", 4), two), of(planned(t, "a", false, 5), one), of(planned(t, "a", true, 6), one)}, "running"},
		"a newer event hides an older one":    {[]message.Fact{of(planned(t, "a", false, 5), one), of(state(t, "running", 6), two)}, "running"},
		"the end of that changes nothing":     {[]message.Fact{of(planned(t, "a", false, 5), one), of(state(t, "running", 6), two), of(planned(t, "a", true, 7), one)}, "running"},
		"its late beginning does not, either": {[]message.Fact{of(planned(t, "a", true, 7), one), of(state(t, "running", 6), two), of(planned(t, "a", false, 6), one)}, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			var g guard.Group
			for _, f := range c.facts {
				g, _ = g.Merge(f)
			}
			NewWithT(t).Expect(g.Label()).To(Equal(c.want))
			NewWithT(t).Expect(g.Known()).To(BeTrue())
		})
	}
}

// The newest 64 scheduled changes are kept, however many are announced.
func TestManyChanges(t *testing.T) {
	g := NewWithT(t)
	var i guard.Instance
	for n := range 100 {
		i, _ = i.Merge(planned(t, fmt.Sprint("change-", n), false, n))
	}
	g.Expect(i.Changes).To(HaveLen(64))
	_, changed := i.Merge(planned(t, "change-3", true, 30))
	g.Expect(changed).To(BeFalse(), "64 others are newer")
	for n := range 100 {
		i, _ = i.Merge(planned(t, fmt.Sprint("change-", n), true, 100+n))
	}
	g.Expect(i.Label()).To(BeEmpty())
}

// More scheduled changes than are kept give the same result in any order, any number of times.
func TestManyChangesInAnyOrder(t *testing.T) {
	g := NewWithT(t)
	random := rand.New(rand.NewPCG(1, 2))
	var facts []message.Fact
	for n := range 200 {
		facts = append(facts, planned(t, fmt.Sprint("change-", random.IntN(100)), random.IntN(2) == 0, random.IntN(300)))
		if n%10 == 0 {
			facts = append(facts, facts[random.IntN(len(facts))])
		}
	}
	want := merge(facts...).String()
	for range 50 {
		random.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
		g.Expect(merge(facts...).String()).To(Equal(want))
	}
}

// A scheduled change in an annotation of an earlier version names no event of Health. The next fact about a scheduled change
// of the instance takes its place: it ends, or another one is known.
func TestChangeOfAnEarlierVersion(t *testing.T) {
	const old = `"word":"scheduled-maintenance","kind":"health-scheduled-change","time":"2026-01-10T10:00:05Z","rank":40,"id":"1"`
	for name, c := range map[string]struct {
		fact          message.Fact
		label, behind string
	}{
		"its end":                {planned(t, "a", true, 6), "running", "running1"},
		"an older end":           {planned(t, "a", true, 4), "scheduled-maintenance", "1"},
		"another one":            {planned(t, "a", false, 6), "scheduled-maintenance", "a-false-6"},
		"an older other one":     {planned(t, "a", false, 4), "scheduled-maintenance", "1"},
		"a state":                {state(t, "stopping", 6), "stopping", "stopping6"},
		"another kind of notice": {notice(t, "rebalance-recommended", 6), "scheduled-maintenance", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			i, err := guard.ParseInstance(`{"instance":"i-1234567890abcdef0","state":{"word":"running","kind":"state-change","time":"2026-01-10T10:00:01Z","rank":20,"id":"running1"},"notices":[{` + old + `}]}`)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(i.Label()).To(Equal("scheduled-maintenance"))
			i, _ = i.Merge(c.fact)
			g.Expect(i.Label()).To(Equal(c.label))
			current, _ := i.Current()
			g.Expect(current.ID).To(Equal(c.behind))
			again, err := guard.ParseInstance(i.String())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again.String()).To(Equal(i.String()))
		})
	}
	g := NewWithT(t)
	group := func() guard.Group {
		known, err := guard.ParseGroup(`{"newest":{` + old + `,"instance":"i-1234567890abcdef0"}}`)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(known.Label()).To(Equal("scheduled-maintenance"))
		return known
	}
	ended, _ := group().Merge(planned(t, "a", true, 6))
	g.Expect(ended.Label()).To(BeEmpty())
	other := planned(t, "a", true, 6)
	other.InstanceID = "i-1234567890abcdef1"
	still, _ := group().Merge(other)
	g.Expect(still.Label()).To(Equal("scheduled-maintenance"), "of another instance")
}

// A notice whose change is over is outlived: it is not remediated when it is delivered late.
func TestOutlivedByItsEnd(t *testing.T) {
	g := NewWithT(t)
	open := planned(t, "a", false, 5)
	g.Expect(merge(open).Outlived(open)).To(BeFalse())
	g.Expect(merge(open, planned(t, "a", true, 6)).Outlived(open)).To(BeTrue())
	g.Expect(merge(open, planned(t, "b", true, 6)).Outlived(open)).To(BeFalse())
	g.Expect(merge(planned(t, "a", true, 4), open).Outlived(open)).To(BeFalse())
}
