package delivery

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// now is in the last day of the window, which begins at 2026-10-28.
var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// shop has the environments dev, staging and prod.
var shop = Pipeline{Namespace: "apps", Name: "shop", UID: "shop", Environments: []string{"dev", "staging", "prod"}}

// at is a number of minutes after the begin of the last day.
func at(minutes int) *metav1.Time {
	return &metav1.Time{Time: now.Truncate(day).Add(time.Duration(minutes) * time.Minute)}
}

// promotion returns one that was created and ended at minutes of the last day, after an attempt; change edits it.
func promotion(environment string, number int64, revision string, created, end int, phase capstanv1.PromotionPhase, change ...func(*capstanv1.Promotion)) *capstanv1.Promotion {
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: fmt.Sprintf("shop-%s-%d", environment, number), UID: types.UID(fmt.Sprintf("%s-%d", environment, number)), CreationTimestamp: *at(created)},
		Spec:       capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: "shop", UID: "shop"}, Environment: environment, Number: number, Revision: revision},
		Status:     capstanv1.PromotionStatus{Phase: phase, StartTime: at(created), Attempt: &capstanv1.Attempt{Number: 1}},
	}
	if phase.Finished() {
		p.Status.FinishTime = at(end)
	}
	for _, edit := range change {
		edit(p)
	}
	return p
}

func rollbackOf(number int64) func(*capstanv1.Promotion) {
	return func(p *capstanv1.Promotion) {
		p.Spec.RollbackOf = &capstanv1.RollbackReference{Name: fmt.Sprintf("shop-%s-%d", p.Spec.Environment, number), Number: number}
	}
}

func alreadyThere(p *capstanv1.Promotion) { p.Status.Attempt, p.Status.Reason = nil, "AlreadyThere" }

func wave(environment string, last bool) func(*capstanv1.Promotion) {
	return func(p *capstanv1.Promotion) {
		p.Spec.Wave = &capstanv1.PromotionWave{Environment: environment, Name: p.Spec.Environment[len(environment)+1:], Last: last}
	}
}

func daysAgo(days int) func(*capstanv1.Promotion) {
	return func(p *capstanv1.Promotion) {
		back := func(t *metav1.Time) *metav1.Time { return &metav1.Time{Time: t.Add(-time.Duration(days) * day)} }
		p.CreationTimestamp, p.Status.StartTime, p.Status.FinishTime = *back(&p.CreationTimestamp), back(p.Status.StartTime), back(p.Status.FinishTime)
	}
}

func waited(gatesClosed, gatesOpened, approved int) func(*capstanv1.Promotion) {
	return func(p *capstanv1.Promotion) {
		if gatesOpened > 0 {
			p.Status.GatesCloseTime, p.Status.GatesOpenTime = at(gatesClosed), at(gatesOpened)
		}
		if approved > 0 {
			p.Status.Approval = &capstanv1.ApprovalRecord{By: "ada", ApprovalTime: *at(approved)}
		}
	}
}

const (
	succeeded  = capstanv1.PhaseSucceeded
	failed     = capstanv1.PhaseFailed
	rejected   = capstanv1.PhaseRejected
	superseded = capstanv1.PhaseSuperseded
	waiting    = capstanv1.PhaseAwaitingApproval
)

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// one returns the percentiles of a single duration.
func one(n int) Percentiles { return Percentiles{1, minutes(n), minutes(n)} }

