package window

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // Containers have no zone database.

	"github.com/robfig/cron/v3"
)

// Type of a window.
type Type string

// In an Allow, promotions may begin; in a Deny, they may not.
const (
	Allow Type = "Allow"
	Deny  Type = "Deny"
)

const (
	// Durations are within these.
	minDuration, maxDuration = time.Minute, 31 * 24 * time.Hour
	// horizon is how far the next change of a window, or of several, is searched, and maxChanges
	// over how many changes.
	horizon    = 400 * 24 * time.Hour
	maxChanges = 256
	// margin is how much earlier or later than in UTC a civil time may occur, and the length of
	// the longest gap.
	margin = 2 * searched
)

// Spec of a window. A window without times is always active.
type Spec struct {
	Type Type
	// Schedule has the five fields of cron: minute, hour, day of month, month, day of week
	// (0 is Sunday). The minute is one number. The window begins at these civil times of
	// TimeZone, and lasts for Duration, 1 minute to 31 days.
	Schedule string
	Duration time.Duration
	// TimeZone is a name of the IANA database, such as Europe/Riga.
	TimeZone string
	// From and Until restrict the window to [From, Until); zero for no limit. With a Schedule, its
	// occurrences are cut at them.
	From, Until time.Time
}

// Error is a field of a Spec that is not valid.
type Error struct {
	// Field as in YAML, such as timeZone.
	Field string
	// Problem says what is wrong with it, and what to write.
	Problem string
}

// Error implements error.
func (e *Error) Error() string { return e.Field + ": " + e.Problem }

// Window is a valid Spec. It does not change; it remembers what it has computed.
type Window struct {
	spec     Spec
	zone     *time.Location
	schedule *cron.SpecSchedule // nil for none

	// mu guards lockedKnown and lockedNext.
	mu sync.Mutex
	// lockedKnown are results of At.
	lockedKnown [remembered]known
	// lockedNext is where the next result replaces one.
	lockedNext int
}

// remembered is how many results a window remembers: a judgement asks for several instants, and the next one for the
// same.
const remembered = 8

// known is a result of At for all instants in [from, change).
type known struct {
	from, change time.Time
	active       bool
}

// Type of the window.
func (w *Window) Type() Type { return w.spec.Type }

// Parse makes a window. The error is an *Error.
func Parse(s Spec) (*Window, error) {
	if s.Type != Allow && s.Type != Deny {
		return nil, &Error{"type", fmt.Sprintf("%q is neither Allow nor Deny", s.Type)}
	}
	if !s.Until.IsZero() && !s.From.Before(s.Until) {
		return nil, &Error{"until", fmt.Sprintf("%s is not after from (%s)", s.Until.UTC().Format(time.RFC3339), s.From.UTC().Format(time.RFC3339))}
	}
	w := &Window{spec: s}
	if s.Schedule == "" {
		switch {
		case s.Duration != 0:
			return nil, &Error{"duration", "it needs a schedule; for a single window set from and until"}
		case s.TimeZone != "":
			return nil, &Error{"timeZone", "it needs a schedule; from and until have a zone of their own"}
		}
		return w, nil
	}
	var err error
	if w.schedule, err = parseSchedule(s.Schedule); err != nil {
		return nil, &Error{"schedule", err.Error()}
	}
	if s.Duration < minDuration || s.Duration > maxDuration {
		return nil, &Error{"duration", fmt.Sprintf("%s is not between 1m and 744h", s.Duration)}
	}
	if w.zone, err = Zone(s.TimeZone); err != nil {
		return nil, &Error{"timeZone", err.Error()}
	}
	return w, nil
}

const fields = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow

// parseSchedule parses the five fields.
func parseSchedule(text string) (*cron.SpecSchedule, error) {
	parts := strings.Fields(text)
	const minute, day, weekday, count = 0, 2, 4, 5
	if len(parts) != count || strings.ContainsAny(text, "@=") {
		return nil, fmt.Errorf(`%q is not five fields "minute hour day month weekday", such as "0 9 * * 1-5"`, text)
	}
	if _, err := strconv.ParseUint(parts[minute], 10, 8); err != nil {
		return nil, fmt.Errorf("the minute %q is not one number from 0 to 59", parts[minute])
	}
	restricted := func(field string) bool { return field != "*" && field != "?" }
	if restricted(parts[day]) && restricted(parts[weekday]) {
		return nil, errors.New("day of month and day of week are both set, of which cron would take either: set one of them to *")
	}
	// The parser panics on some text; what it may not get was refused above.
	parsed, err := cron.NewParser(fields).Parse(strings.Join(parts, " "))
	if err != nil {
		return nil, fmt.Errorf("%w; 0 is Sunday", err)
	}
	schedule, is := parsed.(*cron.SpecSchedule)
	if !is {
		return nil, fmt.Errorf("%q has no fields", text) // Cannot happen: only texts with @ have none.
	}
	schedule.Location = time.UTC // It is walked in civil time.
	if schedule.Next(time.Unix(0, 0).UTC()).IsZero() {
		return nil, fmt.Errorf("%q never occurs", text)
	}
	return schedule, nil
}

// span is a time in which a window is active: [begin, end). The zero end is none.
type span struct{ begin, end time.Time }

// occurrence maps the occurrence of a schedule that begins at a civil time; false if it is empty.
func (w *Window) occurrence(civil time.Time) (span, bool) {
	firstBegin, lastBegin := readings(civil, w.zone)
	firstEnd, lastEnd := readings(civil.Add(w.spec.Duration), w.zone)
	s := span{firstBegin, lastEnd}
	if w.spec.Type == Allow {
		if s = (span{lastBegin, firstEnd}); !s.begin.Before(s.end) {
			s.end = lastEnd
		}
	} else if !s.begin.Before(s.end) { // In a gap.
		s.end = s.begin.Add(w.spec.Duration)
	}
	return w.cut(s)
}

