package window

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// zones are those that were loaded, by name: to load one takes longer than to judge a window.
var zones sync.Map

// Zone finds a zone of the IANA database. Names that depend on the machine are refused.
func Zone(name string) (*time.Location, error) {
	if known, is := zones.Load(name); is {
		return known.(*time.Location), nil
	}
	if name == "" || name == "Local" {
		return nil, errors.New("a schedule needs a time zone, such as Europe/Riga or UTC")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time zone of the IANA database, such as Europe/Riga or UTC", name)
	}
	zones.Store(name, zone)
	return zone, nil
}

// searched is how far the readings of a civil time may lie from the same time in UTC: zones are at
// most 14 hours from UTC, and a zone that changes sides of the date line skips or repeats a day.
const searched = 40 * time.Hour

// readings returns the first and the last instant at which clocks of a zone show a civil time, which
// is given as a time in UTC. Both are the same for most times, and the end of the gap if clocks skip
// the time.
func readings(civil time.Time, zone *time.Location) (first, last time.Time) {
	found := false
	var gap time.Time
	for at := civil.Add(-searched).In(zone); ; {
		_, offset := at.Zone()
		begin, end := at.ZoneBounds() // Zero for none.
		shown := civil.Add(-time.Duration(offset) * time.Second)
		if (begin.IsZero() || !shown.Before(begin)) && (end.IsZero() || shown.Before(end)) {
			if !found {
				first, found = shown, true
			}
			last = shown
		}
		if end.IsZero() || end.After(civil.Add(searched)) {
			break
		}
		_, after := end.Zone()
		if gap.IsZero() && !civil.Before(clock(end, offset)) && civil.Before(clock(end, after)) {
			gap = end
		}
		at = end
	}
	if !found {
		first, last = gap, gap
	}
	return first.UTC(), last.UTC()
}

// clock returns what a clock with an offset from UTC shows at an instant, as a time in UTC.
func clock(at time.Time, offset int) time.Time {
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// civilOf returns what clocks of a zone show at an instant, as a time in UTC.
func civilOf(at time.Time, zone *time.Location) time.Time {
	_, offset := at.In(zone).Zone()
	return clock(at, offset)
}
