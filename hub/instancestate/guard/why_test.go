package guard_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Why agrees with Merge, for any fact on any history: it says that something changes exactly when
// Merge changes something, that the fact is shown exactly when the label is that of the fact, and it
// names a record that is known.
func TestWhyAgreesWithMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := history(t)
		instance, group := merge(facts...), guard.Group{}
		for _, f := range facts {
			group, _ = group.Merge(f)
		}
		for _, f := range append(history(t), facts...) {
			if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
				f.InstanceID = "i-0000000000000000b"
			}
			merged, changed := instance.Merge(f)
			why := instance.Why(f)
			current, _ := merged.Current()
			check(t, why, changed, current, f)
			if !changed && why.By != instanceRecord(instance, why.By) {
				t.Fatalf("%v is not known to %s", why.By, instance)
			}
			next, changed := group.Merge(f)
			current, _ = next.Current()
			why = group.Why(f)
			check(t, why, changed, current, f)
			if !changed && !slices.ContainsFunc(group.Held(), func(h guard.Held) bool { return h.Record == why.By }) {
				t.Fatalf("%v is not known to %s", why.By, group)
			}
		}
	})
}

func check(t *rapid.T, why guard.Effect, changed bool, current guard.Record, f message.Fact) {
	shows := current.ID == f.ID && current.Kind == f.Kind && current.Time.Equal(f.Time) && current.Label == f.Label && (current.Instance == "" || current.Instance == f.InstanceID)
	switch {
	case why.Changes() != changed:
		t.Fatalf("%s, and the merge of %s changes: %t", why.Result, f.Label, changed)
	case changed && shows != (why.Result == guard.Shown):
		t.Fatalf("%s, and the label is %s after %s", why.Result, current.Label, f.Label)
	case why.Result == guard.Hidden && why.By != current:
		t.Fatalf("hidden by %v, and the label is %v", why.By, current)
	case f.Over && changed != (why.Result == guard.Ended):
		t.Fatalf("%s, of an end whose merge changes: %t", why.Result, changed)
	case why.Result != guard.Shown && why.Result != guard.Ended && why.By == guard.Record{}:
		t.Fatalf("%s without the record that prevails", why.Result)
	}
}

// instanceRecord returns a record of an instance that equals one; zero when there is none.
func instanceRecord(i guard.Instance, like guard.Record) guard.Record {
	for _, h := range i.Held() {
		if h.Record == like {
			return h.Record
		}
	}
	return guard.Record{}
}

func TestWhy(t *testing.T) {
	for name, c := range map[string]struct {
		known []message.Fact
		fact  message.Fact
		want  guard.Result
		by    string
	}{
		"first":                          {nil, state(t, "running", 5), guard.Shown, ""},
		"newer state":                    {[]message.Fact{state(t, "pending", 1)}, state(t, "running", 5), guard.Shown, ""},
		"older state":                    {[]message.Fact{state(t, "running", 5)}, state(t, "pending", 1), guard.Older, "running"},
		"the same":                       {[]message.Fact{state(t, "running", 5)}, state(t, "running", 5), guard.Repeated, "running"},
		"after the end":                  {[]message.Fact{state(t, "terminated", 5)}, state(t, "running", 9), guard.Final, "terminated"},
		"notice after the end":           {[]message.Fact{state(t, "terminated", 5)}, notice(t, "spot", 9), guard.Final, "terminated"},
		"the same end":                   {[]message.Fact{state(t, "terminated", 5)}, state(t, "terminated", 5), guard.Repeated, "terminated"},
		"notice before the state":        {[]message.Fact{state(t, "running", 5)}, notice(t, "spot", 1), guard.Older, "running"},
		"notice of a lower rank":         {[]message.Fact{notice(t, "spot", 5)}, notice(t, "rebalance-recommended", 9), guard.Hidden, "spot-interruption-terminate"},
		"older notice of the kind":       {[]message.Fact{notice(t, "spot", 5)}, notice(t, "spot", 4), guard.Older, "spot-interruption-terminate"},
		"state before the notice":        {[]message.Fact{notice(t, "spot", 5)}, state(t, "running", 4), guard.Hidden, "spot-interruption-terminate"},
		"known state, before the notice": {[]message.Fact{notice(t, "spot", 5), state(t, "running", 4)}, state(t, "running", 4), guard.Repeated, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			why := merge(c.known...).Why(c.fact)
			g.Expect(why.Result).To(Equal(c.want))
			g.Expect(why.By.Label).To(Equal(c.by))
		})
	}
}

func TestHeld(t *testing.T) {
	g := NewWithT(t)
	held := merge(notice(t, "rebalance-recommended", 6), notice(t, "spot", 5), notice(t, "capacity-reservation-interruption", 7), state(t, "running", 4)).Held()
	var all []string
	for _, h := range held {
		all = append(all, h.Label+": "+h.Hidden)
	}
	g.Expect(all).To(Equal([]string{
		"capacity-reservation-interruption: ",
		"spot-interruption-terminate: the notice capacity-reservation-interruption is newer, and has the same rank",
		"rebalance-recommended: the notice capacity-reservation-interruption has a higher rank",
		"running: the notice capacity-reservation-interruption is newer than the state",
	}))
	g.Expect(merge().Held()).To(BeEmpty())
}
