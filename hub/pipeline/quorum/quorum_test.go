package quorum

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/soak"
)

func rulesOf(t testing.TB, q *pipelinesv1.Quorum) Rules {
	t.Helper()
	r := parse(q, "quorum")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return r
}

func TestParse(t *testing.T) {
	lost := func(limit intstr.IntOrString, after string) *pipelinesv1.Quorum {
		return &pipelinesv1.Quorum{Lost: &pipelinesv1.LostTargets{Max: limit, After: after}}
	}
	for name, tc := range map[string]struct {
		spec  *pipelinesv1.Quorum
		wrong string
	}{
		"empty":                {&pipelinesv1.Quorum{}, ""},
		"all fields":           {&pipelinesv1.Quorum{Ready: "95%", JoinWithin: "0s", Lost: &pipelinesv1.LostTargets{After: "1m", Max: intstr.FromString("10%")}}, ""},
		"half":                 {&pipelinesv1.Quorum{Ready: "50%"}, `quorum.ready: "50%" is not a percentage from 51% to 100%`},
		"above all":            {&pipelinesv1.Quorum{Ready: "101%"}, "quorum.ready"},
		"no percentage":        {&pipelinesv1.Quorum{Ready: "0.9"}, "quorum.ready"},
		"negative":             {&pipelinesv1.Quorum{Ready: "-60%"}, "quorum.ready"},
		"joins for a year":     {&pipelinesv1.Quorum{JoinWithin: "9000h"}, "quorum.joinWithin: 9000h is not from 0s to 744h"},
		"lost at once":         {lost(intstr.FromInt32(1), "1s"), "quorum.lost.after: 1s is not from 1m to 744h"},
		"half may be lost":     {lost(intstr.FromString("50%"), ""), "quorum.lost.max: 50% is neither a number of targets nor a percentage from 0% to 49%"},
		"fewer than none":      {lost(intstr.FromInt32(-1), ""), "quorum.lost.max: -1 is neither"},
		"a number as a string": {lost(intstr.FromString("2"), ""), "quorum.lost.max: 2 is neither"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := parse(tc.spec, "quorum")
			if tc.wrong == "" {
				g.Expect(r.Err()).NotTo(HaveOccurred())
				return
			}
			g.Expect(r.Err()).To(MatchError(ContainSubstring(tc.wrong)))
			_, agrees := Fleet{Targets: []Target{at("1.1")}, Quorum: r}.Agree()
			g.Expect(agrees).To(BeFalse(), "an environment with an invalid quorum runs nothing")
		})
	}
}

// at is a target that runs a revision, fresh and ready.
func at(revision string) Target { return Target{Fresh: true, Ready: true, Revision: revision} }

func unready(revision string) Target { return Target{Fresh: true, Revision: revision} }
func stale(revision string) Target   { return Target{Ready: true, Revision: revision} }

func many(n int, t Target) []Target {
	all := make([]Target, n)
	for i := range all {
		all[i] = t
	}
	return all
}

func left(standing pipelinesv1.TargetStanding, t Target) Target {
	t.Standing = standing
	return t
}

func join(all ...[]Target) []Target {
	var joined []Target
	for _, some := range all {
		joined = append(joined, some...)
	}
	return joined
}

