package check

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func cel(name, text string) pipelinesv1.Check {
	return pipelinesv1.Check{Name: name, CEL: &pipelinesv1.CELCheck{Expression: text}}
}

func query(name, text string) pipelinesv1.Check {
	return pipelinesv1.Check{Name: name, Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "up", Expression: text}}
}

func TestParse(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	all, err := Parse([]pipelinesv1.Check{cel("ready", "targets.all(t, t.ready)"), query("errors", "value < 1")}, "spec.gates.checks")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(2))
	g.Expect(all[0].IsQuery()).To(BeFalse())
	g.Expect(all[1]).To(And(HaveField("Endpoint", "main"), HaveField("Interval", time.Minute), HaveField("Passes", 1), HaveField("Failures", 3)))
	g.Expect(all[0].Identity()).NotTo(Equal(all[1].Identity()))

	with := func(c pipelinesv1.Check, change func(*pipelinesv1.Check)) pipelinesv1.Check { change(&c); return c }
	for wrong, list := range map[string][]pipelinesv1.Check{
		`gates.checks[0] (check "none"): set exactly one of cel and prometheus`:                                 {{Name: "none"}},
		`gates.checks[0] (check "both"): set exactly one of cel and prometheus`:                                 {with(cel("both", "true"), func(c *pipelinesv1.Check) { c.Prometheus = query("", "").Prometheus })},
		`gates.checks[1].name (check "a"): it is used twice; give each check a different name`:                  {cel("a", "true"), cel("a", "true")},
		`gates.checks[0].interval (check "fast"): 1s is not from 30s to 24h, in whole seconds`:                  {with(query("fast", "value < 1"), func(c *pipelinesv1.Check) { c.Interval = "1s" })},
		`gates.checks[0].interval (check "never"): "often" is not a duration, such as 2h or 90m`:                {with(cel("never", "true"), func(c *pipelinesv1.Check) { c.Interval = "often" })},
		`gates.checks[0].cel.expression (check "typo"): undeclared reference to 'tragets' (column 1)`:           {cel("typo", "tragets.all(t, t.ready)")},
		`gates.checks[0].prometheus.expression (check "targets"): undeclared reference to 'targets' (column 1)`: {query("targets", "targets.all(t, t.ready)")},
	} {
		_, err := Parse(list, "gates.checks")
		g.Expect(err).To(MatchError(wrong))
	}
}

// seen is a Pipeline with two environments whose targets run a revision.
func seen(change func(*pipelinesv1.TargetStatus)) *pipelinesv1.Pipeline {
	now := metav1.Now()
	at := func(change func(*pipelinesv1.TargetStatus)) *pipelinesv1.EnvironmentStatus {
		s := pipelinesv1.TargetStatus{Ready: true, Revision: "1.1", ObservedTime: &now,
			ClusterAppRef: pipelinesv1.ClusterAppReference{ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Name: "east"}}}
		change(&s)
		return &pipelinesv1.EnvironmentStatus{Targets: []pipelinesv1.TargetStatus{s}}
	}
	targets := []pipelinesv1.Target{{Namespace: "shop"}}
	return &pipelinesv1.Pipeline{
		Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{{Name: "dev", Targets: targets}, {Name: "prod", Targets: targets}}},
		Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{
			"dev": at(func(*pipelinesv1.TargetStatus) {}), "prod": at(change),
		}},
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	p := &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{Environment: "prod", Revision: "1.1", Source: capstanv1.PromotionSource{Environment: "dev"},
		From: &capstanv1.PromotionBase{Revisions: []string{"1.0"}}}}
	same := func(*pipelinesv1.TargetStatus) {}
	for name, tc := range map[string]struct {
		text    string
		change  func(*pipelinesv1.TargetStatus)
		verdict capstanv1.CheckVerdict
		message string
	}{
		"passes":     {`targets.all(t, t.ready && t.cluster == "east" && t.namespace == "shop") && from == ["1.0"] && source == "dev"`, same, capstanv1.CheckPass, "it passes"},
		"fails":      {`sourceTargets[0].revision != revision`, same, capstanv1.CheckFail, `"sourceTargets[0].revision != revision" is false`},
		"stale":      {`false`, func(s *pipelinesv1.TargetStatus) { s.Stale = true }, capstanv1.CheckNoData, "a target cannot be observed"},
		"unreadable": {`false`, func(s *pipelinesv1.TargetStatus) { s.Error = "forbidden" }, capstanv1.CheckNoData, "a target cannot be observed"},
		"error":      {`targets[7].ready`, same, capstanv1.CheckError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all, err := Parse([]pipelinesv1.Check{cel("c", tc.text)}, "checks")
			g.Expect(err).NotTo(HaveOccurred())
			r := all[0].Observe(Observe(seen(tc.change), p))
			g.Expect(r.Verdict).To(Equal(tc.verdict), r.Message)
			if tc.message != "" {
				g.Expect(r.Message).To(Equal(tc.message))
			}
		})
	}
	g := NewWithT(t)
	unknown := seen(same)
	delete(unknown.Status.Environments, "prod")
	g.Expect(Observe(unknown, p).Fresh).To(BeFalse(), "nothing is known of the environment")
	short := seen(same)
	short.Spec.Environments[1].Targets = append(short.Spec.Environments[1].Targets, pipelinesv1.Target{Namespace: "new"})
	g.Expect(Observe(short, p).Fresh).To(BeFalse(), "a new target was not observed")
}

