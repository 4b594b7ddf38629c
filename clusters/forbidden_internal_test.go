package clusters

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// An administrator grants the right to a Secret: the hub notices within a minute, and does not
// wait for a backoff that grew in the meantime.
func TestGrantedSecretIsReadWithinAMinute(t *testing.T) {
	g := NewWithT(t)
	timings := DefaultTimings()
	for n := range promptChecks {
		g.Expect(forbiddenWait(n, timings)).To(Equal(time.Minute))
	}
	g.Expect(forbiddenWait(promptChecks, timings)).To(Equal(10*time.Minute), "later, it is unlikely that someone waits")
}