// What an environment runs, by a quorum of nine tenths of which a tenth may be lost.
func TestQuorum(t *testing.T) {
	q := rulesOf(t, &pipelinesv1.Quorum{Ready: "90%", Lost: &pipelinesv1.LostTargets{Max: intstr.FromString("10%")}})
	lost, joining, late := left(pipelinesv1.TargetLost, stale("1.0")), left(pipelinesv1.TargetJoining, unready("1.0")), left(pipelinesv1.TargetLate, at("1.0"))
	for name, tc := range map[string]struct {
		targets  []Target
		required int
		runs     string
		verdict  soak.Verdict
		fresh    bool
	}{
		"all":                            {many(20, at("1.1")), 18, "1.1", soak.Ready, true},
		"two run another":                {join(many(2, at("1.0")), many(18, at("1.1"))), 18, "1.1", soak.Ready, true},
		"three run another":              {join(many(3, at("1.0")), many(17, at("1.1"))), 18, "", soak.Unready, true},
		"two are broken":                 {join(many(2, unready("1.1")), many(18, at("1.1"))), 18, "1.1", soak.Ready, true},
		"two are stale":                  {join(many(2, stale("1.1")), many(18, at("1.1"))), 18, "1.1", soak.Ready, true},
		"three are stale":                {join(many(3, stale("1.1")), many(17, at("1.1"))), 18, "", soak.Unobserved, false},
		"three progress":                 {join(many(3, Target{Fresh: true, Progressing: true, Revision: "1.1"}), many(17, at("1.1"))), 18, "", soak.Progressing, true},
		"two are lost, two are broken":   {join(many(2, lost), many(2, unready("1.1")), many(16, at("1.1"))), 17, "", soak.Unready, true},
		"two are lost, one is broken":    {join(many(2, lost), many(1, unready("1.1")), many(17, at("1.1"))), 17, "1.1", soak.Ready, true},
		"three are lost":                 {join(many(3, lost), many(17, at("1.1"))), 21, "", soak.Unobserved, false},
		"nine join":                      {join(many(9, joining), many(11, at("1.1"))), 11, "1.1", soak.Ready, true},
		"half join":                      {join(many(10, joining), many(10, at("1.1"))), 11, "", soak.Unobserved, true},
		"half join and are stale":        {join(many(10, left(pipelinesv1.TargetJoining, stale(""))), many(10, at("1.1"))), 11, "", soak.Unobserved, false},
		"two are late":                   {join(many(2, late), many(18, at("1.1"))), 18, "1.1", soak.Ready, true},
		"three are late":                 {join(many(3, late), many(17, at("1.1"))), 18, "", soak.Unready, true},
		"the hub is cut off from half":   {join(many(10, stale("1.1")), many(10, at("1.1"))), 18, "", soak.Unobserved, false},
		"one":                            {many(1, at("1.1")), 1, "1.1", soak.Ready, true},
		"one of two":                     {join(many(1, at("1.0")), many(1, at("1.1"))), 2, "", soak.Unready, true},
		"none":                           {nil, 1, "", soak.Unobserved, true},
		"the first has another spelling": {[]Target{at("main@sha1:" + commits), at("release@sha1:" + commits)}, 2, "main@sha1:" + commits, soak.Unready, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := Fleet{Targets: tc.targets, Quorum: q}
			g.Expect(f.Required()).To(Equal(tc.required))
			runs, agrees := f.Agree()
			g.Expect(agrees).To(Equal(tc.runs != ""))
			if agrees {
				g.Expect(runs).To(Equal(tc.runs))
			}
			g.Expect(f.Observe("1.1", soak.Unready)).To(Equal(tc.verdict))
			g.Expect(f.Fresh()).To(Equal(tc.fresh))
		})
	}
	g := NewWithT(t)
	all := join(many(3, late), many(17, at("1.1")))
	g.Expect(Fleet{Targets: join(many(2, lost), many(1, late), many(17, at("1.1"))), Quorum: q}.Judged(nil).Observe("1.1", soak.Unready)).
		To(Equal(soak.Ready), "two of twenty may be lost, also if one of them is late")
	g.Expect(Fleet{Targets: join(many(3, lost), many(1, late), many(16, at("1.1"))), Quorum: q}.Judged(nil).Observe("1.1", soak.Unready)).To(Equal(soak.Unobserved))
	g.Expect(Fleet{Targets: all, Quorum: q}.Judged(nil).Observe("1.1", soak.Unready)).To(Equal(soak.Ready), "late targets fail no verification")
	member, newcomer := at("1.1"), at("1.0")
	member.Cluster, newcomer.Cluster = "fleet/a", "fleet/b"
	three := Fleet{Targets: []Target{member, member, newcomer}}
	g.Expect(three.Judged(nil).Observe("1.1", soak.Unready)).To(Equal(soak.Unready))
	g.Expect(three.Judged(&capstanv1.PromotionWave{Clusters: []string{"fleet/a"}}).Observe("1.1", soak.Unready)).To(Equal(soak.Ready), "the promotion is not for the newcomer")
	g.Expect(three.Judged(&capstanv1.PromotionWave{Clusters: []string{"fleet/a", "fleet/b"}}).Observe("1.1", soak.Unready)).To(Equal(soak.Unready))
	wave := &capstanv1.PromotionWave{Clusters: []string{"fleet/a"}}
	for what, joined := range map[string]Target{"runs it": at("1.1"), "runs another": at("1.0"), "is late": {Standing: pipelinesv1.TargetLate}, "joins": {Standing: pipelinesv1.TargetJoining}} {
		joined.Cluster = "fleet/b"
		two := Fleet{Targets: []Target{member, joined}}
		g.Expect(two.Judged(wave).Observe("1.1", soak.Unready)).To(Equal(soak.Ready), "one member, and one that joined and %s", what)
		two.Targets[0].Ready = false
		g.Expect(two.Judged(wave).Observe("1.1", soak.Unready)).To(Equal(soak.Unready), "a member that is broken, and one that joined and %s", what)
	}
	g.Expect(Fleet{Targets: all, Quorum: q}.Observe("1.1", soak.Unobserved)).To(Equal(soak.Unobserved), "those that run another revision")
	_, agrees := Fleet{Targets: many(3, at("1.1")), Quorum: q, Unknown: true}.Agree()
	g.Expect(agrees).To(BeFalse(), "it is not known which clusters are selected")
}

