package view

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// at is so many minutes after the creation of the promotions in the tests of their times.
func at(minutes int) *metav1.Time {
	return &metav1.Time{Time: now.Add(time.Duration(minutes) * time.Minute)}
}

// The segments of a promotion begin and end at the times that its status records. Between two recorded times whose meaning is not
// recorded it waits.
func TestSegments(t *testing.T) {
	pullRequest := pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}}
	for name, tc := range map[string]struct {
		status   capstanv1.PromotionStatus
		strategy pipelinesv1.Strategy
		want     string
	}{
		"created":  {capstanv1.PromotionStatus{}, pullRequest, "detected 0-"},
		"no start": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSuperseded, FinishTime: at(3)}, pullRequest, "waiting 0-3"},
		"all": {capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, StartTime: at(1), GatesCloseTime: at(1), GatesOpenTime: at(5), Approval: &capstanv1.ApprovalRecord{ApprovalTime: *at(8)},
			CarriedOutTime: at(10), VerifyTime: at(12), FinishTime: at(20),
		}, pullRequest, "detected 0-1, gates 1-5, approval 5-8, pull request 8-10, roll-out 10-12, verification 12-20"},
		"by notification":   {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: at(0), CarriedOutTime: at(2), FinishTime: at(9)}, pipelinesv1.Strategy{}, "notification 0-2, roll-out 2-9"},
		"gates closed":      {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, StartTime: at(1), GatesCloseTime: at(1)}, pullRequest, "detected 0-1, gates 1-"},
		"gates close later": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, StartTime: at(0), GatesCloseTime: at(4)}, pullRequest, "waiting 0-4, gates 4-"},
		"gates close again": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, StartTime: at(0), GatesOpenTime: at(4), GatesCloseTime: at(6)}, pullRequest, "gates 0-4, waiting 4-6, gates 6-"},
		"gates during the pull request": {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, StartTime: at(0), Approval: &capstanv1.ApprovalRecord{ApprovalTime: *at(2)}, GatesCloseTime: at(3), GatesOpenTime: at(5)}, pullRequest,
			"approval 0-2, waiting 2-3, gates 3-5, pull request 5-"},
		"approval":                  {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, StartTime: at(1)}, pullRequest, "detected 0-1, approval 1-"},
		"promoting":                 {capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, StartTime: at(0)}, pullRequest, "pull request 0-"},
		"roll-out":                  {capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout, StartTime: at(0), CarriedOutTime: at(3)}, pullRequest, "pull request 0-3, roll-out 3-"},
		"verification":              {capstanv1.PromotionStatus{Phase: capstanv1.PhaseVerifying, StartTime: at(0), CarriedOutTime: at(3), VerifyTime: at(5)}, pullRequest, "pull request 0-3, roll-out 3-5, verification 5-"},
		"superseded while waiting":  {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSuperseded, StartTime: at(1), FinishTime: at(7)}, pullRequest, "detected 0-1, waiting 1-7"},
		"failed in the roll-out":    {capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, StartTime: at(0), CarriedOutTime: at(2), FinishTime: at(7)}, pullRequest, "pull request 0-2, roll-out 2-7"},
		"retried":                   {capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Retry: 1, StartTime: at(9), GatesOpenTime: at(4), Approval: &capstanv1.ApprovalRecord{ApprovalTime: *at(10)}}, pullRequest, "waiting 0-9, pull request 9-"},
		"approved after the retry":  {capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Retry: 1, StartTime: at(9), Approval: &capstanv1.ApprovalRecord{ApprovalTime: *at(10), Retry: 1}}, pullRequest, "waiting 0-9, approval 9-10, pull request 10-"},
		"times beyond the end":      {capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: at(0), VerifyTime: at(30), FinishTime: at(7)}, pullRequest, "verification 0-7"},
		"approval without its time": {capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, StartTime: at(1), Approval: &capstanv1.ApprovalRecord{}}, pullRequest, "detected 0-1, pull request 1-"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &capstanv1.Promotion{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(0)}, Spec: capstanv1.PromotionSpec{Strategy: tc.strategy}, Status: tc.status}
			var got []string
			for _, s := range segmentsOf(p) {
				text := fmt.Sprintf("%s %d-", s.Kind.Name, int(s.Start.Sub(now).Minutes()))
				if !s.End.IsZero() {
					text += strconv.Itoa(int(s.End.Sub(now).Minutes()))
				}
				got = append(got, text)
			}
			NewWithT(t).Expect(strings.Join(got, ", ")).To(Equal(tc.want))
		})
	}
}

// ended is a promotion that was created so many minutes before now, and took five of them.
func ended(p *pipelinesv1.Pipeline, number int64, env string, before int) capstanv1.Promotion {
	one := promotion(p, number, env, fmt.Sprintf("1.%d.0", number), capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: at(-before), CarriedOutTime: at(2 - before), FinishTime: at(5 - before)})
	one.CreationTimestamp = *at(-before)
	return one
}

func ganttFor(g *WithT, f *Facts) Gantt {
	page, found := Pipeline(f, Everything(), "apps", "shop")
	g.Expect(found).To(BeTrue())
	all := data[Gantt](page, "gantt")
	if len(all) == 0 {
		return Gantt{}
	}
	return all[0]
}

