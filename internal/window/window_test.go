package window_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/capstan-hub/capstan/internal/window"
)

func parse(t testing.TB, s window.Spec) *window.Window {
	t.Helper()
	w, err := window.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04Z", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestG11AndG56Windows: the instants of the design for windows in which clocks change. Each is
// active from the first instant to the second one, and not the minute before or after.
func TestG11AndG56Windows(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, zone, schedule string
		duration             time.Duration
		kind                 window.Type
		begin, end           string // none if empty
	}{
		{"a start in the gap", "Europe/Paris", "30 2 * * 0", time.Hour, window.Deny, "2026-03-29T01:00Z", "2026-03-29T01:30Z"},
		{"a start in the gap", "Europe/Paris", "30 2 * * 0", time.Hour, window.Allow, "2026-03-29T01:00Z", "2026-03-29T01:30Z"},
		{"a start that occurs twice", "Europe/Paris", "30 2 * * 0", 2 * time.Hour, window.Deny, "2026-10-25T00:30Z", "2026-10-25T03:30Z"},
		{"a start that occurs twice", "Europe/Paris", "30 2 * * 0", 2 * time.Hour, window.Allow, "2026-10-25T01:30Z", "2026-10-25T03:30Z"},
		{"the night of the gap", "Europe/Paris", "0 22 * * 6", 8 * time.Hour, window.Deny, "2026-03-28T21:00Z", "2026-03-29T04:00Z"},
		{"the night of the overlap", "Europe/Paris", "0 22 * * 6", 8 * time.Hour, window.Allow, "2026-10-24T20:00Z", "2026-10-25T05:00Z"},
		{"a day without midnight", "Africa/Cairo", "0 0 24 4 *", 24 * time.Hour, window.Deny, "2026-04-23T22:00Z", "2026-04-24T21:00Z"},
		{"a gap of half an hour", "Australia/Lord_Howe", "15 2 * * 0", time.Hour, window.Deny, "2026-10-03T15:30Z", "2026-10-03T16:15Z"},
		{"an Allow in the overlap", "Europe/Paris", "10 2 25 10 *", 20 * time.Minute, window.Allow, "2026-10-25T01:10Z", "2026-10-25T01:30Z"},
		{"a Deny in the overlap", "Europe/Paris", "10 2 25 10 *", 20 * time.Minute, window.Deny, "2026-10-25T00:10Z", "2026-10-25T01:30Z"},
		{"a Deny in the gap", "Europe/Paris", "10 2 29 3 *", 20 * time.Minute, window.Deny, "2026-03-29T01:00Z", "2026-03-29T01:20Z"},
		{"an Allow in the gap", "Europe/Paris", "10 2 29 3 *", 20 * time.Minute, window.Allow, "", ""},
		{"a day whose midnight occurs twice", "Atlantic/Azores", "0 0 25 10 *", 24 * time.Hour, window.Allow, "2026-10-25T01:00Z", "2026-10-26T01:00Z"},
		{"a day that does not exist", "Pacific/Apia", "0 0 30 12 *", 24 * time.Hour, window.Allow, "", ""},
	} {
		t.Run(fmt.Sprintf("%s/%s", tc.name, tc.kind), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			w := parse(t, window.Spec{Type: tc.kind, Schedule: tc.schedule, Duration: tc.duration, TimeZone: tc.zone})
			if tc.begin == "" {
				around := time.Date(2026, 3, 29, 0, 50, 0, 0, time.UTC)
				if tc.zone == "Pacific/Apia" {
					around = time.Date(2011, 12, 30, 9, 0, 0, 0, time.UTC)
				}
				for m := range 180 {
					active, _ := w.At(around.Add(time.Duration(m) * time.Minute))
					g.Expect(active).To(BeFalse())
				}
				return
			}
			begin, end := instant(t, tc.begin), instant(t, tc.end)
			for _, at := range []struct {
				now    time.Time
				active bool
				change time.Time
			}{{begin.Add(-time.Minute), false, begin}, {begin, true, end}, {end.Add(-time.Nanosecond), true, end}} {
				active, change := w.At(at.now)
				g.Expect(active).To(Equal(at.active))
				g.Expect(change).To(Equal(at.change))
			}
			active, _ := w.At(end)
			g.Expect(active).To(BeFalse())
		})
	}
}