const commits = "4e1243bd22c66e76c2ba9eddc1f91394e57f9f83"

// A target is lost, returns, joins and is late at the times of its rules, and not when clocks are set.
func TestStand(t *testing.T) {
	g := NewWithT(t)
	r := rulesOf(t, &pipelinesv1.Quorum{JoinWithin: "30m", Lost: &pipelinesv1.LostTargets{After: "1h", Max: intstr.FromInt32(1)}})
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	none, lost := Member{}, Member{Standing: pipelinesv1.TargetLost, Since: now}
	joining, late := Member{Standing: pipelinesv1.TargetJoining, Since: now}, Member{Standing: pipelinesv1.TargetLate, Since: now.Add(30 * time.Minute)}
	expect := func(what string, was Member, of Target, unobserved time.Duration, at time.Duration, is Member, left time.Duration) {
		t.Helper()
		member, until := r.Stand(was, of, []string{"1.1"}, now.Add(unobserved), now.Add(at))
		g.ExpectWithOffset(1, member).To(Equal(is), what)
		g.ExpectWithOffset(1, until).To(Equal(left), what)
	}
	expect("in line", none, at("1.1"), 0, 0, none, 0)
	expect("a broken target that can be observed is never lost", none, unready("1.1"), 0, 100*time.Hour, none, 0)
	expect("not observed", none, stale("1.1"), 0, 59*time.Minute, none, time.Minute)
	expect("lost", none, stale("1.1"), -time.Hour, 0, lost, 0)
	expect("stays lost, also after a restart", lost, stale("1.1"), time.Hour, time.Hour, lost, 0)
	expect("returns with its revision", lost, at("1.1"), 0, time.Hour, none, 0)
	expect("returns with an old one", lost, at("1.0"), 0, 0, joining, 30*time.Minute)
	expect("new", Member{New: true}, at("1.0"), 0, 0, joining, 30*time.Minute)
	expect("new, and runs it", Member{New: true}, at("1.1"), 0, 0, none, 0)
	expect("new, and not observed yet", Member{New: true}, Target{}, 0, 0, joining, 30*time.Minute)
	expect("joins", joining, unready("1.1"), 0, 29*time.Minute, joining, time.Minute)
	expect("has joined", joining, at("1.1"), 0, 29*time.Minute, none, 0)
	expect("is late", joining, at("1.0"), 0, 30*time.Minute, late, 0)
	expect("stays late", late, at("1.0"), 0, 100*time.Hour, late, 0)
	expect("is late and arrives", late, at("1.1"), 0, 100*time.Hour, none, 0)
	expect("is late and is lost", late, stale("1.0"), 0, time.Hour, Member{Standing: pipelinesv1.TargetLost, Since: now.Add(time.Hour)}, 0)
	expect("is late and is not lost yet", late, stale("1.0"), 0, 59*time.Minute, late, time.Minute)
	expect("the clock was set back", joining, at("1.0"), 0, -time.Hour, Member{Standing: pipelinesv1.TargetJoining, Since: now.Add(-time.Hour)}, 30*time.Minute)
	r.LostAfter = 0
	expect("may not be lost any more", lost, stale("1.1"), 0, 0, none, 0)
	expect("may not be lost any more, and can be observed", lost, at("1.0"), 0, 0, joining, 30*time.Minute)

	r = Rules{}
	expect("nothing is lost without rules", none, stale("1.1"), -100*time.Hour, 0, none, 0)
	expect("nothing joins without rules", Member{New: true}, at("1.0"), 0, 0, none, 0)
	expect("rules were removed", lost, stale("1.1"), 0, 0, none, 0)
}

