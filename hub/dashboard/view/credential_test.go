package view

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// A long credential warns a week and a day before its end, a short one by the share of its life that is left.
func TestCredentialMark(t *testing.T) {
	const year, hour = 365 * day, time.Hour
	for name, tc := range map[string]struct {
		life, left time.Duration // life 0: the issue time is not known.
		want       Mark
	}{
		"a year, fresh":               {year, year, Mark{Good, "Valid"}},
		"a year, 8 days left":         {year, 8 * day, Mark{Good, "Valid"}},
		"a year, 7 days left":         {year, 7 * day, Mark{Warning, "Expires within 7 days"}},
		"a year, 24 h left":           {year, day, Mark{Bad, "Expires within 24 h"}},
		"a year, over":                {year, 0, Mark{Bad, "Expired"}},
		"15 days are long":            {15 * day, 6 * day, Mark{Warning, "Expires within 7 days"}},
		"less than 15 days are short": {15*day - 1, 6 * day, Mark{Good, "Valid"}},
		"an hour, fresh":              {hour, hour, Mark{Good, "Valid"}},
		"an hour, a fifth left":       {hour, 12 * time.Minute, Mark{Good, "Valid"}},
		"an hour, less than a fifth":  {hour, 12*time.Minute - 1, Mark{Warning, "Renewal is due"}},
		"an hour, a twentieth left":   {hour, 3 * time.Minute, Mark{Warning, "Renewal is due"}},
		"an hour, less than that":     {hour, 3*time.Minute - 1, Mark{Bad, "Not renewed in time"}},
		"an hour, over":               {hour, -1, Mark{Bad, "Expired"}},
		"not known, but an hour left": {0, hour, Mark{Bad, "Expires within 24 h"}},
		"not known, but 2 days left":  {0, 2 * day, Mark{Warning, "Expires within 7 days"}},
		"not known, and a month left": {0, 30 * day, Mark{Good, "Valid"}},
		"not known, and over":         {0, -time.Second, Mark{Bad, "Expired"}},
	} {
		t.Run(name, func(t *testing.T) {
			expiry := now.Add(tc.left)
			var issued time.Time
			if tc.life != 0 {
				issued = expiry.Add(-tc.life)
			}
			NewWithT(t).Expect(credentialMark(issued, expiry, now)).To(Equal(tc.want))
		})
	}
	NewWithT(t).Expect(credentialMark(now, time.Time{}, now)).To(Equal(Mark{Idle, "Expiry unknown"}))
}