// Exact figures of one Pipeline.
func TestFigures(t *testing.T) {
	t.Parallel()
	window := NewWindow(now)
	today := func(n int) (days [Days]int) { days[Days-1] = n; return days }
	type list = []*capstanv1.Promotion
	for name, tc := range map[string]struct {
		promotions  list
		environment string // the whole Pipeline if empty
		want        Figures
	}{
		"none": {},
		"lead-time-begins-with-the-second-environment": {
			promotions: list{promotion("staging", 1, "2.0.0", 0, 5, succeeded), promotion("prod", 1, "2.0.0", 5, 90, succeeded)},
			want:       Figures{Deployments: 1, PerDay: today(1), Changes: 1, Lead: one(90), Since: at(90).Time},
		},
		"staging-alone": {
			promotions:  list{promotion("staging", 1, "2.0.0", 0, 5, succeeded), promotion("prod", 1, "2.0.0", 5, 90, succeeded)},
			environment: "staging",
			want:        Figures{Deployments: 1, PerDay: today(1), Changes: 1, Since: at(5).Time},
		},
		"lead-time-begins-with-the-first-decision": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 5, superseded), promotion("staging", 2, "2.0.0", 20, 25, succeeded), promotion("prod", 1, "2.0.0", 25, 60, succeeded),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Lead: one(60), Since: at(60).Time},
		},
		"lead-time-unknown-without-the-decision": {
			promotions: list{promotion("prod", 1, "2.0.0", 5, 90, succeeded)},
			want:       Figures{Deployments: 1, PerDay: today(1), Changes: 1, Since: at(90).Time},
		},
		"a-decision-counts-once": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 5, succeeded), promotion("prod", 1, "2.0.0", 5, 30, succeeded), promotion("prod", 2, "2.0.0", 200, 210, succeeded),
			},
			want: Figures{Deployments: 2, PerDay: today(2), Changes: 2, Lead: one(30), Since: at(30).Time},
		},
		"same-content-under-another-name": {
			promotions: list{
				promotion("staging", 1, "main@sha1:"+digest, 0, 5, succeeded), promotion("prod", 1, "v2@sha1:"+digest, 5, 30, succeeded),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Lead: one(30), Since: at(30).Time},
		},
		"already-there-is-no-deployment": {
			promotions: list{promotion("staging", 1, "2.0.0", 0, 5, succeeded, alreadyThere), promotion("prod", 1, "2.0.0", 5, 6, succeeded, alreadyThere)},
		},
		"rejected-and-superseded-are-no-changes": {
			promotions: list{promotion("prod", 1, "2.0.0", 0, 5, rejected), promotion("prod", 2, "2.1.0", 6, 7, superseded), promotion("prod", 3, "2.2.0", 8, 0, waiting)},
		},
		"failed-and-rolled-back": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 5, succeeded), promotion("prod", 1, "2.0.0", 5, 20, failed, func(p *capstanv1.Promotion) { p.Status.Reason = "VerificationFailed" }),
				promotion("prod", 2, "1.0.0", 20, 32, succeeded, rollbackOf(1)),
			},
			want: Figures{Changes: 1, Failed: 1, Rollbacks: 1, Restore: one(12), Since: at(20).Time},
		},
		"rolled-back-on-demand": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 5, succeeded), promotion("prod", 1, "2.0.0", 5, 20, succeeded), promotion("prod", 2, "1.0.0", 100, 110, succeeded, rollbackOf(1)),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Failed: 1, Rollbacks: 1, Lead: one(20), Restore: one(10), Since: at(20).Time},
		},
		"rolled-back-while-it-was-verified": {
			promotions: list{promotion("prod", 1, "2.0.0", 5, 20, superseded), promotion("prod", 2, "1.0.0", 20, 28, succeeded, rollbackOf(1))},
			want:       Figures{Changes: 1, Failed: 1, Rollbacks: 1, Restore: one(8), Since: at(20).Time},
		},
		"the-rollback-fails-and-the-next-change-restores": {
			promotions: list{
				promotion("prod", 1, "2.0.0", 5, 20, failed), promotion("prod", 2, "1.0.0", 20, 30, failed, rollbackOf(1)), promotion("prod", 3, "2.0.1", 70, 80, succeeded),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 2, Failed: 1, Restore: one(60), Since: at(20).Time},
		},
		"restored-by-hand": {
			promotions: list{promotion("prod", 1, "2.0.0", 5, 20, failed), promotion("prod", 2, "2.0.1", 50, 51, succeeded, alreadyThere)},
			want:       Figures{Changes: 1, Failed: 1, Restore: one(31), Since: at(20).Time},
		},
		"waves-are-one-deployment": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 5, succeeded),
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Lead: one(45), Since: at(45).Time},
		},
		"a-wave-alone-is-no-deployment": {
			promotions: list{promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false))},
		},
		"a-wave-that-fails": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 20, failed, wave("prod", false)), promotion("prod/canary", 2, "1.0.0", 20, 26, succeeded, wave("prod", false), rollbackOf(1)),
			},
			want: Figures{Changes: 1, Failed: 1, Rollbacks: 1, Restore: one(6), Since: at(20).Time},
		},
		"all-waves-are-rolled-back": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
				promotion("prod/canary", 2, "1.0.0", 60, 65, succeeded, wave("prod", false), rollbackOf(1)), promotion("prod/rest", 2, "1.0.0", 60, 75, succeeded, wave("prod", true), rollbackOf(1)),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Failed: 1, Rollbacks: 2, Restore: one(15), Since: at(45).Time},
		},
		"a-cluster-that-joins-later-is-no-deployment": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 5, succeeded),
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
				promotion("prod/rest", 2, "2.0.0", 60, 65, succeeded, wave("prod", true)), promotion("prod/canary", 2, "2.0.0", 70, 75, succeeded, wave("prod", false)),
				promotion("prod/rest", 3, "2.0.0", 80, 85, succeeded, wave("prod", true)),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Lead: one(45), Since: at(45).Time},
		},
		"a-cluster-that-joins-later-fails": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
				promotion("prod/canary", 2, "2.0.0", 60, 65, failed, wave("prod", false)), promotion("prod/canary", 3, "2.0.0", 66, 75, succeeded, wave("prod", false)),
				promotion("prod/rest", 2, "2.0.0", 80, 85, failed, wave("prod", true)), promotion("prod/rest", 3, "2.0.0", 86, 95, succeeded, wave("prod", true)),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 1, Failed: 1, Restore: Percentiles{2, minutes(10), minutes(10)}, Since: at(45).Time},
		},
		"a-cluster-joins-waves-in-which-the-revision-was-already": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 6, succeeded, wave("prod", false), alreadyThere), promotion("prod/rest", 1, "2.0.0", 6, 7, succeeded, wave("prod", true), alreadyThere),
				promotion("prod/rest", 2, "2.0.0", 60, 65, succeeded, wave("prod", true)), promotion("prod/rest", 3, "2.0.0", 70, 75, failed, wave("prod", true)),
			},
			want: Figures{Changes: 1, Failed: 1, Since: at(75).Time},
		},
		"a-revision-that-comes-back-is-another-deployment": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
				promotion("prod/canary", 2, "2.1.0", 50, 55, succeeded, wave("prod", false)), promotion("prod/rest", 2, "2.1.0", 55, 60, succeeded, wave("prod", true)),
				promotion("prod/canary", 3, "2.0.0", 70, 75, succeeded, wave("prod", false)), promotion("prod/rest", 3, "2.0.0", 75, 80, succeeded, wave("prod", true)),
			},
			want: Figures{Deployments: 3, PerDay: today(3), Changes: 3, Since: at(45).Time},
		},
		"a-revision-that-was-rolled-back-and-comes-back-is-another-deployment": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
				promotion("prod/rest", 2, "1.0.0", 50, 55, succeeded, wave("prod", true), rollbackOf(1)), promotion("prod/rest", 3, "2.0.0", 70, 75, succeeded, wave("prod", true)),
			},
			want: Figures{Deployments: 2, PerDay: today(2), Changes: 2, Failed: 1, Rollbacks: 1, Restore: one(5), Since: at(45).Time},
		},
		"a-cluster-joins-after-the-next-revision-failed-in-another-wave": {
			promotions: list{
				promotion("prod/canary", 1, "2.0.0", 5, 20, succeeded, wave("prod", false)), promotion("prod/rest", 1, "2.0.0", 30, 45, succeeded, wave("prod", true)),
				promotion("prod/canary", 2, "2.1.0", 50, 55, failed, wave("prod", false)), promotion("prod/canary", 3, "2.0.0", 55, 60, succeeded, wave("prod", false)),
				promotion("prod/rest", 2, "2.0.0", 70, 75, succeeded, wave("prod", true)),
			},
			want: Figures{Deployments: 1, PerDay: today(1), Changes: 2, Failed: 1, Restore: one(5), Since: at(45).Time},
		},
		"waits": {
			promotions: list{
				promotion("staging", 1, "2.0.0", 0, 10, succeeded, waited(0, 4, 0)), promotion("prod", 1, "2.0.0", 10, 90, succeeded, waited(10, 40, 70)),
				promotion("prod", 2, "2.1.0", 100, 120, succeeded, waited(0, 0, 110)), promotion("prod", 3, "2.2.0", 130, 140, superseded, waited(130, 135, 136)),
			},
			want: Figures{
				Deployments: 2, PerDay: today(2), Changes: 2, Lead: one(90), Since: at(10).Time,
				ApprovalWait: Percentiles{2, minutes(10), minutes(30)}, GatesWait: Percentiles{2, minutes(4), minutes(30)},
			},
		},
		"only-the-window": {
			promotions: list{
				promotion("prod", 1, "1.0.0", 0, 10, succeeded, daysAgo(30)), promotion("prod", 2, "1.1.0", 0, 10, succeeded, daysAgo(29)), promotion("prod", 3, "1.2.0", 0, 10, succeeded),
			},
			want: Figures{Deployments: 2, PerDay: func() [Days]int { d := today(1); d[0] = 1; return d }(), Changes: 2, Since: at(10).Add(-29 * day)},
		},
		"another-pipeline-and-a-former-environment": {
			promotions: list{
				promotion("prod", 1, "1.0.0", 0, 10, succeeded, func(p *capstanv1.Promotion) { p.Spec.Pipeline.UID = "former" }), promotion("qa", 1, "1.0.0", 0, 10, succeeded),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			h := HistoryOf(shop, tc.promotions)
			sum := NewSum(window, Retention{})
			if tc.environment == "" {
				sum.Add(&h)
			} else {
				sum.AddEnvironment(&h, tc.environment)
			}
			tc.want.CompleteSince = window.First()
			g.Expect(sum.Figures()).To(Equal(tc.want))
		})
	}
}

