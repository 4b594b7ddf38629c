package view

import "time"

// The words of credentials.
const (
	credentialExpired = "Expired"
	credentialDay     = "Expires within 24 h"
	credentialWeek    = "Expires within 7 days"
	credentialLate    = "Not renewed in time"
	credentialSoon    = "Renewal is due"
	credentialValid   = "Valid"
	credentialUnknown = "Expiry unknown"
)

const (
	day = 24 * time.Hour
	// longCredential is the shortest lifetime of credentials that a person, or a yearly job, renews: for these, a
	// week and a day are warnings in time. A program renews others, when a known share of their life is left.
	longCredential = 15 * day
	// badWithin and warnWithin are the times before the expiry of long credentials.
	badWithin, warnWithin = day, 7 * day
	// warnShare and badShare are the shares of life, as divisors, that are left of other credentials. A program has
	// usually renewed them before a fifth is left, as the kubelet does with tokens. With less than a twentieth left, it
	// has failed more than once.
	warnShare, badShare = 5, 20
)

// credentialMark returns the Mark of credentials that were issued at a time and expire at another. Each may be zero for
// not known.
func credentialMark(issued, expiry, now time.Time) Mark {
	if expiry.IsZero() {
		return Mark{Idle, credentialUnknown}
	}
	left, life := expiry.Sub(now), expiry.Sub(issued)
	long := issued.IsZero() || life >= longCredential
	switch {
	case left <= 0:
		return Mark{Bad, credentialExpired}
	case long && left <= badWithin:
		return Mark{Bad, credentialDay}
	case long && left <= warnWithin:
		return Mark{Warning, credentialWeek}
	case !long && left < life/badShare:
		return Mark{Bad, credentialLate}
	case !long && left < life/warnShare:
		return Mark{Warning, credentialSoon}
	}
	return Mark{Good, credentialValid}
}
