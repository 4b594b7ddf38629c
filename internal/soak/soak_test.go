package soak

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	shop  = Subject{Revision: "1.4.2", Digest: "sha256:1", Sequence: 7}
)

const tolerated = 5 * time.Minute

// timeline notes verdicts, each for a time.
type timeline struct {
	Soak
	now time.Time
}

func (l *timeline) note(v Verdict, d time.Duration) {
	l.Soak = l.Note(l.now, shop, v, tolerated)
	l.now = l.now.Add(d)
	l.Soak = l.At(l.now, tolerated)
}

func (l *timeline) counted() time.Duration { return l.Sum().For }

// kustomize-controller is Progressing for some seconds at every interval: the soak ends after two ready
// hours, without a restart.
func TestG1SoakOfAKustomization(t *testing.T) {
	g := NewWithT(t)
	l := timeline{now: epoch}
	for range 12 {
		l.note(Ready, 10*time.Minute)
		l.note(Progressing, 40*time.Second)
	}
	g.Expect(l.counted()).To(Equal(2 * time.Hour))
	left, counts := l.Left(2 * time.Hour)
	g.Expect(left).To(BeZero())
	g.Expect(counts).To(BeFalse(), "it is Progressing")

	l.note(Progressing, 10*time.Minute)
	g.Expect(l.counted()).To(Equal(2*time.Hour), "not judged yet")
	l.note(Unready, time.Second)
	g.Expect(l.counted()).To(BeZero(), "it was not ready from the start of it")
}

func TestG2RestartsOfASoak(t *testing.T) {
	g := NewWithT(t)
	l := timeline{now: epoch}
	l.note(Ready, time.Hour)
	l.note(Unready, 5*time.Minute)
	l.note(Ready, time.Minute)
	g.Expect(l.counted()).To(Equal(61*time.Minute), "a pause")
	l.note(Unready, 3*time.Minute)
	l.note(Progressing, 3*time.Minute)
	g.Expect(l.counted()).To(BeZero(), "one that was not ready progresses")
	l.note(Ready, time.Minute)
	g.Expect(l.counted()).To(Equal(time.Minute))
	other := shop
	other.Digest = "sha256:2"
	g.Expect(l.Note(l.now, other, Ready, tolerated).Sum()).To(Equal(Sum{Subject: other, Verdict: Ready}), "another content of the same version")
	back := shop
	back.Sequence++
	g.Expect(l.Note(l.now, back, Ready, tolerated).Sum().For).To(BeZero(), "it left, and came back")
}

// It was unready for longer than tolerated, and is ready again before anything asked.
func TestUnreadyForTooLongBetweenTwoNotes(t *testing.T) {
	g := NewWithT(t)
	subject := Subject{Revision: "1.1.0", Sequence: 3}
	s := Soak{}.Note(epoch, subject, Ready, tolerated).Note(epoch.Add(time.Hour), subject, Unready, tolerated)
	g.Expect(s.Note(epoch.Add(time.Hour+tolerated), subject, Ready, tolerated).Sum().For).To(Equal(time.Hour), "as long as tolerated")
	g.Expect(s.Note(epoch.Add(time.Hour+tolerated+time.Second), subject, Ready, tolerated).Sum().For).To(BeZero())
}

// A hub that is killed at 1h50 of 2h loses what was counted since it stored the sum.
func TestG4SoakOverARestart(t *testing.T) {
	g := NewWithT(t)
	l := timeline{now: epoch}
	l.note(Ready, 105*time.Minute)
	stored := l.Sum()
	l.note(Ready, 5*time.Minute)
	l.Soak = Resume(stored)
	l.now = l.now.Add(time.Hour)
	l.note(Ready, 0)
	left, counts := l.Left(2 * time.Hour)
	g.Expect(left).To(Equal(15 * time.Minute))
	g.Expect(counts).To(BeTrue())
	g.Expect(StoreEvery(time.Minute)).To(Equal(5 * time.Minute))
	g.Expect(StoreEvery(80 * time.Minute)).To(Equal(10 * time.Minute))
	g.Expect(StoreEvery(48 * time.Hour)).To(Equal(15 * time.Minute))

	l.note(Unready, time.Minute)
	l.Soak = Resume(l.Sum())
	l.note(Unobserved, time.Hour)
	l.note(Ready, time.Minute)
	g.Expect(l.counted()).To(Equal(106*time.Minute), "it is ready again")
	l.note(Unready, time.Minute)
	l.Soak = Resume(l.Sum())
	l.note(Unready, time.Second)
	g.Expect(l.counted()).To(BeZero(), "it is not known for how long it was unready")
}

