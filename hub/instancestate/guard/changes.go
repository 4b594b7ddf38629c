package guard

import (
	"cmp"
	"errors"
	"slices"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// maxChanges is how many scheduled changes of an instance, or of the instances of a group, are kept: the
// newest ones. AWS announces one or two at a time for an instance. An annotation of 64 has about 20 KiB.
const maxChanges = 64

// changes are the scheduled changes of an instance, or of the instances of a group: of each one the
// newest record, which may say that it is over, ordered by change and instance. A record that is over
// stays, so that an older one of the same change does not count when it is delivered late.
type changes []Record

// byKey compares records by the change and instance that they are about.
func byKey(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Change, b.Change), cmp.Compare(a.Instance, b.Instance))
}

// replaces reports whether a record takes the place of one of an earlier version, which names no change.
func replaces(n, old Record) bool {
	return old.Change == "" && n.Change != "" && n.Instance == old.Instance && order(n, old) >= 0
}

// merge merges a record. The result depends on the set of merged records only: the newest
// maxChanges of the newest records of each change. It returns the receiver and false when the
// record changes nothing; it never changes the receiver.
//
// A record of an earlier version names no change. Any record of the same instance that is as new
// takes its place, because it cannot be known which change it is about.
func (c changes) merge(r Record) (changes, bool) {
	if slices.ContainsFunc(c, func(n Record) bool { return replaces(n, r) }) {
		return c, false
	}
	at, known := slices.BinarySearchFunc(c, r, byKey)
	if known && order(r, c[at]) <= 0 {
		return c, false
	}
	merged := slices.Clone(c)
	if known {
		merged[at] = r
	} else {
		merged = slices.Insert(merged, at, r)
	}
	merged = slices.DeleteFunc(merged, func(old Record) bool { return replaces(r, old) })
	if len(merged) > maxChanges {
		oldest := slices.MinFunc(merged, order)
		if byKey(oldest, r) == 0 {
			return c, false
		}
		merged = slices.DeleteFunc(merged, func(n Record) bool { return byKey(n, oldest) == 0 })
	}
	return merged, true
}

// only returns the records that count.
func (c changes) only(counts func(Record) bool) changes {
	return slices.DeleteFunc(slices.Clone(c), func(r Record) bool { return !counts(r) })
}

// open returns the records of changes that are not over.
func (c changes) open() changes { return c.only(func(r Record) bool { return !r.Over }) }

// ended reports whether a newer record says that the change of a fact is over.
func (c changes) ended(f message.Fact) bool {
	r := recordOf(f)
	return f.Kind == message.ScheduledChange && slices.ContainsFunc(c, func(n Record) bool {
		return n.Over && n.Change == r.Change && order(n, r) > 0
	})
}

var errChanges = errors.New("its scheduled changes contradict each other or the state")

// validate returns an error unless merge can have made the receiver, and all of its records count.
func (c changes) validate(counts func(Record) bool) error {
	switch {
	case slices.ContainsFunc(c, func(r Record) bool { return !r.validLabel() }):
		return errLabel
	case len(c) > maxChanges, !slices.IsSortedFunc(c, byKey),
		len(slices.CompactFunc(slices.Clone(c), func(a, b Record) bool { return byKey(a, b) == 0 })) < len(c),
		slices.ContainsFunc(c, func(r Record) bool { return r.Kind != message.ScheduledChange || !counts(r) }):
		return errChanges
	}
	return nil
}
