package promotions_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/notification"
)

// maxLine bounds the environments of a line.
const maxLine = 4

// history plays random steps in a world, and checks after each step what the hub has sent.
type history struct {
	*rapid.T
	w    *world
	hubs []*hubUnder
	// clusters by the names of environments, also of former ones.
	clusters map[string]string
	// runs has the revision of each cluster, ran all that it ever had.
	runs map[string]string
	ran  map[string]map[string]bool
	// releases is how many revisions there were. Each one is newer than all before it.
	releases int
	// edits numbers new environments, and new names.
	edits int
	// done is how many notifications the clusters have carried out, seen how many were checked.
	done, seen int
	// sent has, for each environment and revision, the identity under which it was sent.
	sent map[[2]string]string
	// last has the number of the newest release that was sent into an environment.
	last map[string]int
	log  []string
}

func newHistory(ctx context.Context, t *testing.T, rt *rapid.T) *history {
	w := newWorld(t, rt)
	h := &history{
		T: rt, w: w, clusters: map[string]string{}, runs: map[string]string{}, ran: map[string]map[string]bool{},
		sent: map[[2]string]string{}, last: map[string]int{},
	}
	line := []string{"dev", "staging", "prod"}
	for _, env := range line {
		h.runsNow(env, revisionOf(0))
	}
	h.hubs = append(h.hubs, w.began(ctx, w.newPipeline("web", notify(rapid.Bool().Draw(rt, "manual")), line...)), w.hub("second", w.c, nil))
	return h
}

func revisionOf(release int) string { return fmt.Sprintf("1.%d", release) }