func TestG6UnreachableInASoak(t *testing.T) {
	g := NewWithT(t)
	l := timeline{now: epoch}
	l.note(Ready, time.Hour)
	l.note(Unobserved, 3*time.Hour)
	g.Expect(l.counted()).To(Equal(time.Hour))
	l.note(Unready, 4*time.Minute)
	l.note(Unobserved, time.Hour)
	l.note(Ready, time.Hour)
	g.Expect(l.counted()).To(Equal(2 * time.Hour))
	l.note(Unready, 4*time.Minute)
	l.note(Unobserved, time.Hour)
	l.note(Unready, 2*time.Minute)
	g.Expect(l.counted()).To(BeZero(), "six minutes were observed")
}

// The time of a commit or of an agreement counts for nothing, nor does a clock that is put back.
func TestG7SoakBeginsWhenItIsReady(t *testing.T) {
	g := NewWithT(t)
	l := timeline{now: epoch}
	l.note(Unobserved, 24*time.Hour)
	l.note(Unready, time.Hour)
	l.note(Progressing, time.Hour)
	g.Expect(l.counted()).To(BeZero())
	l.note(Ready, time.Minute)
	l.note(Ready, -time.Hour)
	g.Expect(l.counted()).To(Equal(time.Minute))
}

// oracle computes the counted time from the verdicts of all seconds, by the definition: the Ready
// seconds after the last stretch without Ready that has too many Unready ones.
func oracle(verdicts []Verdict) (counted time.Duration) {
	settled := Unready
	var unready, progressing int
	for _, v := range verdicts {
		switch {
		case v == Ready:
			settled, unready, progressing = Ready, 0, 0
			counted += time.Second
		case v == Unready || v == Progressing && settled == Unready:
			settled, unready, progressing = Unready, unready+progressing+1, 0
			if time.Duration(unready)*time.Second > tolerated {
				counted = 0
			}
		case v == Progressing:
			progressing++
		}
	}
	return counted
}

// The sum is that of the oracle, and never above the observed ready time. With a restart it is never
// above that of a hub that went on and observed nothing meanwhile.
func TestSums(t *testing.T) {
	g := NewWithT(t)
	seed := rand.Uint64() //nolint:gosec // Any seed is good.
	random := rand.New(rand.NewPCG(seed, 1))
	all := []Verdict{Ready, Ready, Ready, Ready, Progressing, Unready, Unobserved}
	for n := range 300 {
		said := fmt.Sprintf("seed %d, timeline %d", seed, n)
		var verdicts []Verdict
		through, restarted := timeline{now: epoch}, timeline{now: epoch}
		stored := through.Sum()
		ready := time.Duration(0)
		for range 40 {
			v, seconds := all[random.IntN(len(all))], 1+random.IntN(240)
			crash := random.IntN(8) == 0
			if crash {
				v = Unobserved
			}
			if crash {
				restarted.Soak = Resume(stored)
			}
			for range seconds {
				verdicts = append(verdicts, v)
			}
			through.note(v, time.Duration(seconds)*time.Second)
			if next := restarted.Note(restarted.now, shop, v, tolerated).Sum(); next.MustFollow(stored) {
				stored = next // What is counted after it is not stored.
			}
			restarted.note(v, time.Duration(seconds)*time.Second)
			if restarted.Sum().MustFollow(stored) {
				stored = restarted.Sum()
			}
			if v == Ready {
				ready += time.Duration(seconds) * time.Second
			}
			g.Expect(through.counted()).To(Equal(oracle(verdicts)), said)
			g.Expect(through.counted()).To(BeNumerically("<=", ready), said)
			g.Expect(restarted.counted()).To(BeNumerically("<=", through.counted()), said)
		}
	}
}
