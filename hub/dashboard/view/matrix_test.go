package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// A revision is in an environment from the end of the promotion that brought it to the end of the next one that brought another one.
func TestStay(t *testing.T) {
	f := facts()
	p := &f.Pipelines[0]
	succeeded := func(number int64, revision string, minutes int) capstanv1.Promotion {
		return promotion(p, number, "staging", revision, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: at(minutes)})
	}
	failed := succeeded(9, "1.5.0", 25)
	failed.Status.Phase = capstanv1.PhaseFailed
	for name, tc := range map[string]struct {
		promotions []capstanv1.Promotion
		want       Stay
	}{
		"none":                  {nil, Stay{}},
		"still":                 {[]capstanv1.Promotion{succeeded(1, "1.1.0", 10)}, Stay{Since: at(10).Time}},
		"replaced":              {[]capstanv1.Promotion{succeeded(2, "1.2.0", 100), succeeded(1, "1.1.0", 10)}, Stay{Since: at(10).Time, Until: at(100).Time, For: "1 h 30 min"}},
		"again":                 {[]capstanv1.Promotion{succeeded(1, "1.1.0", 10), succeeded(2, "1.2.0", 20), succeeded(3, "1.1.0", 30)}, Stay{Since: at(30).Time}},
		"twice":                 {[]capstanv1.Promotion{succeeded(1, "1.1.0", 10), succeeded(2, "1.1.0", 20), succeeded(3, "1.2.0", 30)}, Stay{Since: at(10).Time, Until: at(30).Time, For: "20 min"}},
		"another failed":        {[]capstanv1.Promotion{succeeded(1, "1.1.0", 10), failed}, Stay{Since: at(10).Time}},
		"never":                 {[]capstanv1.Promotion{succeeded(1, "1.2.0", 10), failed}, Stay{}},
		"another environment's": {[]capstanv1.Promotion{succeeded(1, "1.1.0", 10), promotion(p, 2, "prod", "1.2.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: at(20)})}, Stay{Since: at(10).Time}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f.Promotions = append(tc.promotions, promotion(p, 8, "prod", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed}))
			page, _ := Pipeline(f, Everything(), "apps", "shop")
			m := data[Matrix](page, "matrix")[0]
			g.Expect(m.Revisions).To(ContainElement("1.1.0"))
			for i, r := range m.Revisions {
				if r == "1.1.0" {
					g.Expect(m.Rows[1].Cells[i].Stay).To(Equal(tc.want))
					g.Expect(m.Rows[0].Cells[i].Stay).To(BeZero(), "nothing records it for the first environment")
				}
			}
		})
	}
}

// In an environment with waves a revision is from the first wave that got it to the last one that got another one.
func TestStayInWaves(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := inWaves(f, 2, 10)
	for i, tc := range []struct {
		wave, revision string
		end            int
	}{{"prod/rest-1", "1.0.0", 10}, {"prod/rest-2", "1.0.0", 20}, {"prod/rest-1", "1.1.0", 30}} {
		f.Promotions = append(f.Promotions, promotion(p, int64(i+1), tc.wave, tc.revision, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: at(tc.end)}))
	}
	stay := func(revision string) Stay {
		page, _ := Pipeline(f, Everything(), "apps", "shop")
		m := data[Matrix](page, "matrix")[0]
		for i, r := range m.Revisions {
			if r == revision {
				return m.Rows[2].Cells[i].Stay
			}
		}
		return Stay{}
	}
	g.Expect(stay("1.0.0")).To(Equal(Stay{Since: at(10).Time}), "the second wave has it")
	g.Expect(stay("1.1.0")).To(Equal(Stay{Since: at(30).Time}))
	f.Promotions = append(f.Promotions, promotion(p, 4, "prod/rest-2", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, FinishTime: at(70)}))
	g.Expect(stay("1.0.0")).To(Equal(Stay{Since: at(10).Time, Until: at(70).Time, For: "1 h"}))
}

// The matrix has the newest revisions only, and says how many it leaves out.
func TestMatrixIsBounded(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Pipelines[0] = long(20, strings.Repeat("x", 200))
	p := &f.Pipelines[0]
	for n := range int64(30) {
		f.Promotions = append(f.Promotions, promotion(p, n+1, p.Spec.Environments[1].Name, fmt.Sprintf("2.%d.0", n), capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded}))
	}
	page, _ := Pipeline(f, Everything(), "apps", "shop")
	m := data[Matrix](page, "matrix")[0]
	g.Expect(m.Revisions).To(Equal([]string{"1.0.0", "2.29.0", "2.28.0", "2.27.0", "2.26.0", "2.25.0"}), "the first environment's is the newest")
	g.Expect(m.More).To(Equal(25))
	g.Expect(m.All).To(Equal("/promotions?q=apps%2Fshop"))
	g.Expect(m.Rows).To(HaveLen(20))
	g.Expect(m.Rows[3].Cells[1].Empty()).To(BeTrue())
	entries := data[Entry](page, "entries")
	g.Expect(entries).To(HaveLen(maxAttempts))
	for i, e := range entries {
		g.Expect(e.Open).To(Equal(i == 0), "the newest is open")
	}
}

// The commands name the promotions that wait for an approval, with the run that is approved.
func TestCommands(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	again := promotion(p, 2, "prod", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: 1})
	again.Spec.Retry = 1
	f.Promotions = []capstanv1.Promotion{again, promotion(p, 1, "staging", "1.1.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})}
	page, _ := Pipeline(f, Everything(), "apps", "shop")
	g.Expect(data[Commands](page, "commands")).To(Equal([]Commands{{Namespace: "apps", Name: "shop", Approve: []Approving{{Name: "shop-prod-2", Retry: 1}}}}))
}

func TestLasted(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0 s": -time.Second, "5 s": 5*time.Second + time.Millisecond, "11 min 14 s": 11*time.Minute + 14*time.Second, "1 h": time.Hour + 3*time.Second,
		"1 h 10 min": 70 * time.Minute, "3 d 2 h": 74*time.Hour + 59*time.Minute, "400 d": 400 * 24 * time.Hour,
	} {
		t.Run(want, func(t *testing.T) { NewWithT(t).Expect(lasted(d)).To(Equal(want)) })
	}
}
