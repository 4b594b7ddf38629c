package backoff_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/backoff"
)

var now = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

func header(after, date string) http.Header {
	h := http.Header{}
	if after != "" {
		h.Set("Retry-After", after)
	}
	if date != "" {
		h.Set("Date", date)
	}
	return h
}

func TestRetryAfter(t *testing.T) {
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		after, date string
		want        time.Duration
		found       bool
	}{
		"missing":                       {"", "", 0, false},
		"blank":                         {"  ", "", 0, false},
		"seconds":                       {"17", "", 17 * time.Second, true},
		"seconds with blanks":           {" 17 ", "", 17 * time.Second, true},
		"no time":                       {"0", "", 0, true},
		"less than no time":             {"-5", "", 0, true},
		"an hour":                       {"3600", "", time.Hour, true},
		"more than an hour":             {"3601", "", time.Hour, true},
		"more than a number holds":      {"99999999999999999999999", "", time.Hour, true},
		"a fraction":                    {"1.5", "", 0, false},
		"words":                         {"soon", "", 0, false},
		"a date":                        {at(90 * time.Second), "", 90 * time.Second, true},
		"a date in the past":            {at(-time.Minute), "", 0, true},
		"a date far away":               {at(48 * time.Hour), "", time.Hour, true},
		"a date by the server's clock":  {at(time.Minute), at(30 * time.Second), 30 * time.Second, true},
		"a date and a Date of rubbish":  {at(time.Minute), "yesterday", time.Minute, true},
		"a date of RFC 850":             {now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT"), "", time.Minute, true},
		"a date of ANSI C":              {now.Add(time.Minute).Format(time.ANSIC), "", time.Minute, true},
		"seconds need no clock of both": {"7", at(-time.Hour), 7 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			wait, found := backoff.RetryAfter(header(tc.after, tc.date), now)
			g.Expect(wait).To(Equal(tc.want))
			g.Expect(found).To(Equal(tc.found))
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"", "5", "-1", "99999999999999999999", "Sun, 22 Nov 2026 08:00:01 GMT", "\xff"} {
		f.Add(value, value)
	}
	f.Fuzz(func(t *testing.T, after, date string) {
		wait, found := backoff.RetryAfter(header(after, date), now)
		if wait < 0 || wait > backoff.MaxRetryAfter || !found && wait != 0 {
			t.Fatalf("%q is %s, %t", after, wait, found)
		}
	})
}
