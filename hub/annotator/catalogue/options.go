package catalogue

import (
	"cmp"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Options are the options of New.
type Options struct {
	// AWS is the configuration of the calls.
	AWS *awsconfig.Config
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	// Timings replace the defaults, where they are not zero.
	Timings Timings
	// Clock for ages and waits; the real one when nil.
	Clock  clock.WithTicker
	Logger logr.Logger
}

// Timings are the intervals of a catalogue. A zero field means its default.
type Timings struct {
	// Refresh (24 h, ±10 %) is the time between listings of a region with queries. A lookup
	// finds new types at once; the data of existing types rarely changes.
	Refresh time.Duration
	// MostStale (30 d) is how long an answer is used that EC2 has not repeated.
	MostStale time.Duration
	// Negative (15 min) is the wait until the next lookup of a type that EC2 did not have.
	Negative time.Duration
	// Retry (10 s) is the wait after a failure. It doubles up to RetryMost (10 min).
	Retry time.Duration
	// RetryDenied (1 min) is the same for failures that a person must fix, up to RetryMost.
	RetryDenied time.Duration
	RetryMost   time.Duration
	// Call (45 s) is the time limit of a call for one page, with all its attempts.
	Call time.Duration
}

// DefaultTimings returns the values in the comments of Timings' fields.
func DefaultTimings() Timings {
	return Timings{
		Refresh:     24 * time.Hour,
		MostStale:   30 * 24 * time.Hour,
		Negative:    15 * time.Minute,
		Retry:       10 * time.Second,
		RetryDenied: time.Minute,
		RetryMost:   10 * time.Minute,
		Call:        45 * time.Second,
	}
}

func (t Timings) orDefaults() Timings {
	d := DefaultTimings()
	return Timings{
		Refresh:     cmp.Or(t.Refresh, d.Refresh),
		MostStale:   cmp.Or(t.MostStale, d.MostStale),
		Negative:    cmp.Or(t.Negative, d.Negative),
		Retry:       cmp.Or(t.Retry, d.Retry),
		RetryDenied: cmp.Or(t.RetryDenied, d.RetryDenied),
		RetryMost:   cmp.Or(t.RetryMost, d.RetryMost),
		Call:        cmp.Or(t.Call, d.Call),
	}
}