// TestG12AndG13BadWindows: each is refused with the field and what to write; nothing panics.
func TestG12AndG13BadWindows(t *testing.T) {
	t.Parallel()
	good := window.Spec{Type: window.Deny, Schedule: "0 9 * * 1-5", Duration: 8 * time.Hour, TimeZone: "Europe/Riga"}
	day := time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		edit         func(*window.Spec)
		field, about string
	}{
		"no type":              {func(s *window.Spec) { s.Type = "" }, "type", "neither Allow nor Deny"},
		"a misspelt zone":      {func(s *window.Spec) { s.TimeZone = "Europe/Rga" }, "timeZone", `"Europe/Rga" is not a time zone`},
		"a zone of no machine": {func(s *window.Spec) { s.TimeZone = "Local" }, "timeZone", "needs a time zone"},
		"no zone":              {func(s *window.Spec) { s.TimeZone = "" }, "timeZone", "needs a time zone"},
		"a path":               {func(s *window.Spec) { s.TimeZone = "../../etc/passwd" }, "timeZone", "is not a time zone"},
		"TZ=":                  {func(s *window.Spec) { s.Schedule = "TZ=" }, "schedule", "not five fields"},
		"CRON_TZ=":             {func(s *window.Spec) { s.Schedule = "CRON_TZ=UTC 0 9 * * *" }, "schedule", "not five fields"},
		"@every":               {func(s *window.Spec) { s.Schedule = "@every 1s" }, "schedule", "not five fields"},
		"@daily":               {func(s *window.Spec) { s.Schedule = "@daily" }, "schedule", "not five fields"},
		"each minute":          {func(s *window.Spec) { s.Schedule = "* * * * *" }, "schedule", "the minute"},
		"some minutes":         {func(s *window.Spec) { s.Schedule = "0,30 * * * *" }, "schedule", "the minute"},
		"a minute too much":    {func(s *window.Spec) { s.Schedule = "60 * * * *" }, "schedule", "60"},
		"seconds":              {func(s *window.Spec) { s.Schedule = "0 0 9 * * *" }, "schedule", "not five fields"},
		"Sunday as 7":          {func(s *window.Spec) { s.Schedule = "0 9 * * 7" }, "schedule", "0 is Sunday"},
		"two kinds of days":    {func(s *window.Spec) { s.Schedule = "0 9 13 * 5" }, "schedule", "set one of them to *"},
		"never":                {func(s *window.Spec) { s.Schedule = "0 9 30 2 *" }, "schedule", "never occurs"},
		"a step of zero":       {func(s *window.Spec) { s.Schedule = "0 */0 * * *" }, "schedule", ""},
		"no duration":          {func(s *window.Spec) { s.Duration = 0 }, "duration", "between 1m and 744h"},
		"too long":             {func(s *window.Spec) { s.Duration = 745 * time.Hour }, "duration", "between 1m and 744h"},
		"ends before it":       {func(s *window.Spec) { s.From, s.Until = day, day }, "until", "is not after from"},
		"no schedule":          {func(s *window.Spec) { s.Schedule = "" }, "duration", "needs a schedule"},
		"only a zone":          {func(s *window.Spec) { s.Schedule, s.Duration = "", 0 }, "timeZone", "needs a schedule"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			s := good
			tc.edit(&s)
			_, err := window.Parse(s)
			var of *window.Error
			g.Expect(errors.As(err, &of)).To(BeTrue())
			g.Expect(of.Field).To(Equal(tc.field))
			g.Expect(err).To(MatchError(ContainSubstring(tc.about)))
		})
	}
	_, err := window.Parse(good)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