// A fleet is judged by the targets that can be observed if they are enough. One that is late fails no verification.
func TestObserveFleet(t *testing.T) {
	t.Parallel()
	p := &capstanv1.Promotion{Spec: capstanv1.PromotionSpec{Environment: "prod", Revision: "1.1", Source: capstanv1.PromotionSource{Environment: "dev"}}}
	all, err := Parse([]pipelinesv1.Check{cel("c", "targets.all(t, t.ready && t.revision == revision)")}, "checks")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	status := func(change func(*pipelinesv1.TargetStatus)) pipelinesv1.TargetStatus {
		now := metav1.Now()
		s := pipelinesv1.TargetStatus{Ready: true, Revision: "1.1", ObservedTime: &now}
		change(&s)
		return s
	}
	runs := status(func(*pipelinesv1.TargetStatus) {})
	stale := status(func(s *pipelinesv1.TargetStatus) { s.Stale, s.Revision = true, "1.0" })
	broken := status(func(s *pipelinesv1.TargetStatus) { s.Ready = false })
	standing := func(s pipelinesv1.TargetStatus, is pipelinesv1.TargetStanding) pipelinesv1.TargetStatus {
		s.Standing = is
		return s
	}
	lost, joining := standing(stale, pipelinesv1.TargetLost), standing(stale, pipelinesv1.TargetJoining)
	quorum := &pipelinesv1.Quorum{Ready: "90%", Lost: &pipelinesv1.LostTargets{Max: intstr.FromInt32(1)}}
	for name, tc := range map[string]struct {
		quorum  *pipelinesv1.Quorum
		first   []pipelinesv1.TargetStatus // of 20 targets; the others run the revision
		verdict capstanv1.CheckVerdict
		judged  int
	}{
		"all":                                  {quorum, nil, capstanv1.CheckPass, 20},
		"two cannot be observed":               {quorum, []pipelinesv1.TargetStatus{stale, stale}, capstanv1.CheckPass, 18},
		"three cannot be observed":             {quorum, []pipelinesv1.TargetStatus{stale, stale, stale}, capstanv1.CheckNoData, 17},
		"one is broken":                        {quorum, []pipelinesv1.TargetStatus{broken}, capstanv1.CheckFail, 20},
		"one is lost":                          {quorum, []pipelinesv1.TargetStatus{lost}, capstanv1.CheckPass, 19},
		"two are lost, and one may be":         {quorum, []pipelinesv1.TargetStatus{lost, lost}, capstanv1.CheckNoData, 18},
		"three are late":                       {quorum, []pipelinesv1.TargetStatus{standing(stale, pipelinesv1.TargetLate), standing(broken, pipelinesv1.TargetLate), standing(stale, pipelinesv1.TargetLate)}, capstanv1.CheckPass, 17},
		"one joins":                            {quorum, []pipelinesv1.TargetStatus{joining}, capstanv1.CheckPass, 19},
		"ten join":                             {quorum, slices.Repeat([]pipelinesv1.TargetStatus{joining}, 10), capstanv1.CheckPass, 10},
		"ten join, another cannot be observed": {quorum, append(slices.Repeat([]pipelinesv1.TargetStatus{joining}, 10), stale), capstanv1.CheckNoData, 9},
		"no quorum":                            {nil, []pipelinesv1.TargetStatus{joining}, capstanv1.CheckPass, 19},
		"no quorum, one cannot be observed":    {nil, []pipelinesv1.TargetStatus{stale}, capstanv1.CheckNoData, 19},
		"no quorum, one cannot be observed and others join": {nil, []pipelinesv1.TargetStatus{
			stale, standing(runs, pipelinesv1.TargetJoining), standing(runs, pipelinesv1.TargetJoining),
		}, capstanv1.CheckNoData, 17},
		"no quorum, one is late and cannot be observed": {nil, []pipelinesv1.TargetStatus{standing(stale, pipelinesv1.TargetLate)}, capstanv1.CheckPass, 19},
	} {
		t.Run(name, func(t *testing.T) {
			g, pipeline := NewWithT(t), seen(func(*pipelinesv1.TargetStatus) {})
			pipeline.Spec.Environments[1].Quorum = tc.quorum
			pipeline.Spec.Environments[1].Targets = []pipelinesv1.Target{{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{}}}
			prod := pipeline.Status.Environments["prod"]
			prod.Targets = append(tc.first, slices.Repeat([]pipelinesv1.TargetStatus{runs}, 20-len(tc.first))...)
			prod.Fleet = &pipelinesv1.FleetStatus{Targets: 20}
			o := Observe(pipeline, p)
			r := all[0].Observe(o)
			g.Expect(r.Verdict).To(Equal(tc.verdict), r.Message)
			g.Expect(o.Targets.Targets).To(HaveLen(tc.judged))
		})
	}

	g, pipeline := NewWithT(t), seen(func(*pipelinesv1.TargetStatus) {})
	pipeline.Spec.Environments[1].Targets = []pipelinesv1.Target{{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{}}}
	older := status(func(s *pipelinesv1.TargetStatus) { s.Revision = "1.0" })
	prod := pipeline.Status.Environments["prod"]
	prod.Targets, prod.Fleet = slices.Repeat([]pipelinesv1.TargetStatus{older}, 100), &pipelinesv1.FleetStatus{Targets: 500, Ready: 300, Required: 500, Revision: "1.1"}
	g.Expect(all[0].Observe(Observe(pipeline, p)).Verdict).To(Equal(capstanv1.CheckFail), "200 run another revision, and 100 are listed")
	prod.Targets[7] = stale
	g.Expect(all[0].Observe(Observe(pipeline, p)).Verdict).To(Equal(capstanv1.CheckNoData), "one of them cannot be observed")
}

