package backoff

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter bounds what RetryAfter returns: a service cannot silence the hub for
// longer.
const MaxRetryAfter = time.Hour

// RetryAfter reads the header Retry-After of an answer, in seconds or as an HTTP date
// (RFC 9110, 10.2.3). The result is from 0 to MaxRetryAfter; it is false if the header
// is missing or cannot be read. A date counts from the answer's own Date, so clocks
// that differ do not matter, or from now if there is none.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, ok := secondsOf(value); ok {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return bound(at.Sub(ServerTime(h, now))), true
	}
	return 0, false
}

// ServerTime returns the answer's Date, or now if it has none that can be read.
func ServerTime(h http.Header, now time.Time) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return now
}

// secondsOf a decimal number, from 0 to those of MaxRetryAfter.
func secondsOf(value string) (int64, bool) {
	const most = int64(MaxRetryAfter / time.Second)
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err == nil {
		return min(max(seconds, 0), most), true
	}
	if value != "" && strings.Trim(value, "0123456789") == "" {
		return most, true // More digits than fit.
	}
	return 0, false
}

func bound(d time.Duration) time.Duration { return min(max(d, 0), MaxRetryAfter) }
