package window_test

import (
	"archive/zip"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/capstan-hub/capstan/internal/window"
)

// zones are the names of all time zones that Go has.
func zones(t *testing.T) (names []string) {
	t.Helper()
	all, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	for _, file := range all.File {
		if !strings.HasSuffix(file.Name, "/") {
			names = append(names, file.Name)
		}
	}
	return names
}

// around is how far from a change of clocks a test looks.
const around = 30 * time.Hour

// minutes is what clocks show, as a time in UTC, at each minute around a change of clocks.
type minutes struct {
	begin time.Time
	shown []time.Time
}

func scan(at time.Time, zone *time.Location) minutes {
	m := minutes{begin: at.Add(-around)}
	for t := m.begin; t.Before(at.Add(around)); t = t.Add(time.Minute) {
		local := t.In(zone)
		m.shown = append(m.shown, time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC))
	}
	return m
}

// readings are the first and the last minute at which a clock shows a time; the first at which it
// shows a later one if it skips the time.
func (m minutes) readings(civil time.Time) (first, last time.Time) {
	var skipped time.Time
	for i, shown := range m.shown {
		at := m.begin.Add(time.Duration(i) * time.Minute)
		if shown.Equal(civil) {
			if first.IsZero() {
				first = at
			}
			last = at
		}
		if skipped.IsZero() && shown.After(civil) {
			skipped = at
		}
	}
	if first.IsZero() {
		return skipped, skipped
	}
	return first, last
}

// expected is the window of the rule in doc.go; false if it is empty.
func (m minutes) expected(kind window.Type, civil time.Time, d time.Duration) (begin, end time.Time, some bool) {
	firstBegin, lastBegin := m.readings(civil)
	firstEnd, lastEnd := m.readings(civil.Add(d))
	if kind == window.Deny {
		if begin, end = firstBegin, lastEnd; !begin.Before(end) {
			end = begin.Add(d)
		}
		return begin, end, true
	}
	if begin, end = lastBegin, firstEnd; !begin.Before(end) {
		end = lastEnd
	}
	return begin, end, begin.Before(end)
}

// TestZones: windows around each change of clocks from 2000 to 2040, in all zones, against a scan by
// minutes. `make test` takes one change of a hundred; with CAPSTAN_SOAK, all of them.
func TestZones(t *testing.T) {
	t.Parallel()
	every := 100
	if os.Getenv("CAPSTAN_SOAK") != "" {
		every = 1
	}
	changes, checked := 0, 0
	for _, name := range zones(t) {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := time.Date(2000, 1, 1, 0, 0, 0, 0, zone); ; {
			_, end := at.ZoneBounds()
			if end.IsZero() || end.Year() >= 2040 {
				break
			}
			_, before := end.Add(-time.Second).Zone()
			if _, after := end.Zone(); after != before { // Else only the name of the zone changes.
				if changes++; changes%every == 0 {
					checked++
					checkChange(t, name, zone, end)
				}
			}
			at = end
		}
	}
	t.Logf("%d changes of clocks, %d checked", changes, checked)
	NewWithT(t).Expect(changes).To(BeNumerically(">", 10000))
}

func checkChange(t *testing.T, name string, zone *time.Location, at time.Time) {
	t.Helper()
	m := scan(at.UTC(), zone)
	_, before := at.Add(-time.Second).Zone()
	clock := at.UTC().Add(time.Duration(before) * time.Second)
	for _, offset := range []int{-90, -60, -30, -15, -1, 0, 1, 15, 30, 59, 60, 75} {
		for _, d := range []time.Duration{time.Minute, 15 * time.Minute, 45 * time.Minute, 2 * time.Hour, 24 * time.Hour} {
			civil := clock.Add(time.Duration(offset) * time.Minute)
			for _, kind := range []window.Type{window.Deny, window.Allow} {
				w := parse(t, window.Spec{
					Type: kind, Duration: d, TimeZone: name,
					Schedule: fmt.Sprintf("%d %d %d %d *", civil.Minute(), civil.Hour(), civil.Day(), civil.Month()),
				})
				begin, end, some := m.expected(kind, civil, d)
				if problem := differs(w, begin, end, some, at); problem != "" {
					t.Errorf("%s of %s at %s in %s: %s", kind, d, civil.Format("2006-01-02 15:04"), name, problem)
				}
			}
		}
	}
}