// At most one revision is run, whatever is observed of the targets; and no two hubs that observe a different half of
// them can find two. A target more that runs the revision never ends the agreement.
func TestAgreementIsUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Rules{percent: rapid.SampledFrom([]int{0, 51, 67, 90, 100}).Draw(t, "percent"), maxLost: rapid.IntRange(0, 49).Draw(t, "lost"), maxLostPercent: rapid.Bool().Draw(t, "percent of lost")}
		runs := rapid.SliceOfN(rapid.SampledFrom([]string{"1.0", "1.1", "1.2"}), 1, 12).Draw(t, "runs")
		observe := func(label string) Fleet {
			f := Fleet{Quorum: q, Targets: make([]Target, len(runs))}
			for i := range runs {
				switch rapid.IntRange(0, 5).Draw(t, fmt.Sprintf("%s %d", label, i)) {
				case 0:
					f.Targets[i] = left(pipelinesv1.TargetLost, stale(runs[i]))
				case 1:
					f.Targets[i] = left(pipelinesv1.TargetJoining, unready(runs[i]))
				case 2:
					f.Targets[i] = stale(runs[i])
				default:
					f.Targets[i] = at(runs[i])
				}
			}
			return f
		}
		a, b := observe("one hub"), observe("another")
		one, agrees := a.Agree()
		if other, both := b.Agree(); agrees && both && one != other {
			t.Fatalf("%s and %s: %+v, %+v", one, other, a, b)
		}
		if !agrees {
			return
		}
		n := 0
		for i := range a.Targets {
			if a.Targets[i].Runs(one) && !a.Targets[i].Standing.LeftOut() {
				n++
			}
		}
		if 2*n <= len(runs) {
			t.Fatalf("%d of %d agree on %s", n, len(runs), one)
		}
		if a.Observe(one, soak.Unready) != soak.Ready {
			t.Fatalf("%s is agreed on and not ready: %+v", one, a)
		}
		more := Fleet{Quorum: q, Targets: append(append([]Target{}, a.Targets...), at(one))}
		if same, still := more.Agree(); !still || same != one {
			t.Fatalf("one more that runs %s: %+v", one, more)
		}
	})
}

