package catalogue

import (
	"cmp"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Options of an EC2 catalogue.
type Options struct {
	// AWS is how it is called.
	AWS *awsconfig.Config
	// Registerer of the metrics; not registered when nil.
	Registerer prometheus.Registerer
	// Timings, where they are not zero, replace the defaults.
	Timings Timings
	// Clock that ages are told by; the real one when nil.
	Clock  clock.WithTicker
	Logger logr.Logger
}

// Timings of a catalogue. A zero field means its default.
type Timings struct {
	// Refresh (24 h, ±10 %) between listings of a region that is asked about. New
	// types are found at once by a look-up; what EC2 says of an old one rarely changes.
	Refresh time.Duration
	// MostStale (30 d) is how long an answer is given that EC2 has not repeated.
	MostStale time.Duration
	// Negative (15 min) until EC2 is asked again for a type that it did not have.
	Negative time.Duration
	// Retry (10 s) after a failure doubles up to RetryMost (10 min).
	Retry time.Duration
	// RetryDenied (1 min) is the same for what people must mend, up to RetryMost.
	RetryDenied time.Duration
	RetryMost   time.Duration
	// Call (45 s) to EC2, for one page, with all its attempts.
	Call time.Duration
}

// DefaultTimings are those that their fields' comments name.
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
