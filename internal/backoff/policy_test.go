package backoff_test

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/backoff"
)

func none(int64) int64   { return 0 }
func all(n int64) int64  { return n }
func half(n int64) int64 { return n / 2 }

func TestDoubled(t *testing.T) {
	for name, tc := range map[string]struct {
		first, most time.Duration
		want        []time.Duration
	}{
		"doubles":             {time.Second, time.Minute, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}},
		"ends at a power":     {time.Second, 8 * time.Second, []time.Duration{1, 2, 4, 8, 8}},
		"most is the first":   {5 * time.Second, 5 * time.Second, []time.Duration{5, 5, 5}},
		"most below first":    {60 * time.Second, 30 * time.Second, []time.Duration{30, 30, 30}},
		"first is not a unit": {30 * time.Second, 10 * time.Minute, []time.Duration{30, 60, 120, 240, 480, 600, 600}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := backoff.Policy{First: tc.first, Max: tc.most}
			s := backoff.Sequence{Policy: p}
			last := time.Duration(0)
			for n, want := range tc.want {
				want *= time.Second
				g.Expect(p.Doubled(int64(n))).To(Equal(want))
				g.Expect(p.Wait(int64(n))).To(Equal(want), "without jitter a wait is not random")
				last = p.Next(last)
				g.Expect(last).To(Equal(want))
				g.Expect(s.Wait()).To(Equal(want))
			}
			g.Expect(p.Doubled(-1)).To(Equal(tc.want[0] * time.Second))
			g.Expect(p.Doubled(math.MaxInt64)).To(Equal(tc.most))
		})
	}
}

func TestJitter(t *testing.T) {
	g := NewWithT(t)
	p := backoff.Policy{First: time.Second, Max: time.Minute, Jitter: 0.5}
	for _, tc := range []struct {
		jitter float64
		from   backoff.Rand
		want   time.Duration
	}{
		{0.5, none, 4 * time.Second}, {0.5, half, 3 * time.Second}, {0.5, all, 2 * time.Second},
		{0.25, all, 3 * time.Second}, {1, all, 0}, {0, all, 4 * time.Second},
	} {
		p.Jitter, p.Rand = tc.jitter, tc.from
		g.Expect(p.Wait(2)).To(Equal(tc.want), "%v", tc.jitter)
		g.Expect(p.Doubled(2)).To(Equal(4*time.Second), "jitter changes no later wait")
	}
	g.Expect(backoff.Spread(10*time.Second, 0.2, none)).To(Equal(8 * time.Second))
	g.Expect(backoff.Spread(10*time.Second, 0.2, half)).To(Equal(10 * time.Second))
	g.Expect(backoff.Spread(10*time.Second, 0.2, all)).To(Equal(12 * time.Second))
	g.Expect(backoff.Spread(0, 0.2, nil)).To(BeZero())
}

func TestSequence(t *testing.T) {
	g := NewWithT(t)
	s := backoff.Sequence{Policy: backoff.Policy{First: time.Second, Max: 3 * time.Second, Jitter: 0.5, Rand: all}}
	g.Expect(s.Begun()).To(BeFalse())
	g.Expect(s.Wait()).To(Equal(time.Second / 2))
	g.Expect(s.Begun()).To(BeTrue())
	g.Expect(s.Wait()).To(Equal(time.Second), "jitter does not shorten the next wait")
	g.Expect(s.Wait()).To(Equal(1500 * time.Millisecond))
	s.Reset()
	g.Expect(s.Begun()).To(BeFalse())
	g.Expect(s.Wait()).To(Equal(time.Second / 2))
}

// TestProperties: waits are bounded and, without jitter, never decrease; the three ways to
// compute them agree.
func TestProperties(t *testing.T) {
	property := func(first, most uint32, share uint8, failures uint16) bool {
		p := backoff.Policy{First: time.Duration(first) + 1, Max: time.Duration(most) + 1, Jitter: float64(share%101) / 100}
		s, last := backoff.Sequence{Policy: p}, time.Duration(0)
		for n := range int64(failures % 80) {
			whole := p.Doubled(n)
			next := p.Next(last)
			switch drawn, waited := p.Wait(n), s.Wait(); {
			case whole != next, whole < last, whole > p.Max, whole <= 0:
				return false
			case drawn > whole, waited > whole:
				return false
			case float64(drawn) < float64(whole)*(1-p.Jitter)-1, float64(waited) < float64(whole)*(1-p.Jitter)-1:
				return false
			}
			last = next
		}
		spread := backoff.Spread(p.Max, p.Jitter, nil)
		return float64(spread) >= float64(p.Max)*(1-p.Jitter)-1 && float64(spread) <= float64(p.Max)*(1+p.Jitter)+1
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 500}); err != nil {
		t.Fatal(err)
	}
}

// TestNoOverflow: the longest durations do not turn negative.
func TestNoOverflow(t *testing.T) {
	g := NewWithT(t)
	p := backoff.Policy{First: time.Second, Max: math.MaxInt64}
	last := time.Duration(0)
	for n := range int64(100) {
		g.Expect(p.Doubled(n)).To(BeNumerically(">=", last))
		last = p.Doubled(n)
	}
	g.Expect(last).To(Equal(time.Duration(math.MaxInt64)))
	g.Expect(backoff.Policy{}.Doubled(10)).To(BeZero())
}