func TestFleetOf(t *testing.T) {
	seen := &metav1.Time{Time: time.Unix(1, 0)}
	two := &pipelinesv1.Environment{Name: "prod", Targets: []pipelinesv1.Target{{Namespace: "a"}, {Namespace: "b"}}}
	one := &pipelinesv1.Environment{Name: "prod", Targets: two.Targets[:1]}
	for name, tc := range map[string]struct {
		env    *pipelinesv1.Environment
		status []pipelinesv1.TargetStatus
		want   []Target
	}{
		"no status":                            {two, nil, []Target{{}, {}}},
		"ready":                                {one, []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.0"}}, []Target{at("1.0")}},
		"not ready":                            {one, []pipelinesv1.TargetStatus{{Revision: "1.0"}}, []Target{unready("1.0")}},
		"stale":                                {one, []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.0", Stale: true}}, []Target{stale("1.0")}},
		"never observed":                       {one, []pipelinesv1.TargetStatus{{Error: "not observed yet"}}, []Target{{}}},
		"not readable, a revision is known":    {one, []pipelinesv1.TargetStatus{{Error: "forbidden", Revision: "1.0", ObservedTime: seen}}, []Target{{Revision: "1.0"}}},
		"observed to be absent":                {one, []pipelinesv1.TargetStatus{{Error: "not found", ObservedTime: seen}}, []Target{{Fresh: true}}},
		"absent, stored by an earlier version": {one, []pipelinesv1.TargetStatus{{Error: "not found", FormerObservedAt: seen}}, []Target{{Fresh: true}}},
		"absent, then unreachable":             {one, []pipelinesv1.TargetStatus{{Error: "no answer", ObservedTime: seen, Stale: true}}, []Target{{}}},
		"added to the spec since":              {two, []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.0"}}, []Target{at("1.0"), {}}},
		"removed from the spec since":          {one, []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.0"}, {Revision: "0.9"}}, []Target{at("1.0")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{*tc.env}}}
			if tc.status != nil {
				p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"prod": {Targets: tc.status}}
			}
			NewWithT(t).Expect(FleetOf(p, 0)).To(Equal(Fleet{Targets: tc.want}))
		})
	}
}

// The status of a fleet lists some of its targets. What it does not list is in line, is left out or is broken only as far as it is
// counted.
func TestG61FleetOfAStatusThatListsSome(t *testing.T) {
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{{Name: "prod", Targets: []pipelinesv1.Target{{Clusters: &pipelinesv1.ClusterSelector{}}}}}}}
	show := func(targets, ready, required int32, listed ...pipelinesv1.TargetStatus) (string, bool) {
		p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"prod": {
			Fleet: &pipelinesv1.FleetStatus{Targets: targets, Ready: ready, Required: required, Revision: "1.1"}, Targets: listed,
		}}
		f := FleetOf(p, 0)
		g.ExpectWithOffset(1, f.Targets).To(HaveLen(int(targets)))
		return f.Agree()
	}
	runs, broken := pipelinesv1.TargetStatus{Ready: true, Revision: "1.1"}, pipelinesv1.TargetStatus{Revision: "1.1"}
	revision, agrees := show(500, 500, 500, runs, runs)
	g.Expect(agrees).To(BeTrue())
	g.Expect(revision).To(Equal("1.1"))
	_, agrees = show(500, 499, 500, broken, runs)
	g.Expect(agrees).To(BeFalse(), "one is broken")
	_, agrees = show(500, 499, 500, runs, runs)
	g.Expect(agrees).To(BeFalse(), "one that is not listed is broken")
	_, agrees = show(500, 500, 501, runs)
	g.Expect(agrees).To(BeFalse(), "the hub has found that nothing can be enough")

	p.Spec.Environments[0].Quorum = &pipelinesv1.Quorum{Ready: "80%", Lost: &pipelinesv1.LostTargets{Max: intstr.FromInt32(10)}}
	lost := pipelinesv1.TargetStatus{Standing: pipelinesv1.TargetLost}
	counted := func(of pipelinesv1.FleetStatus, listed ...pipelinesv1.TargetStatus) Fleet {
		of.Targets, of.Revision, of.Required = 100, "1.1", of.Ready
		p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"prod": {Fleet: &of, Targets: listed}}
		return FleetOf(p, 0)
	}
	for what, tc := range map[string]struct {
		fleet   Fleet
		verdict soak.Verdict
	}{
		"ten that are lost, of which one is listed": {counted(pipelinesv1.FleetStatus{Ready: 72, Lost: 10}, lost), soak.Ready},
		"eleven, and ten may be":                    {counted(pipelinesv1.FleetStatus{Ready: 89, Lost: 11}, lost), soak.Unobserved},
		"targets that join":                         {counted(pipelinesv1.FleetStatus{Ready: 64, Joining: 20}, runs), soak.Ready},
		"late ones":                                 {counted(pipelinesv1.FleetStatus{Ready: 64, Late: 20}, runs), soak.Ready},
		"others":                                    {counted(pipelinesv1.FleetStatus{Ready: 64}, runs), soak.Unobserved},
		"21 are not ready":                          {counted(pipelinesv1.FleetStatus{Ready: 79, Unready: 21}, broken, broken), soak.Unready},
		"20 are not ready":                          {counted(pipelinesv1.FleetStatus{Ready: 79, Unready: 20}, broken, broken), soak.Unobserved},
	} {
		g.Expect(tc.fleet.Targets).To(HaveLen(100), what)
		g.Expect(tc.fleet.Judged(nil).Observe("1.1", soak.Unready)).To(Equal(tc.verdict), what)
	}

	members := &capstanv1.PromotionWave{Clusters: []string{"fleet/a"}}
	g.Expect(counted(pipelinesv1.FleetStatus{Ready: 90, Lost: 10}, lost).Elsewhere("1.1", members)).To(BeFalse())
	g.Expect(counted(pipelinesv1.FleetStatus{Ready: 89, Lost: 10, Late: 1}, lost).Elsewhere("1.1", members)).To(BeTrue(), "the late one is not listed: it may be one of the wave")
	g.Expect(counted(pipelinesv1.FleetStatus{Ready: 89, Lost: 10, Unready: 1}, lost).Elsewhere("1.1", members)).To(BeTrue(), "one that is not ready is not listed")
	g.Expect(Fleet{Targets: []Target{{Cluster: "fleet/a", Fresh: true, Revision: "1.0"}}}.Elsewhere("1.1", members)).To(BeTrue())
	g.Expect(Fleet{Targets: []Target{{Cluster: "fleet/a", Revision: "1.0"}}}.Elsewhere("1.1", members)).To(BeFalse(), "it cannot be observed")
	g.Expect(Fleet{Targets: []Target{{Cluster: "fleet/b", Fresh: true, Revision: "1.0"}}}.Elsewhere("1.1", members)).To(BeFalse(), "it is no member")

	p.Status.Environments["prod"].Fleet = nil
	g.Expect(FleetOf(p, 0).Unknown).To(BeTrue(), "it was no fleet before")
}