// cut restricts a span to From and Until; false if nothing is left.
func (w *Window) cut(s span) (span, bool) {
	if s.begin.Before(w.spec.From) {
		s.begin = w.spec.From
	}
	if until := w.spec.Until; !until.IsZero() && (s.end.IsZero() || s.end.After(until)) {
		s.end = until
	}
	return s, s.end.IsZero() || s.begin.Before(s.end)
}

// At returns whether the window is active at an instant, and when that changes next; zero if it does
// not within 400 days, or if more than 256 occurrences follow each other without a pause.
func (w *Window) At(at time.Time) (active bool, change time.Time) {
	if w.schedule == nil {
		s, _ := w.cut(span{})
		switch {
		case at.Before(s.begin):
			return false, s.begin.UTC()
		case s.end.IsZero():
			return true, time.Time{}
		case at.Before(s.end):
			return true, s.end.UTC()
		}
		return false, time.Time{}
	}
	if k, is := w.recall(at); is {
		return k.active, k.change
	}
	active, change = w.search(at)
	if !change.IsZero() { // Else a later instant may have one, within its own horizon.
		w.remember(known{at, change, active})
	}
	return active, change
}

// recall returns the remembered result for an instant: it holds until it changes.
func (w *Window) recall(at time.Time) (known, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.lockedKnown {
		if !at.Before(k.from) && at.Before(k.change) {
			return k, true
		}
	}
	return known{}, false
}

func (w *Window) remember(k known) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lockedKnown[w.lockedNext] = k
	w.lockedNext = (w.lockedNext + 1) % remembered
}

// search is At of a window with a schedule.
func (w *Window) search(at time.Time) (active bool, change time.Time) {
	// The occurrence that may be active began at most its duration ago.
	civil := civilOf(at, w.zone).Add(-w.spec.Duration - margin)
	limit := civilOf(at, w.zone).Add(horizon)
	if until := w.spec.Until; !until.IsZero() && until.Before(at.Add(horizon)) {
		limit = civilOf(until, w.zone).Add(margin)
	}
	for joined := 0; ; {
		if civil = w.schedule.Next(civil); civil.IsZero() {
			return active, change
		}
		beyond := civil.After(limit)
		s, some := w.occurrence(civil)
		switch {
		case !some || !at.Before(s.end):
		case active && s.begin.After(change):
			return true, change
		case active:
			change = later(change, s.end) // It begins before the other ends, or when it ends.
			if s.begin.After(at) {
				joined++
			}
		case at.Before(s.begin) && beyond:
		case at.Before(s.begin):
			return false, s.begin
		default:
			active, change = true, s.end
		}
		switch {
		case active && (joined > maxChanges || change.After(at.Add(horizon))):
			return true, time.Time{}
		case beyond:
			return active, change
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Verdict says whether promotions may begin.
type Verdict struct {
	Open bool
	// By is the window that closes, as its index in one of the groups: an active Deny, else an Allow
	// that is not active, of which the next to open. Group and By are -1 when open.
	Group, By int
	// Change is when Open changes next; zero if it does not within 400 days or 256 changes of
	// windows.
	Change time.Time
}

// Judge combines groups of windows, such as those of the administrator and those of a Pipeline.
// Promotions may begin while no Deny is active and, in each group that has an Allow, one is: so the
// Allow of one group does not open what another group keeps closed.
func Judge(at time.Time, groups ...[]*Window) Verdict {
	v, next := judge(at, groups)
	for range maxChanges {
		if next.IsZero() || next.Sub(at) > horizon {
			return v
		}
		then, after := judge(next, groups)
		if then.Open != v.Open {
			v.Change = next
			return v
		}
		next = after
	}
	return v
}

// judge judges one instant. Until next, Open does not change; zero if it never does.
func judge(at time.Time, groups [][]*Window) (v Verdict, next time.Time) {
	v = Verdict{Open: true, Group: -1, By: -1}
	// What is open closes at the first of some instants, what is closed opens at the last of others.
	closes, opens := limit{}, limit{}
	for g, group := range groups {
		for i, w := range group {
			if w.Type() != Deny {
				continue
			}
			active, change := w.At(at)
			if !active {
				closes.first(change)
				continue
			}
			if v.Open {
				v = Verdict{Group: g, By: i}
			}
			if change.IsZero() {
				return v, change // Nothing opens what this one closes.
			}
			opens.last(change)
		}
	}
	for g, group := range groups {
		var allows, allowed bool
		until, from, by := limit{}, limit{}, -1
		for i, w := range group {
			if w.Type() == Deny {
				continue
			}
			allows = true
			active, change := w.At(at)
			if active {
				allowed = true
				until.last(change)
				continue
			}
			if by < 0 || !change.IsZero() && (from.at.IsZero() || change.Before(from.at)) {
				by = i
			}
			from.first(change)
		}
		switch {
		case allowed:
			closes.first(until.at)
		case allows:
			opens.last(from.at)
			if v.Open {
				v = Verdict{Group: g, By: by}
			}
		}
	}
	if v.Open {
		return v, closes.at
	}
	return v, opens.at
}

// limit is the first or the last of some instants, where zero is never.
type limit struct {
	at    time.Time
	never bool
}

func (l *limit) first(t time.Time) {
	if !t.IsZero() && (l.at.IsZero() || t.Before(l.at)) {
		l.at = t
	}
}

func (l *limit) last(t time.Time) {
	if l.never = l.never || t.IsZero(); l.never {
		l.at = time.Time{}
	} else {
		l.at = later(l.at, t)
	}
}