// FuzzParse: no schedule or zone makes it panic, and a valid one has an answer.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 9 * * 1-5", "TZ=", "@every 1s", "0 0 29 2 *", "5 */0 1 1 ?", "0 9-1 * * *", "0 a-b/c ,, - /"} {
		f.Add(s, "Europe/Riga")
	}
	f.Fuzz(func(_ *testing.T, schedule, zone string) {
		w, err := window.Parse(window.Spec{Type: window.Deny, Schedule: schedule, Duration: time.Hour, TimeZone: zone})
		if err == nil {
			w.At(time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC))
		}
	})
}

// TestWindowsWithoutASchedule: always, or between two instants.
func TestWindowsWithoutASchedule(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	from, until := time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 4, 0, 0, 0, 0, time.UTC)
	at := func(s window.Spec, now time.Time) string {
		active, change := parse(t, s).At(now)
		if change.IsZero() {
			return fmt.Sprint(active)
		}
		return fmt.Sprint(active, " until ", change.Format(time.DateOnly))
	}
	stop := window.Spec{Type: window.Deny}
	g.Expect(at(stop, from)).To(Equal("true"))
	freeze := window.Spec{Type: window.Deny, From: from, Until: until}
	g.Expect(at(freeze, from.Add(-time.Nanosecond))).To(Equal("false until 2026-12-20"))
	g.Expect(at(freeze, from)).To(Equal("true until 2027-01-04"))
	g.Expect(at(freeze, until)).To(Equal("false"))
	office := window.Spec{Type: window.Allow, Schedule: "0 9 * * 1-5", Duration: 8 * time.Hour, TimeZone: "UTC", From: from, Until: until}
	g.Expect(at(office, from.Add(-48*time.Hour))).To(Equal("false until 2026-12-21"), "not before")
	g.Expect(at(office, until)).To(Equal("false"))
	cut := office
	cut.From = time.Date(2026, 12, 21, 12, 0, 0, 0, time.UTC)
	active, change := parse(t, cut).At(from)
	g.Expect(active).To(BeFalse())
	g.Expect(change).To(Equal(cut.From), "the first one is cut")
}

// TestAnEndThatBeginsTheNextIsNoChange: of windows that follow each other, or overlap.
func TestAnEndThatBeginsTheNextIsNoChange(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	now := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	always := parse(t, window.Spec{Type: window.Deny, Schedule: "0 * * * *", Duration: time.Hour, TimeZone: "Europe/Paris"})
	active, change := always.At(now)
	g.Expect(active).To(BeTrue())
	g.Expect(change).To(BeZero(), "no known end, also over the gap")
	leap := parse(t, window.Spec{Type: window.Deny, Schedule: "0 0 29 2 *", Duration: time.Hour, TimeZone: "UTC"})
	active, change = leap.At(now)
	g.Expect(active).To(BeFalse())
	g.Expect(change).To(BeZero(), "in 2028")
	days := parse(t, window.Spec{Type: window.Allow, Schedule: "0 0 * * 1-5", Duration: 24 * time.Hour, TimeZone: "UTC"})
	active, change = days.At(now)
	g.Expect(active).To(BeFalse())
	g.Expect(change).To(Equal(time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC)))
	active, change = days.At(change)
	g.Expect(active).To(BeTrue())
	g.Expect(change).To(Equal(time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC)), "Saturday")
}