// differs says how a window differs from [begin, end).
func differs(w *window.Window, begin, end time.Time, some bool, at time.Time) string {
	if !some {
		for n := -12; n < 12; n++ {
			if active, _ := w.At(at.Add(time.Duration(n) * 7 * time.Minute)); active {
				return "active, and should be empty"
			}
		}
		return ""
	}
	if active, change := w.At(begin.Add(-time.Minute)); active || !change.Equal(begin) {
		return fmt.Sprintf("a minute before %s: %t until %s", begin, active, change)
	}
	if active, change := w.At(begin); !active || !change.Equal(end) {
		return fmt.Sprintf("at %s: %t until %s, not %s", begin, active, change, end)
	}
	if active, _ := w.At(end); active {
		return fmt.Sprintf("still active at %s", end)
	}
	return ""
}

// TestForecastEqualsBruteForce: the next change of any windows is the first minute at which the
// verdict differs.
func TestForecastEqualsBruteForce(t *testing.T) {
	t.Parallel()
	const days = 2
	names := []string{"UTC", "Europe/Paris", "Australia/Lord_Howe", "America/St_Johns", "Africa/Cairo"}
	rapid.Check(t, func(r *rapid.T) {
		// The nights in which clocks change are among the days.
		now := time.Date(2026, time.Month(rapid.SampledFrom([]int{3, 4, 10, 6}).Draw(r, "month")), rapid.SampledFrom([]int{4, 24, 28}).Draw(r, "day"), 0, 0, 0, 0, time.UTC).
			Add(time.Duration(rapid.IntRange(0, 24*60).Draw(r, "minute")) * time.Minute)
		groups := make([][]*window.Window, rapid.IntRange(0, 2).Draw(r, "groups"))
		for g := range groups {
			for i := range rapid.IntRange(0, 3).Draw(r, fmt.Sprint("windows of ", g)) {
				draw := func(what string, low, high int) int { return rapid.IntRange(low, high).Draw(r, fmt.Sprint(what, g, i)) }
				s := window.Spec{Type: rapid.SampledFrom([]window.Type{window.Allow, window.Deny}).Draw(r, fmt.Sprint("type ", g, i))}
				switch draw("kind", 0, 3) {
				case 0:
					s.From = now.Add(time.Duration(draw("from", -3000, 3000)) * time.Minute)
					s.Until = s.From.Add(time.Duration(draw("until", 1, 4000)) * time.Minute)
				case 1:
					s.From = now.Add(time.Duration(draw("from", -3000, 3000)) * time.Minute)
				default:
					s.Schedule = fmt.Sprintf("%d %s * * %s", draw("minute", 0, 59), rapid.SampledFrom([]string{"2", "9", "*/6", "22"}).Draw(r, fmt.Sprint("hour", g, i)),
						rapid.SampledFrom([]string{"*", "1-5", "0", "6,0"}).Draw(r, fmt.Sprint("weekday", g, i)))
					s.Duration = time.Duration(draw("duration", 1, 600)) * time.Minute
					s.TimeZone = rapid.SampledFrom(names).Draw(r, fmt.Sprint("zone", g, i))
				}
				groups[g] = append(groups[g], parse(t, s))
			}
		}
		got := window.Judge(now, groups...)
		for m := 1; m <= days*24*60; m++ {
			at := now.Add(time.Duration(m) * time.Minute)
			if open(at, groups) != got.Open {
				if !got.Change.Equal(at) {
					r.Fatalf("at %s: %+v, and it changes at %s", now, got, at)
				}
				return
			}
		}
		if !got.Change.IsZero() && got.Change.Before(now.Add(days*24*time.Hour)) {
			r.Fatalf("at %s: %+v, and nothing changes", now, got)
		}
	})
}

// open is the rule: no Deny is active, and one Allow of each group that has any.
func open(at time.Time, groups [][]*window.Window) bool {
	for _, group := range groups {
		allows, allowed := 0, 0
		for _, w := range group {
			active, _ := w.At(at)
			switch {
			case w.Type() == window.Deny && active:
				return false
			case w.Type() == window.Allow:
				allows++
				if active {
					allowed++
				}
			}
		}
		if allows > 0 && allowed == 0 {
			return false
		}
	}
	return true
}