const digest = "0123456789abcdef0123456789abcdef01234567"

// The begin of what is complete follows from the numbers that are missing.
func TestCompleteSince(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	window := NewWindow(now)
	month := Retention{For: Days * day, Keep: 3}
	list := []*capstanv1.Promotion{
		promotion("prod", 4, "1.4.0", 0, 40, succeeded), promotion("prod", 7, "1.7.0", 60, 70, succeeded), promotion("prod", 8, "1.8.0", 70, 80, succeeded), promotion("prod", 9, "1.9.0", 80, 0, waiting),
	}
	complete := func(r Retention, from int) time.Time {
		h := HistoryOf(shop, list[from:])
		return h.CompleteSince(window, r)
	}
	g.Expect(complete(month, 0)).To(Equal(at(70).UTC()), "5 and 6 were deleted")
	g.Expect(complete(month, 1)).To(Equal(window.First()), "fewer than the limit: only by age, and that is before the window")
	g.Expect(complete(Retention{For: 10 * day, Keep: 3}, 1)).To(Equal(window.End().Add(-10 * day)))
	g.Expect(complete(Retention{Keep: 0}, 0)).To(Equal(window.First()), "none are deleted by the hub")
	for i, p := range list[1:] {
		p.Spec.Number = int64(i + 1)
	}
	g.Expect(complete(month, 1)).To(Equal(window.First()), "number 1 is there")
}

