package promotion

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// A pull request that is open for days is checked once in minutes, also if each check makes
// an attempt, as with autoMerge. A new pull request is checked soon, even if its approval
// took long.
func TestChecksSlowWithAge(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	started := ago(48 * time.Hour)
	for name, tc := range map[string]struct {
		status   capstanv1.PromotionStatus
		from, to time.Duration
	}{
		"old, tried a moment ago": {capstanv1.PromotionStatus{StartTime: &started}, 4 * time.Minute, 6 * time.Minute},
		"old, approved a moment ago": {capstanv1.PromotionStatus{
			StartTime: &started, Approval: &capstanv1.ApprovalRecord{ApprovalTime: ago(time.Second)},
		}, 12 * time.Second, 18 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := &capstanv1.Promotion{Status: tc.status}
			p.Status.Attempt = &capstanv1.Attempt{Number: 7, StartTime: metav1.NewMicroTime(now.Add(-time.Second))}
			next := newFollows(testclock.NewFakeClock(now)).checked(p)
			g.Expect(next).To(BeNumerically(">=", tc.from))
			g.Expect(next).To(BeNumerically("<=", tc.to))
		})
	}
}