// TestG15AndG48Judge: a Deny that ends outside of an Allow, and an Allow of a tenant under one of
// the administrator.
func TestG15AndG48Judge(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	monday := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	office := parse(t, window.Spec{Type: window.Allow, Schedule: "0 9 * * 1-5", Duration: 8 * time.Hour, TimeZone: "UTC"})
	freeze := parse(t, window.Spec{Type: window.Deny, Until: monday.Add(20 * time.Hour)})
	v := window.Judge(monday.Add(10*time.Hour), []*window.Window{office, freeze})
	g.Expect(v).To(Equal(window.Verdict{Group: 0, By: 1, Change: monday.Add(33 * time.Hour)}), "on Tuesday at 9, not when the Deny ends")

	whenever := parse(t, window.Spec{Type: window.Allow})
	v = window.Judge(monday.Add(3*time.Hour), []*window.Window{office}, []*window.Window{whenever})
	g.Expect(v).To(Equal(window.Verdict{Group: 0, By: 0, Change: monday.Add(9 * time.Hour)}))
	v = window.Judge(monday.Add(10*time.Hour), []*window.Window{office}, []*window.Window{whenever})
	g.Expect(v).To(Equal(window.Verdict{Open: true, Group: -1, By: -1, Change: monday.Add(17 * time.Hour)}))
	g.Expect(window.Judge(monday)).To(Equal(window.Verdict{Open: true, Group: -1, By: -1}), "no windows")
	stop := parse(t, window.Spec{Type: window.Deny})
	g.Expect(window.Judge(monday, []*window.Window{stop}, []*window.Window{whenever})).To(Equal(window.Verdict{}), "no known end")
	early := parse(t, window.Spec{Type: window.Allow, Schedule: "0 7 * * *", Duration: time.Hour, TimeZone: "UTC"})
	g.Expect(window.Judge(monday, []*window.Window{office, early})).To(Equal(window.Verdict{By: 1, Change: monday.Add(7 * time.Hour)}), "the next to open")
}

// BenchmarkJudge of five windows, as of one environment.
func BenchmarkJudge(b *testing.B) {
	var all []*window.Window
	for i, schedule := range []string{"0 9 * * 1-5", "0 22 * * 6", "0 0 1 * *", "30 12 * * *"} {
		kind := window.Deny
		if i == 0 {
			kind = window.Allow
		}
		all = append(all, parse(b, window.Spec{Type: kind, Schedule: schedule, Duration: 4 * time.Hour, TimeZone: "Europe/Riga"}))
	}
	all = append(all, parse(b, window.Spec{Type: window.Deny, From: time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC)}))
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		window.Judge(at, all)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	t.Parallel()
	_, err := window.Parse(window.Spec{Type: window.Deny, Schedule: strings.Repeat("0 ", 5), Duration: time.Second, TimeZone: "UTC"})
	NewWithT(t).Expect(err).To(MatchError(HavePrefix("schedule: ")))
}

// What a window remembers is what a new one computes, in every order of instants.
func TestRememberedResults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := window.Spec{
			Type:     rapid.SampledFrom([]window.Type{window.Allow, window.Deny}).Draw(t, "type"),
			Schedule: rapid.SampledFrom([]string{"0 9 * * 1-5", "30 2 * * 0", "0 22 * * *", "0 0 1 * *", "0 0 29 2 *", "15 2 * * *"}).Draw(t, "schedule"),
			Duration: time.Duration(rapid.IntRange(1, 744).Draw(t, "hours")) * time.Hour,
			TimeZone: rapid.SampledFrom([]string{"UTC", "Europe/Riga", "Australia/Lord_Howe", "America/New_York"}).Draw(t, "zone"),
		}
		if rapid.Bool().Draw(t, "limited") {
			spec.From = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
			spec.Until = spec.From.Add(time.Duration(rapid.IntRange(1, 20000).Draw(t, "for")) * time.Hour)
		}
		w, err := window.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 40 {
			at := begin.Add(time.Duration(rapid.IntRange(0, 600*24*60).Draw(t, "minute")) * time.Minute)
			fresh, err := window.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			active, change := w.At(at)
			wantActive, wantChange := fresh.At(at)
			if active != wantActive || !change.Equal(wantChange) {
				t.Fatalf("at %s: %v until %s, not %v until %s", at, active, change, wantActive, wantChange)
			}
		}
	})
}