// The picture has the lanes in the order of the environments, and its text has the same.
func TestGantt(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	p := &f.Pipelines[0]
	g.Expect(ganttFor(g, f).Lanes).To(BeEmpty(), "nothing was promoted")

	f.Promotions = []capstanv1.Promotion{ended(p, 1, "prod", 30), ended(p, 2, "staging", 60), ended(p, 3, "old", 50)}
	gantt := ganttFor(g, f)
	g.Expect(gantt.From).To(BeTemporally("==", now.Add(-time.Hour)))
	g.Expect(gantt.To).To(BeTemporally("==", now.Add(-24*time.Minute)), "the minute after the last end")
	g.Expect(gantt.Lanes).To(HaveExactElements(HaveField("Environment", "staging"), HaveField("Environment", "prod"), HaveField("Environment", "old")))
	g.Expect(gantt.Lanes[0].Bars).To(HaveExactElements(
		Bar{Kind: kindNotification, X: "0.00%", Width: "5.56%", Middle: "2.78%", Letter: true, Title: "1.2.0 into staging: notification from 2026-03-01 11:00:00 UTC to 2026-03-01 11:02:00 UTC (2 min)"},
		HaveField("Kind", kindRollout),
	))
	g.Expect(gantt.Legend).To(Equal([]SegmentKind{kindNotification, kindRollout}))
	g.Expect(gantt.Times).To(HaveLen(3))
	g.Expect(gantt.Times).To(ContainElement(And(HaveField("Environment", "prod"), HaveField("Link", "#promotion/apps/shop-prod-1"), HaveField("Segments", HaveLen(2)))))

	// What is under way continues to the end of the axis, which is a full minute: the picture does not change each second.
	f.Promotions = append(f.Promotions, promotion(p, 9, "prod", "1.9.0", capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, StartTime: at(-20)}))
	f.Promotions[3].CreationTimestamp = *at(-20)
	f.Now = now.Add(time.Second)
	gantt = ganttFor(g, f)
	g.Expect(gantt.To).To(BeTemporally("==", now.Add(time.Minute)))
	g.Expect(gantt.Lanes[1].Bars).To(ContainElement(And(HaveField("Open", true), HaveField("Kind", kindApproval), HaveField("Title", "1.9.0 into prod: approval since 2026-03-01 11:40:00 UTC"))))
	f.Now = now.Add(59 * time.Second)
	g.Expect(ganttFor(g, f)).To(Equal(gantt))
	f.Now = now.Add(61 * time.Second)
	g.Expect(ganttFor(g, f)).NotTo(Equal(gantt))

	// A longer time ends with the hour.
	f.Promotions = append(f.Promotions, ended(p, 4, "prod", 600))
	f.Now = now.Add(20 * time.Minute)
	g.Expect(ganttFor(g, f).To).To(BeTemporally("==", now.Add(time.Hour)))

	// Who may not see promotions sees no times.
	blind := Everything()
	blind.Promotions = Namespaces{}
	page, _ := Pipeline(f, blind, "apps", "shop")
	g.Expect(data[Gantt](page, "gantt")).To(BeEmpty())
}

// The picture is bounded: in promotions, lanes, time and width, whatever the times are.
func TestGanttIsBounded(t *testing.T) {
	g := NewWithT(t)
	f := facts()
	f.Pipelines[0] = long(30, strings.Repeat("x", 200))
	p := &f.Pipelines[0]
	for i := range 60 {
		one := ended(p, int64(i+1), p.Spec.Environments[i%30].Name, 60*i)
		f.Promotions = append(f.Promotions, one)
	}
	gantt := ganttFor(g, f)
	g.Expect(gantt.Times).To(HaveLen(maxAttempts))
	g.Expect(len(gantt.Lanes)).To(BeNumerically("<=", maxLanes))

	// One of the year before makes the others not invisible: it is left out.
	f.Promotions = append(f.Promotions[:3], ended(p, 61, p.Spec.Environments[5].Name, 365*24*60))
	gantt = ganttFor(g, f)
	g.Expect(gantt.Left).To(Equal(1))
	g.Expect(gantt.Times).To(HaveLen(3))
	g.Expect(gantt.To.Sub(gantt.From)).To(Equal(maxSpan))

	// One that is under way since then is shown from the beginning.
	f.Promotions[3].Status = capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, StartTime: &f.Promotions[3].CreationTimestamp}
	gantt = ganttFor(g, f)
	g.Expect(gantt.Left).To(BeZero())
	for _, lane := range gantt.Lanes {
		for _, b := range lane.Bars {
			x, width := number(g, b.X), number(g, b.Width)
			g.Expect(x).To(BeNumerically(">=", 0))
			g.Expect(width).To(BeNumerically(">=", minBar))
			g.Expect(x + width).To(BeNumerically("<=", percent+0.01))
		}
	}
}

func number(g *WithT, of string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSuffix(of, "%"), 64)
	g.Expect(err).NotTo(HaveOccurred())
	return n
}