func TestJudge(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	all, err := Parse([]pipelinesv1.Check{query("errors", "value < 0.01")}, "checks")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all[0].Judge(0.001)).To(Equal(Result{capstanv1.CheckPass, "0.001", "it passes"}))
	g.Expect(all[0].Judge(0.0234567891)).To(Equal(Result{capstanv1.CheckFail, "0.0234568", `"value < 0.01" is false, with the value 0.0234568`}))
}

// A Tally decides as a reader would who has all results: the last ones that count must be as many as
// required, and the last of all must not be too old.
func TestTally(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Check{Name: "c", Interval: time.Minute, Passes: rapid.IntRange(1, 3).Draw(t, "passes"), Failures: rapid.IntRange(1, 3).Draw(t, "failures")}
		verdicts := rapid.SliceOf(rapid.SampledFrom([]capstanv1.CheckVerdict{capstanv1.CheckPass, capstanv1.CheckFail, capstanv1.CheckNoData, capstanv1.CheckError})).Draw(t, "verdicts")
		counts := rapid.Bool().Draw(t, "counts")
		now := time.Unix(1_700_000_000, 0)
		var tally Tally
		if _, is := tally.Status(c, now, counts); is || tally.Due(c, now) > 0 {
			t.Fatalf("nothing was measured")
		}
		for _, v := range verdicts {
			now = now.Add(c.Interval)
			tally = tally.Note(c, now, Result{Verdict: v})
		}
		if len(verdicts) == 0 {
			return
		}
		passes, failures := 0, 0
		for i := len(verdicts) - 1; i >= 0 && verdicts[i] == capstanv1.CheckPass; i-- {
			passes++
		}
		for i := len(verdicts) - 1; i >= 0 && verdicts[i] != capstanv1.CheckPass; i-- {
			if verdicts[i] == capstanv1.CheckFail {
				failures++
			}
		}
		last := verdicts[len(verdicts)-1]
		s, is := tally.Status(c, now, counts)
		if !is || s.Verdict != last {
			t.Fatalf("%v: %+v", verdicts, s)
		}
		if Passed(&s) != (passes >= c.Passes) {
			t.Fatalf("%v: passed is %v", verdicts, Passed(&s))
		}
		if Failed(&s) != (counts && last == capstanv1.CheckFail && failures >= c.Failures) {
			t.Fatalf("%v: failed is %v", verdicts, Failed(&s))
		}
		if left := tally.Due(c, now.Add(time.Second)); left != c.Interval-time.Second {
			t.Fatalf("due in %s", left)
		}
		old, _ := tally.Status(c, now.Add(expireAfter*c.Interval+1), counts)
		if Passed(&old) || Failed(&old) || old.Verdict != capstanv1.CheckNoData {
			t.Fatalf("an old result decides: %+v", old)
		}
		later := now.Add(expireAfter*c.Interval + 1)
		if again, _ := tally.Note(c, later, Result{Verdict: capstanv1.CheckPass}).Status(c, later, counts); Passed(&again) != (c.Passes == 1) {
			t.Fatalf("old passes count: %+v", again)
		}
	})
}

// The status of a check is kept while it says the same, so that a value that changes writes nothing.
func TestKeep(t *testing.T) {
	t.Parallel()
	g, then := NewWithT(t), metav1.Now()
	known := []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckFail, Value: "2", LastTransitionTime: &then}}
	g.Expect(Keep(known, capstanv1.CheckStatus{Name: "errors", Verdict: capstanv1.CheckFail, Value: "3"})).To(Equal(known[0]))
	unknown := []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckError, Message: "it does not answer", LastTransitionTime: &then}}
	g.Expect(Keep(unknown, capstanv1.CheckStatus{Name: "errors", Verdict: capstanv1.CheckError, Message: "status 500"})).To(Equal(
		capstanv1.CheckStatus{Name: "errors", Verdict: capstanv1.CheckError, Message: "status 500", LastTransitionTime: &then}), "another cause")
	for _, other := range []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckPass}, {Name: "errors", Verdict: capstanv1.CheckFail, Done: true}, {Name: "other", Verdict: capstanv1.CheckFail}} {
		g.Expect(Keep(known, other)).To(Equal(other))
	}
}
