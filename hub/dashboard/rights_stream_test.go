package dashboard

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
)

// change changes an object of every kind whose changes pages show.
func (n *tenant) change(revision string) {
	n.t.Helper()
	n.report("Cluster", "capi", capstanv1.ConnectionDegraded, n.name("degraded-"+revision))
	n.runs(n.pipeline, n.pipeline.Spec.Environments[0].Name, revision)
	n.event("changed-"+revision, "FollowInstances", "SpotInterruption", n.name("says-"+revision), "AWSMachine", n.name("spot"))
	n.waiting.Status.Phase, n.waiting.Status.Message = capstanv1.PhaseFailed, n.name("failed-"+revision)
	n.Expect(n.c.Status().Update(n.t.Context(), n.waiting)).To(Succeed())
	n.moved(n.pipeline, int64(len(revision)+3), revision, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, StartTime: &n.waiting.CreationTimestamp, FinishTime: &n.waiting.CreationTimestamp, CarriedOutTime: &n.waiting.CreationTimestamp})
	n.backend.Status.Conditions = []eventingv1.Condition{{Type: "Ready", Status: "False", Reason: "Unreachable", Message: n.name("queue-" + revision), LastTransitionTime: n.waiting.CreationTimestamp}}
	n.Expect(n.c.Status().Update(n.t.Context(), n.backend)).To(Succeed())
	spot := n.raw(awsVersion, "AWSMachine", n.name("late-"+revision), map[string]any{"cluster.x-k8s.io/cluster-name": n.name("capi"), "ec2-instance-state": "terminating"},
		map[string]any{"spec": map[string]any{"instanceType": "m5.large"}})
	n.Expect(spot.GetUID()).NotTo(BeEmpty())
	n.clock.step(machinesFor) // Machines are read again.
}

// watched is an open stream of a page.
type watched struct {
	page, version string
	events        <-chan sent
}

// watch opens the streams of pages, with as many sessions of a user as that needs.
func (p *person) watch(pages []string) (all []watched) {
	p.w.t.Helper()
	for part := range slices.Chunk(pages, maxOwnStreams) {
		b := p.w.browser()
		p.w.enter(b, p.token)
		for _, page := range part {
			version := b.get(page).version()
			p.w.Expect(version).NotTo(BeEmpty(), page)
			events, _ := b.listen(page, version, nil)
			all = append(all, watched{page, version, events})
		}
	}
	return all
}

// quiet checks that no page changed for a user: neither its stream nor its poll has anything.
func (p *person) quiet(streams []watched) {
	p.w.t.Helper()
	p.w.Consistently(func(g Gomega) {
		for _, s := range streams {
			g.Expect(s.events).NotTo(Receive(), "%s, %s", p.name, s.page)
		}
	}, 3*pulseEvery).Should(Succeed())
	for _, s := range streams {
		var polled struct {
			Version string
			Patches []change
			Resync  bool
		}
		p.w.Expect(json.Unmarshal([]byte(p.get("/changes?"+url.Values{"page": {s.page}, "from": {s.version}}.Encode()).Body), &polled)).To(Succeed())
		p.w.Expect(polled.Patches).To(BeEmpty(), "%s, %s", p.name, s.page)
		p.w.Expect(polled.Resync).To(BeFalse(), "%s, %s", p.name, s.page)
		p.w.Expect(polled.Version).To(Equal(s.version), "%s, %s", p.name, s.page)
	}
}

// told waits until the streams have a change with a text.
func (p *person) told(streams []watched, of string) {
	p.w.t.Helper()
	for _, s := range streams {
		p.w.Eventually(s.events, patience).Should(Receive(HaveField("Data", ContainSubstring(of))), "%s, %s", p.name, s.page)
	}
}

// The stream of a page has the changes of what its viewer may list, and nothing at all when other objects change.
func TestRightsOnStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.options.Objects, w.options.Machines = standbyObjects(t, w), w.options.Client
	w.serve()
	a, b := w.settle(w.apps, "alpha"), w.settle(w.fleet, "zulu")
	kinds := slices.Sorted(maps.Keys(shownKinds))
	all, one, nobody := w.join("all", kinds, ""), w.join("one", kinds, w.apps), w.join("nobody", nil)
	w.complete(all, a)
	w.complete(all, b)

	var lists []string
	for _, kind := range pages {
		if kind.parts == 0 && kind.name != "management" { // Only who may list all ClusterConnections has that page.
			lists = append(lists, "/"+kind.name)
		}
	}
	lists = append(lists, "/search?q=zulu", "/search?q=alpha", "/search?q=2.0.0")
	changing := func(list string, mark string) bool { // The others only count, or are searches for something else.
		return !slices.Contains([]string{"/about", "/search"}, list) && !strings.HasPrefix(list, "/search?q=") || list == "/search?q="+mark
	}
	part := func(streams []watched, mark string) []watched {
		return slices.DeleteFunc(slices.Clone(streams), func(s watched) bool { return !changing(s.page, mark) })
	}
	now := w.clock.Now()
	w.clock.step(now.Truncate(time.Hour).Add(time.Hour).Sub(now)) // For a few minutes no picture changes with the time.
	// A page that was built before the step has to be fetched again.
	early := w.browser()
	w.enter(early, all.token)
	w.Eventually(func(g Gomega) {
		version := early.get(lists[0]).version()
		g.Consistently(func() string { return early.get(lists[0]).version() }, 3*pulseEvery).Should(Equal(version))
	}, patience).Should(Succeed())
	everything, own, nothing := all.watch(lists), one.watch(lists), nobody.watch(lists)

	b.change("2.0.0")
	all.told(part(everything, "zulu"), "zulu")
	one.quiet(own)
	nobody.quiet(nothing)

	a.change("2.0.0")
	one.told(part(own, "alpha"), "alpha")
	nobody.quiet(nothing)
}