func TestNearestRank(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	var all []time.Duration
	for n := 10; n > 0; n-- {
		all = append(all, minutes(n))
	}
	g.Expect(percentiles(all)).To(Equal(Percentiles{10, minutes(5), minutes(9)}))
	g.Expect(percentiles(append(all, minutes(11)))).To(Equal(Percentiles{11, minutes(6), minutes(10)}))
	g.Expect(percentiles(nil)).To(Equal(Percentiles{}))
	for _, tc := range [][3]int{{0, 0, -1}, {1, 3, 33}, {2, 3, 67}, {1, 200, 1}, {1, 201, 0}, {5, 5, 100}} {
		f := Figures{Failed: tc[0], Changes: tc[1]}
		g.Expect(f.FailurePercent()).To(Equal(tc[2]))
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	riga := time.FixedZone("Riga", 2*60*60)
	w := NewWindow(time.Date(2026, 11, 27, 1, 0, 0, 0, riga)) // The day before in UTC.
	g.Expect(w).To(Equal(NewWindow(now)))
	g.Expect(w.First()).To(Equal(time.Date(2026, 10, 28, 0, 0, 0, 0, time.UTC)))
	g.Expect(w.Date(Days - 1)).To(Equal(time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)))
	for t, want := range map[time.Time]int{w.First(): 0, w.First().Add(-1): -1, w.End(): -1, w.End().Add(-1): Days - 1} {
		g.Expect(w.Day(t)).To(Equal(want))
	}
}

// A Pipeline with stages has the same environments as that of the spec.
func TestPipelineOf(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop", UID: "shop"}}
	p.Spec.Environments = []pipelinesv1.Environment{
		{Name: "dev"}, {Name: "staging"}, {Name: "prod/canary", Stage: &pipelinesv1.Stage{Environment: "prod", Wave: "canary"}}, {Name: "prod/rest", Stage: &pipelinesv1.Stage{Environment: "prod", Wave: "rest"}},
	}
	g.Expect(PipelineOf(p)).To(Equal(shop))
	g.Expect(shop.Last()).To(Equal("prod"))
	g.Expect(Pipeline{Environments: []string{"dev"}}.Last()).To(BeEmpty(), "no promotion goes into the first environment")
}

