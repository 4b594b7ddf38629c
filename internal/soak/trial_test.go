package soak

import (
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestTrial(t *testing.T) {
	g := NewWithT(t)
	now := epoch
	var trial Trial
	note := func(v Verdict, d time.Duration) {
		trial = trial.Note(now, v)
		now = now.Add(d)
		trial = trial.At(now)
	}
	note(Unobserved, time.Hour)
	g.Expect(trial.Sums()).To(BeZero())
	note(Ready, time.Minute)
	note(Progressing, time.Hour)
	g.Expect(trial.Sums()).To(Equal(Sums{State: Progressing, Ready: time.Minute, Observed: time.Minute}), "what comes of it is not known")
	note(Ready, time.Minute)
	g.Expect(trial.Sums()).To(Equal(Sums{State: Ready, Ready: 2 * time.Minute, Observed: 2 * time.Minute}))
	note(Unready, time.Minute)
	note(Unobserved, 24*time.Hour)
	note(Unready, time.Minute)
	g.Expect(trial.Sums()).To(Equal(Sums{State: Unready, Ready: 2 * time.Minute, Unready: 2 * time.Minute, Observed: 4 * time.Minute}), "a partition is no time of unreadiness")
	note(Ready, time.Minute)
	note(Progressing, time.Minute)
	note(Unready, time.Minute)
	g.Expect(trial.Sums()).To(Equal(Sums{State: Unready, Ready: 3 * time.Minute, Unready: 2 * time.Minute, Observed: 6 * time.Minute}), "it was unready since it progressed, which counts to no deadline")

	resumed := ResumeTrial(trial.Sums()).Note(now.Add(time.Hour), Unready)
	g.Expect(resumed.At(now.Add(time.Hour + time.Second)).Sums()).To(Equal(Sums{State: Unready, Ready: 3 * time.Minute, Unready: 2*time.Minute + time.Second, Observed: 6*time.Minute + time.Second}))
	g.Expect(trial.Note(now.Add(-time.Hour), Ready).Sums().Ready).To(Equal(3*time.Minute), "time never runs backwards")
}

// A restart of the process neither makes a verdict earlier nor finds more time than there was: what was
// counted since the sums were stored is lost.
func TestARestartWinsNothingForATrial(t *testing.T) {
	g := NewWithT(t)
	random := rand.New(rand.NewPCG(7, 0))
	for range 2000 {
		now, ready, observed := epoch, time.Duration(0), time.Duration(0)
		var whole, restarted Trial
		stored := restarted.Sums()
		for range random.IntN(40) {
			v := []Verdict{Ready, Ready, Unready, Progressing, Unobserved}[random.IntN(5)]
			whole, restarted = whole.Note(now, v), restarted.Note(now, v)
			d := time.Duration(random.IntN(600)) * time.Second
			now = now.Add(d)
			if v == Ready {
				ready += d
			}
			if v == Ready || v == Unready {
				observed += d
			}
			whole, restarted = whole.At(now), restarted.At(now)
			if random.IntN(3) == 0 {
				stored = restarted.Sums()
			}
			if random.IntN(4) == 0 {
				restarted = ResumeTrial(stored)
			}
			g.Expect(whole.Sums().Ready).To(Equal(ready))
			g.Expect(whole.Sums().Observed).To(Equal(observed))
			g.Expect(restarted.Sums().Ready).To(BeNumerically("<=", ready))
			g.Expect(restarted.Sums().Observed).To(BeNumerically("<=", observed))
		}
	}
}