func (h *history) release(revision string) int {
	h.Helper()
	var release int
	if _, err := fmt.Sscanf(revision, "1.%d", &release); err != nil {
		h.Fatalf("%v", err)
	}
	return release
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// failed ends the history with what happened in it.
func (h *history) failed(ctx context.Context, format string, args ...any) {
	h.Helper()
	h.Fatalf("%s\nline %v, clusters %v\n%v\n%s", fmt.Sprintf(format, args...), names(h.line(ctx)), h.runs, h.log, h.w.describe(ctx))
}

func names(line []pipelinesv1.Environment) []string {
	var all []string
	for _, e := range line {
		all = append(all, e.Name)
	}
	return all
}

// line returns the environments, and notes their clusters.
func (h *history) line(ctx context.Context) []pipelinesv1.Environment {
	line := h.w.pipeline(ctx, "web").Spec.Environments
	for _, e := range line {
		h.clusters[e.Name] = e.Targets[0].ClusterRef.Name
	}
	return line
}

func (h *history) runsNow(cluster, revision string) {
	if h.ran[cluster] == nil {
		h.ran[cluster] = map[string]bool{}
	}
	h.runs[cluster], h.ran[cluster][revision] = revision, true
}

// observe makes the hubs observe every cluster of the line.
func (h *history) observe(ctx context.Context) {
	for _, e := range h.line(ctx) {
		cluster := e.Targets[0].ClusterRef.Name
		if h.runs[cluster] == "" {
			h.runsNow(cluster, revisionOf(0))
		}
		h.w.runs(cluster, h.runs[cluster])
	}
}

// releaseNext makes the first environment run a revision that is new.
func (h *history) releaseNext(ctx context.Context) {
	h.releases++
	first := h.line(ctx)[0]
	h.runsNow(first.Targets[0].ClusterRef.Name, revisionOf(h.releases))
	h.note("%s releases %s", first.Name, revisionOf(h.releases))
	h.observe(ctx)
}

// act lets a cluster carry out the next notification; false if there is none. It takes effect
// also after the environment was renamed or removed, unless the cluster was given a newer
// revision since.
func (h *history) act(ctx context.Context) bool {
	received := h.w.receiver.received()
	if h.done == len(received) {
		return false
	}
	e := received[h.done]
	h.done++
	cluster, revision := h.clusters[e.Metadata[notification.KeyEnvironment]], e.Metadata[notification.KeyVersion]
	if h.release(revision) < h.release(h.runs[cluster]) {
		return true
	}
	h.runsNow(cluster, revision)
	h.note("%s runs %s", e.Metadata[notification.KeyEnvironment], e.Metadata[notification.KeyVersion])
	h.observe(ctx)
	return true
}

// edit writes another line. If it has another first environment, that one releases a revision:
// what it ran before came from the line, or from outside of it.
func (h *history) edit(ctx context.Context, change func([]pipelinesv1.Environment) []pipelinesv1.Environment) {
	p := h.w.pipeline(ctx, "web")
	before := p.Spec.Environments[0].Name
	p.Spec.Environments = change(p.Spec.Environments)
	if err := h.w.c.Update(ctx, p); err != nil {
		h.failed(ctx, "%v", err)
	}
	h.note("line %v", names(p.Spec.Environments))
	if p.Spec.Environments[0].Name != before {
		h.releaseNext(ctx)
	}
	h.observe(ctx)
}

func (h *history) insert(ctx context.Context, rt *rapid.T) {
	h.edit(ctx, func(line []pipelinesv1.Environment) []pipelinesv1.Environment {
		if len(line) == maxLine {
			return line
		}
		// An environment that was removed returns, or there is a new one.
		name := rapid.SampledFrom([]string{"dev", "staging", "prod", "canary"}).Draw(rt, "environment")
		if slices.Contains(names(line), name) || slices.ContainsFunc(line, func(e pipelinesv1.Environment) bool { return e.Targets[0].ClusterRef.Name == name }) {
			h.edits++
			name = fmt.Sprintf("new-%d", h.edits)
		}
		at := rapid.IntRange(0, len(line)).Draw(rt, "place")
		return slices.Insert(line, at, h.w.newPipeline("web", nil, name).Spec.Environments[0])
	})
}

func (h *history) remove(ctx context.Context, rt *rapid.T) {
	h.edit(ctx, func(line []pipelinesv1.Environment) []pipelinesv1.Environment {
		if len(line) == 2 {
			return line
		}
		at := rapid.IntRange(0, len(line)-1).Draw(rt, "place")
		return slices.Delete(line, at, at+1)
	})
}

func (h *history) reorder(ctx context.Context, rt *rapid.T) {
	h.edit(ctx, func(line []pipelinesv1.Environment) []pipelinesv1.Environment {
		at := rapid.IntRange(0, len(line)-2).Draw(rt, "place")
		line[at], line[at+1] = line[at+1], line[at]
		return line
	})
}

func (h *history) rename(ctx context.Context, rt *rapid.T) {
	h.edit(ctx, func(line []pipelinesv1.Environment) []pipelinesv1.Environment {
		h.edits++
		line[rapid.IntRange(0, len(line)-1).Draw(rt, "place")].Name = fmt.Sprintf("renamed-%d", h.edits)
		return line
	})
}

func (h *history) recreate(ctx context.Context, rt *rapid.T) {
	observed := rapid.Bool().Draw(rt, "the hub observes the deletion")
	h.w.recreated(ctx, func() {
		if observed {
			h.hubs[0].pass(ctx)
		}
	})
	h.note("recreated, observed %v", observed)
	h.observe(ctx)
}

func (h *history) kill(ctx context.Context, rt *rapid.T) {
	k := &killer{at: rapid.IntRange(1, 40).Draw(rt, "call"), after: rapid.Bool().Draw(rt, "took effect")}
	doomed := h.w.hub("doomed", k.client(h.w.c), k)
	process := k.process(ctx)
	doomed.pass(process)
	doomed.pass(process)
	k.end()
	h.note("a hub is killed at call %d, took effect %v", k.at, k.after)
}

func (h *history) approve(ctx context.Context) bool {
	approved := false
	for _, p := range h.w.promotions(ctx) {
		if p.Status.Phase == capstanv1.PhaseAwaitingApproval && p.Spec.Approval == nil {
			approve(ctx, NewWithT(h), h.w, p)
			approved = true
		}
	}
	return approved
}

// retry raises spec.retry of a promotion in flight, which has no effect.
func (h *history) retry(ctx context.Context, rt *rapid.T) {
	var inFlight []capstanv1.Promotion
	for _, p := range h.w.promotions(ctx) {
		if p.Status.Phase != "" && !p.Status.Phase.Finished() {
			inFlight = append(inFlight, p)
		}
	}
	if len(inFlight) > 0 {
		p := inFlight[rapid.IntRange(0, len(inFlight)-1).Draw(rt, "promotion")]
		retry(ctx, NewWithT(h), h.w, p)
		h.note("spec.retry of %s is raised", p.Name)
	}
}

// complete heals everything, and lets what was begun come to its end.
func (h *history) complete(ctx context.Context) {
	h.Helper()
	for range 60 {
		h.w.clock.Step(afterClaim)
		h.hubs[0].settle(ctx)
		h.observe(ctx)
		h.hubs[0].settle(ctx)
		h.check(ctx)
		acted := h.act(ctx)
		if approved := h.approve(ctx); !acted && !approved {
			return
		}
	}
	h.failed(ctx, "the promotions do not come to an end")
}

// check checks what was sent since the last check, and the records.
func (h *history) check(ctx context.Context) {
	h.Helper()
	promotions := h.w.promotions(ctx)
	known := map[string]*capstanv1.Promotion{}
	for i := range promotions {
		known[strategy.Identity(&promotions[i])] = &promotions[i]
	}
	received := h.w.receiver.received()
	for _, e := range received[h.seen:] {
		h.checkSent(ctx, e, known[e.Metadata[notification.KeyPromotionID]])
	}
	h.seen = len(received)
	for i := range promotions {
		p := &promotions[i]
		if p.Status.Phase.Finished() && (p.Status.Reason == "" || p.Status.Message == "") {
			h.failed(ctx, "%s ended in %s without a reason", p.Name, p.Status.Phase)
		}
		if p.Status.Retry > 0 {
			h.failed(ctx, "spec.retry of %s was raised in flight and started a run: the record of what was sent is lost", p.Name)
		}
		if p.Status.Reason == string(decision.AlreadyThere) && h.sent[[2]string{p.Spec.Environment, p.Spec.Revision}] == strategy.Identity(p) {
			h.failed(ctx, "%s was sent, and its record says that no attempt was made", p.Name)
		}
	}
}

// checkSent checks one notification. The receiver ignores one that it has under the same
// identity.
func (h *history) checkSent(ctx context.Context, e eventv1.Event, p *capstanv1.Promotion) {
	h.Helper()
	env, revision, id := e.Metadata[notification.KeyEnvironment], e.Metadata[notification.KeyVersion], e.Metadata[notification.KeyPromotionID]
	if p == nil {
		h.failed(ctx, "an act under %s, which is no promotion", id)
		return
	}
	key := [2]string{env, revision}
	switch before := h.sent[key]; before {
	case id:
		return
	case "":
	default:
		h.failed(ctx, "%s was sent to %s twice, as %s and as %s", revision, env, before, id)
	}
	h.sent[key] = id
	h.note("%s is sent to %s", revision, env)
	release := h.release(revision)
	if release < h.last[env] {
		h.failed(ctx, "%s was sent to %s after %s", revision, env, revisionOf(h.last[env]))
	}
	h.last[env] = release
	if p.Status.Attempt.Number > 1 {
		return // The first attempt was claimed for another line.
	}
	line := h.line(ctx)
	i := slices.Index(names(line), env)
	if i < 1 {
		h.failed(ctx, "an act for environment %s, which was removed before the claim", env)
	}
	if source := line[i-1]; !h.ran[source.Targets[0].ClusterRef.Name][revision] {
		h.failed(ctx, "%s was sent to %s before %s ran it", revision, env, source.Name)
	}
}

// checkEnd checks that every environment gets the last revision.
func (h *history) checkEnd(ctx context.Context) {
	h.Helper()
	for _, e := range h.line(ctx) {
		if runs := h.runs[e.Targets[0].ClusterRef.Name]; runs != revisionOf(h.releases) {
			h.failed(ctx, "%s runs %s at the end, and the last revision is %s", e.Name, runs, revisionOf(h.releases))
		}
	}
	for _, p := range h.w.promotions(ctx) {
		if !p.Status.Phase.Finished() {
			h.failed(ctx, "%s is still %s: %s", p.Name, p.Status.Phase, p.Status.Message)
		}
	}
}

// Random histories of releases, approvals, kills of the hub and edits of the line (an environment
// is inserted, removed, renamed or moved; the Pipeline is recreated; spec.retry of a promotion in
// flight is raised) keep what the decision
// tables promise: a revision is sent to an environment once, no environment is overtaken, no
// revision is lost, and every end has a reason.
func TestRandomHistoriesOfTheLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		h := newHistory(ctx, t, rt)
		rt.Repeat(map[string]func(*rapid.T){
			"a revision is released": func(*rapid.T) { h.releaseNext(ctx) },
			"a hub looks": func(rt *rapid.T) {
				h.observe(ctx)
				rapid.SampledFrom(h.hubs).Draw(rt, "hub").pass(ctx)
			},
			"a hub works":                func(*rapid.T) { h.hubs[1].settle(ctx) },
			"the team acts":              func(*rapid.T) { h.act(ctx) },
			"the team approves":          func(*rapid.T) { h.approve(ctx) },
			"time goes by":               func(*rapid.T) { h.w.clock.Step(afterClaim) },
			"a hub is killed":            func(rt *rapid.T) { h.kill(ctx, rt) },
			"an environment is inserted": func(rt *rapid.T) { h.insert(ctx, rt) },
			"an environment is removed":  func(rt *rapid.T) { h.remove(ctx, rt) },
			"two change places":          func(rt *rapid.T) { h.reorder(ctx, rt) },
			"an environment is renamed":  func(rt *rapid.T) { h.rename(ctx, rt) },
			"the Pipeline is recreated":  func(rt *rapid.T) { h.recreate(ctx, rt) },
			"spec.retry is raised":       func(rt *rapid.T) { h.retry(ctx, rt) },
			"":                           func(*rapid.T) { h.check(ctx) },
		})
		h.complete(ctx)
		h.releaseNext(ctx)
		h.complete(ctx)
		h.checkEnd(ctx)
	})
}