// drawn returns any Promotions of a Pipeline.
func drawn(t *rapid.T, of Pipeline) []*capstanv1.Promotion {
	phases := []capstanv1.PromotionPhase{succeeded, failed, rejected, superseded, waiting}
	var all []*capstanv1.Promotion
	for i := range rapid.IntRange(0, 30).Draw(t, "promotions") {
		environment := rapid.SampledFrom([]string{"staging", "prod", "prod/canary", "prod/rest", "qa"}).Draw(t, "environment")
		created := rapid.IntRange(-40*24*60, 700).Draw(t, "created")
		p := promotion(environment, int64(i+1), rapid.SampledFrom([]string{"1.0.0", "1.1.0", "1.2.0"}).Draw(t, "revision"),
			created, created+rapid.IntRange(0, 300).Draw(t, "took"), rapid.SampledFrom(phases).Draw(t, "phase"))
		p.Spec.Pipeline.UID = of.UID
		if environment == "prod/canary" || environment == "prod/rest" {
			wave("prod", environment == "prod/rest")(p)
		}
		if rapid.Bool().Draw(t, "gates") {
			waited(created, created+rapid.IntRange(0, 30).Draw(t, "closed"), 0)(p)
		}
		if i > 0 && rapid.IntRange(0, 5).Draw(t, "rollback") == 0 {
			rollbackOf(int64(rapid.IntRange(1, i).Draw(t, "of")))(p)
		}
		all = append(all, p)
	}
	return all
}

// The counts of any Pipelines add up to those of all of them, in any order of their Promotions, and each figure is
// within its bounds.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := NewWindow(now)
		all := NewSum(window, Retention{Keep: 20})
		var changes, broken, deployments, leads, restores, gates int
		for i := range rapid.IntRange(1, 3).Draw(t, "pipelines") {
			of := shop
			of.UID = types.UID(fmt.Sprint(i))
			list := drawn(t, of)
			h, shuffled := HistoryOf(of, list), HistoryOf(of, rapid.Permutation(list).Draw(t, "order"))
			alone, again := NewSum(window, Retention{Keep: 20}), NewSum(window, Retention{Keep: 20})
			alone.Add(&h)
			again.Add(&shuffled)
			f := alone.Figures()
			if again.Figures() != f {
				t.Fatalf("%+v in another order is %+v", f, again.Figures())
			}
			perDay := 0
			for _, n := range f.PerDay {
				perDay += n
			}
			if perDay != f.Deployments || f.Failed > f.Changes || f.Deployments > f.Changes || f.Lead.Count > f.Deployments || f.Lead.Median > f.Lead.P90 || f.Lead.Median < 0 {
				t.Fatalf("%+v", f)
			}
			changes, broken, deployments = changes+f.Changes, broken+f.Failed, deployments+f.Deployments
			leads, restores, gates = leads+f.Lead.Count, restores+f.Restore.Count, gates+f.GatesWait.Count
			all.Add(&h)
		}
		f := all.Figures()
		if got, want := [...]int{f.Changes, f.Failed, f.Deployments, f.Lead.Count, f.Restore.Count, f.GatesWait.Count}, [...]int{changes, broken, deployments, leads, restores, gates}; got != want {
			t.Fatalf("all have %v, and together %v", got, want)
		}
	})
}

// The figures of 20,000 Promotions of 500 Pipelines take at most 20 ms.
func BenchmarkFigures(b *testing.B) {
	const pipelines, each = 500, 40
	lists := make([][]*capstanv1.Promotion, pipelines)
	for i := range lists {
		for n := range each {
			lists[i] = append(lists[i], promotion(shop.Environments[1+n%2], int64(n/2+1), fmt.Sprintf("1.%d.0", n/2), n*10-30*each, n*10+5-30*each, succeeded))
		}
	}
	window := NewWindow(now)
	for b.Loop() {
		sum := NewSum(window, Retention{Keep: 20})
		for _, list := range lists {
			h := HistoryOf(shop, list)
			sum.Add(&h)
		}
		if f := sum.Figures(); f.Deployments != pipelines*each/2 {
			b.Fatal(f.Deployments)
		}
	}
}
