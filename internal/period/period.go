// Package period parses and prints durations of specs.
//
// Purpose: soaks, windows, verifications and checks have durations as texts, with limits. All of them
// accept the same texts and give the same errors.
//
// Contract: a duration is in whole seconds, as Go parses it. Text returns what Parse accepts, in the form
// that users write. All functions are pure.
//
// Locking: none.
//
// Trade-offs: no days and weeks, whose length depends on the calendar.
package period

import (
	"fmt"
	"strings"
	"time"
)

// Parse parses a duration in whole seconds, within limits. The error says what is wrong with it.
func Parse(text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration, such as 2h or 90m", text)
	case d < least || d > most || d%time.Second != 0:
		return 0, fmt.Errorf("%s is not from %s to %s, in whole seconds", text, Text(least), Text(most))
	}
	return d, nil
}

// Text returns a duration as users write it: 2h, 90m, 1h10m0s without its zeros. It leaves out parts of a
// second.
func Text(d time.Duration) string {
	s := d.Truncate(time.Second).String()
	if s == "0s" {
		return s
	}
	s = strings.TrimSuffix(s, "m0s")
	if s != d.Truncate(time.Second).String() {
		s += "m"
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
