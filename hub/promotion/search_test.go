//go:build !race

package promotion

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/strategy"
)

// state of everything: the API server, the receiver, the clusters and two hubs.
type state struct {
	pipeline objectID
	list     listID
	acts     actsID
	// applied is how many of the acts the clusters have carried out, in their order.
	applied uint8
	// runs has the revision of each cluster, ran all that it ever had, as bits.
	runs, ran [clusterCount]uint8
	// releases, edits and crashes that may still happen.
	releases, edits, crashes uint8
	clock                    uint8
	// deleted is set between the deletion of the Pipeline and its creation.
	deleted bool
	// raised is set if spec.retry was raised while the promotion was in flight.
	raised bool
	hubs   [hubCount]process
}

// actsID is a list of acts; 0 is the empty list.
type actsID uint32

// process is one hub: its caches, and its reconcile in progress.
type process struct {
	pipeline objectID
	list     listID
	seen     [clusterCount]uint8
	observed objectUID
	run      runID
}

// objectUID says which Pipeline it is: the first, or the one that was created after it; 0 is none.
type objectUID uint8

// scenario is a Pipeline, and the one edit that a user makes at any moment.
type scenario struct {
	name   string
	line   []string
	manual bool
	// outside is set if the edit makes a revision of dev one that did not come from the line.
	outside bool
	edit    func(*pipelinesv1.Pipeline)
	// recreate deletes the Pipeline and creates it again.
	recreate bool
	// retry raises spec.retry of a promotion instead.
	retry bool
	// frozen is set if a freeze is in force at the beginning.
	frozen bool
}

// freeze makes a window deny all promotions.
func freeze(p *pipelinesv1.Pipeline) {
	p.Spec.Gates = &pipelinesv1.Gates{Windows: []pipelinesv1.Window{{Name: "freeze", WindowSpec: pipelinesv1.WindowSpec{Type: pipelinesv1.DenyWindow}}}}
}

func thaw(p *pipelinesv1.Pipeline) { p.Spec.Gates = nil }

func line(envs ...string) func(*pipelinesv1.Pipeline) {
	return func(p *pipelinesv1.Pipeline) {
		known := map[string]pipelinesv1.Environment{}
		for _, e := range p.Spec.Environments {
			known[e.Name] = e
		}
		p.Spec.Environments = nil
		for _, name := range envs {
			e, ok := known[name]
			if !ok {
				e = environment(name)
			}
			p.Spec.Environments = append(p.Spec.Environments, e)
		}
	}
}

func rename(from, to string) func(*pipelinesv1.Pipeline) {
	return func(p *pipelinesv1.Pipeline) {
		for i := range p.Spec.Environments {
			if p.Spec.Environments[i].Name == from {
				p.Spec.Environments[i].Name = to
			}
		}
	}
}

func environment(cluster string) pipelinesv1.Environment {
	return pipelinesv1.Environment{Name: cluster, Targets: []pipelinesv1.Target{{
		Namespace: key.Namespace, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: cluster},
	}}}
}

// renamed is the name of staging after it was renamed.
const renamed = "stage"

var scenarios = []scenario{
	{name: "no edit", line: []string{"dev", "staging", "prod"}},
	{name: "an environment is inserted", line: []string{"dev", "prod"}, edit: line("dev", "staging", "prod")},
	{name: "inserted before an approval", line: []string{"dev", "prod"}, manual: true, edit: line("dev", "staging", "prod")},
	{name: "an environment is removed", line: []string{"dev", "staging", "prod"}, edit: line("dev", "prod")},
	{name: "two change places", line: []string{"dev", "staging", "prod"}, outside: true, edit: line("staging", "dev", "prod")},
	{name: "the source is renamed", line: []string{"dev", "staging", "prod"}, edit: rename("staging", renamed)},
	{name: "the Pipeline is recreated", line: []string{"dev", "prod"}, recreate: true},
	{name: "spec.retry is raised", line: []string{"dev", "prod"}, retry: true},
	{name: "a freeze is lifted", line: []string{"dev", "prod"}, frozen: true, edit: thaw},
	{name: "a freeze begins", line: []string{"dev", "staging", "prod"}, edit: freeze},
	{name: "a freeze begins before an approval", line: []string{"dev", "prod"}, manual: true, edit: freeze},
}

// search explores the states of one scenario.
type search struct {
	*machine
	scenario scenario
	t        testing.TB
	actLists [][]act
	byActs   map[string]actsID
	visited  map[state]struct{}
	ended    map[state]struct{}
	// note receives every state of an undisturbed run (completed), if it is set.
	note func(state)
}

// newSearch returns the search of a scenario with the states from which it begins: those of
// the undisturbed promotion of one revision through all environments by one hub.
func newSearch(t testing.TB, s scenario) (*search, []state) {
	x := &search{machine: newMachine(), scenario: s, t: t, actLists: [][]act{nil}, byActs: map[string]actsID{"": 0}, visited: map[state]struct{}{}, ended: map[state]struct{}{}}
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
		AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: key.Name},
		Promotion: &pipelinesv1.Promotion{Manual: s.manual, Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
	}}
	p.Namespace, p.Name, p.UID, p.Generation = key.Namespace, key.Name, "pipeline-1", 1
	p.Status.Schema, p.Status.SchemaFleets = pipelinesv1.StatusSchema, pipelinesv1.StatusSchemaFleets
	line(s.line...)(p)
	if s.frozen {
		freeze(p)
	}
	initial := state{pipeline: x.intern(p), releases: 2, edits: 1, crashes: 1, ran: [clusterCount]uint8{1, 1, 1}}
	initial = x.completed(initial) // Both hubs have observed 1.0 everywhere.
	all := []state{initial}
	x.note = func(s state) { all = append(all, s) }
	x.completed(x.released(initial))
	x.note = nil
	return x, all
}

// completed lets one hub do all that there is to do, without interruption: caches and
// observations are current, time passes, and the clusters carry out what was sent.
func (x *search) completed(s state) state {
	if s.deleted {
		s = x.createdAgain(s)
	}
	for i := range s.hubs {
		s.hubs[i].run = 0
	}
	for range 60 {
		before := s
		h := &s.hubs[0]
		h.pipeline, h.list, h.seen = s.pipeline, s.list, s.runs
		s = x.toTheEnd(s, x.begin(x.startOf(s, 0, "")))
		for _, id := range x.lists[s.list] {
			s.hubs[0].pipeline, s.hubs[0].list = s.pipeline, s.list
			s = x.toTheEnd(s, x.begin(x.startOf(s, 0, x.objects[id].GetName())))
		}
		s = x.approved(x.carriedOut(s))
		same := before
		same.hubs = s.hubs
		if s == same {
			if x.unresolved(s) && s.clock < 200 {
				s.clock++
				continue
			}
			s.hubs[1] = s.hubs[0]
			s.clock = before.clock
			return s
		}
	}
	x.fail(s, "the promotions do not come to an end")
	return s
}

// toTheEnd runs a reconcile of the first hub to its end.
func (x *search) toTheEnd(s state, run runID) state {
	s.hubs[0].run = run
	for s.hubs[0].run != 0 && x.runs[s.hubs[0].run].next.kind != finished {
		s = x.step(s, 0)
		if x.note != nil {
			x.note(s)
		}
	}
	return x.rested(s, 0)
}

// startOf returns the start of a reconcile of a hub.
func (x *search) startOf(s state, hub uint8, promotion string) start {
	h := s.hubs[hub]
	b := start{hub: hub, pipeline: h.pipeline, list: h.list, clock: s.clock, promotion: promotion}
	if promotion == "" {
		b.seen = h.seen
		b.hub = 0 // The same for each hub.
	} else {
		b.observed = h.observed != 0 && h.observed == x.uid(h.pipeline)
	}
	return b
}

func (x *search) uid(id objectID) objectUID {
	switch p := x.machine.pipeline(id); {
	case p == nil:
		return 0
	case p.UID == "pipeline-1":
		return 1
	default:
		return 2
	}
}

// rested ends the reconcile of a hub if it has no further call.
func (x *search) rested(s state, hub int) state {
	h := &s.hubs[hub]
	if h.run == 0 || x.runs[h.run].next.kind != finished {
		return s
	}
	if r := &x.runs[h.run]; r.start.promotion == "" && r.err == nil {
		h.observed = x.uid(r.start.pipeline)
	}
	h.run = 0
	return s
}

// step makes the next call of a hub.
func (x *search) step(s state, hub int) state {
	h := &s.hubs[hub]
	r := &x.runs[h.run]
	var a answer
	switch c := r.next; c.kind {
	case getPipeline:
		a.object = s.pipeline
	case getPromotion:
		a.object = x.find(s.list, c.name)
	case listPromotions:
		a.list = s.list
	case create:
		if x.find(s.list, x.objects[c.object].GetName()) != 0 {
			a.kind = exists
			break
		}
		s.list = x.with(s.list, c.object)
	case writeStatus:
		now := s.pipeline
		_, ofPipeline := x.objects[c.object].(*pipelinesv1.Pipeline)
		if !ofPipeline {
			now = x.find(s.list, c.name)
		}
		switch {
		case now == 0:
			a.kind = notFound
		case now != c.base:
			a.kind = conflict
		case ofPipeline:
			s.pipeline = c.object
		default:
			s.list = x.with(s.list, c.object)
		}
	case sendAct:
		s = x.sent(s, r, c)
	case finished:
		return s
	}
	s.hubs[hub].run = x.proceed(s.hubs[hub].run, a)
	return x.rested(s, hub)
}

// sent adds an act to those of the receiver, and checks it. The receiver ignores an act that
// it has under the same identity.
func (x *search) sent(s state, r *run, c call) state {
	acts := x.actLists[s.acts]
	for _, before := range acts {
		if before.identity == c.act.identity {
			return s
		}
		if before.environment == c.act.environment && before.revision == c.act.revision && !x.scenario.retry {
			x.fail(s, "%s was sent to %s twice, as %s and as %s", c.act.revision, c.act.environment, before.identity, c.act.identity)
		}
	}
	for _, before := range acts {
		if !x.scenario.outside && before.environment == c.act.environment && slices.Index(revisions, before.revision) > slices.Index(revisions, c.act.revision) {
			x.fail(s, "%s was sent to %s after %s", c.act.revision, c.act.environment, before.revision)
		}
	}
	if p := x.machine.pipeline(r.read); p != nil && p.Spec.Gates != nil {
		x.fail(s, "%s was sent to %s in a freeze", c.act.revision, c.act.environment)
	}
	if c.act.number == 1 {
		x.checkOvertaking(s, x.machine.pipeline(r.claimed), c.act)
	}
	text := fmt.Sprint(s.acts, c.act)
	id, ok := x.byActs[text]
	if !ok {
		id = actsID(len(x.actLists))
		x.actLists = append(x.actLists, append(slices.Clone(acts), c.act))
		x.byActs[text] = id
	}
	s.acts = id
	return s
}

// checkOvertaking checks that every environment before the one of an act ran the revision,
// according to the Pipeline that the hub had read before it claimed the attempt.
func (x *search) checkOvertaking(s state, p *pipelinesv1.Pipeline, a act) {
	if p == nil {
		x.fail(s, "an act for a Pipeline that was deleted before the claim")
		return
	}
	for _, e := range p.Spec.Environments {
		if e.Name == a.environment {
			return
		}
		if s.ran[cluster(e)]&(1<<slices.Index(revisions, a.revision)) == 0 {
			x.fail(s, "%s was sent to %s before %s ran it", a.revision, a.environment, e.Name)
		}
	}
	x.fail(s, "an act for environment %s, which was removed before the claim", a.environment)
}

func cluster(e pipelinesv1.Environment) int {
	return slices.Index(clusterNames[:], e.Targets[0].ClusterRef.Name)
}

// released makes the first environment run the next revision.
func (x *search) released(s state) state {
	s.releases--
	c := cluster(x.machine.pipeline(s.pipeline).Spec.Environments[0])
	s.runs[c] = uint8(len(revisions)) - 1 - s.releases
	s.ran[c] |= 1 << s.runs[c]
	return s
}

// carriedOut lets the clusters carry out the next act.
func (x *search) carriedOut(s state) state {
	acts := x.actLists[s.acts]
	if int(s.applied) == len(acts) {
		return s
	}
	a := acts[s.applied]
	s.applied++
	i := slices.Index(clusterNames[:], a.environment)
	if a.environment == renamed {
		i = 1
	}
	s.runs[i] = uint8(slices.Index(revisions, a.revision))
	s.ran[i] |= 1 << s.runs[i]
	return s
}

// approved approves the promotions that wait for it.
func (x *search) approved(s state) state {
	for _, id := range x.lists[s.list] {
		if p := x.promotion(id); p.Status.Phase == capstanv1.PhaseAwaitingApproval && p.Spec.Approval == nil {
			p = p.DeepCopy()
			p.Spec.Approval = &capstanv1.Approval{By: "alice"}
			p.Generation++
			s.list = x.with(s.list, x.intern(p))
		}
	}
	return s
}

// unresolved returns whether a claim is not over: its promotion, or another one, waits for it.
func (x *search) unresolved(s state) bool {
	now := epoch.Add(time.Duration(s.clock) * pastClaim)
	return slices.ContainsFunc(x.lists[s.list], func(id objectID) bool {
		p := x.promotion(id)
		return p.Status.Attempt != nil && p.Status.Attempt.NextAttemptTime.After(now)
	})
}

func (x *search) edited(s state) (state, bool) {
	switch sc := x.scenario; {
	case s.edits == 0:
		return s, false
	case sc.recreate:
		s.pipeline, s.deleted = 0, true
	case sc.retry:
		ids := x.lists[s.list]
		if len(ids) == 0 {
			return s, false
		}
		p := x.promotion(ids[len(ids)-1]).DeepCopy()
		s.raised = p.Status.Phase != "" && !p.Status.Phase.Finished()
		p.Spec.Retry++
		p.Generation++
		s.list = x.with(s.list, x.intern(p))
	case sc.edit != nil:
		p := x.machine.pipeline(s.pipeline).DeepCopy()
		sc.edit(p)
		p.Generation++
		s.pipeline = x.intern(p)
	default:
		return s, false
	}
	s.edits--
	return s, true
}

func (x *search) createdAgain(s state) state {
	p := &pipelinesv1.Pipeline{}
	first := x.machine.pipeline(1)
	first.DeepCopyInto(p)
	p.Status = pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets}
	p.UID = types.UID("pipeline-2")
	s.pipeline, s.deleted = x.intern(p), false
	return s
}

// successors calls do with each state that can follow.
func (x *search) successors(s state, do func(state)) {
	for i := range s.hubs {
		h := s.hubs[i]
		if h.run != 0 {
			do(x.step(s, i))
			if s.crashes > 0 { // The new process has lists and observations that are current.
				n := s
				n.crashes--
				n.hubs[i] = process{pipeline: s.pipeline, list: s.list, seen: s.runs}
				do(n)
			}
			continue
		}
		x.starts(s, i, do)
		x.deliveries(s, i, do)
	}
	if s.releases > 0 && !s.deleted {
		do(x.released(s))
	}
	if int(s.applied) < len(x.actLists[s.acts]) {
		do(x.carriedOut(s))
	}
	if n := x.approved(s); n != s {
		do(n)
	}
	if s.deleted {
		do(x.createdAgain(s))
	} else if n, ok := x.edited(s); ok {
		do(n)
	}
	if x.unresolved(s) {
		n := s
		n.clock++
		do(n)
	}
}

// starts calls do with the reconciles that a hub may begin.
func (x *search) starts(s state, hub int, do func(state)) {
	begin := func(promotion string) {
		n := s
		n.hubs[hub].run = x.begin(x.startOf(s, uint8(hub), promotion))
		do(x.rested(n, hub))
	}
	begin("")
	for _, id := range x.lists[s.hubs[hub].list] {
		begin(x.objects[id].GetName())
	}
}

// deliveries calls do with the events that a hub may receive: those of a kind of object, or the
// observation of a cluster.
//
// A hub never has a newer Pipeline than its observations: the leader lists the workload
// clusters after it has got the lease, so it has observed what the status written before shows.
func (x *search) deliveries(s state, hub int, do func(state)) {
	h := s.hubs[hub]
	if h.pipeline != s.pipeline {
		n := s
		n.hubs[hub].pipeline, n.hubs[hub].seen = s.pipeline, s.runs
		do(n)
	}
	if h.list != s.list {
		n := s
		n.hubs[hub].list = s.list
		do(n)
	}
	for c := range h.seen {
		if h.seen[c] != s.runs[c] {
			n := s
			n.hubs[hub].seen[c] = s.runs[c]
			do(n)
		}
	}
}

// check checks the objects of a state.
func (x *search) check(s state) {
	for _, id := range x.lists[s.list] {
		p := x.promotion(id)
		if p.Status.Phase.Finished() && (p.Status.Reason == "" || p.Status.Message == "") {
			x.fail(s, "%s ended in %s without a reason", p.Name, p.Status.Phase)
		}
		if s.raised && p.Status.Retry > 0 {
			x.fail(s, "spec.retry of %s was raised in flight and started a run: the record of what was sent is lost", p.Name)
		}
		if p.Status.Reason == "AlreadyThere" && slices.ContainsFunc(x.actLists[s.acts], func(a act) bool {
			return a.environment == p.Spec.Environment && a.identity == strategy.Identity(p)
		}) {
			x.fail(s, "%s was sent, and its record says that no attempt was made", p.Name)
		}
	}
}

// checkEnd checks that from a state every environment gets the last revision, if the hubs
// work without interruption from now on.
func (x *search) checkEnd(s state) {
	s.hubs = [hubCount]process{}
	if _, known := x.ended[s]; known {
		return
	}
	x.ended[s] = struct{}{}
	if p := x.machine.pipeline(s.pipeline); p != nil && p.Spec.Gates != nil { // Nothing is promoted before the freeze ends.
		p = p.DeepCopy()
		thaw(p)
		p.Generation++
		s.pipeline = x.intern(p)
	}
	end := x.completed(s)
	p := x.machine.pipeline(end.pipeline)
	last := end.runs[cluster(p.Spec.Environments[0])]
	for _, e := range p.Spec.Environments {
		outside := x.scenario.outside && x.endedIn(end, e.Name, decision.EnvironmentMovedOn)
		if end.runs[cluster(e)] != last && !outside {
			x.fail(end, "%s runs %s at the end, and the first environment %s", e.Name, revisions[end.runs[cluster(e)]], revisions[last])
		}
	}
	x.check(end)
}

// endedIn returns whether the newest promotion into an environment ended for a reason.
func (x *search) endedIn(s state, environment string, reason decision.PhaseReason) bool {
	var newest *capstanv1.Promotion
	for _, id := range x.lists[s.list] {
		if p := x.promotion(id); p.Spec.Environment == environment && (newest == nil || p.Spec.Number > newest.Spec.Number) {
			newest = p
		}
	}
	return newest != nil && newest.Status.Reason == string(reason)
}

func (x *search) fail(s state, format string, args ...any) {
	x.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, format, args...)
	fmt.Fprintf(&b, "\nclusters run %v\n", s.runs)
	for _, a := range x.actLists[s.acts] {
		fmt.Fprintf(&b, "act %+v\n", a)
	}
	for _, id := range x.lists[s.list] {
		p := x.promotion(id)
		fmt.Fprintf(&b, "%s (%s): %s from %s (%d), %s %s: %s\n", p.Name, p.Spec.Pipeline.UID, p.Spec.Revision, p.Spec.Source.Environment, p.Spec.Source.Sequence, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	x.t.Fatalf("%s: %s", x.scenario.name, b.String())
}

// explore visits states in the order of their depth, until most are visited. It returns how many
// it visited, and to which depth all of them.
func (x *search) explore(level []state, most int) (states, depth int) {
	for _, s := range level {
		x.visited[s] = struct{}{}
	}
	for len(level) > 0 {
		var next []state
		for _, s := range level {
			x.successors(s, func(n state) {
				if _, known := x.visited[n]; known {
					return
				}
				x.visited[n] = struct{}{}
				x.check(n)
				x.checkEnd(n)
				next = append(next, n)
			})
			if len(x.visited) >= most {
				return len(x.visited), depth
			}
		}
		depth++
		level = next
	}
	return len(x.visited), depth
}

// Every interleaving of two hubs, two releases, an edit of the Pipeline and a crash, within
// a number of steps of an undisturbed promotion, keeps what the decision tables promise: a
// revision is sent to an environment once, no environment is overtaken, no revision is
// lost, nothing is sent in a freeze, and every end has a reason.
func TestEveryInterleaving(t *testing.T) {
	most := 150_000
	if os.Getenv("CAPSTAN_SOAK") != "" {
		most = 5_000_000
	}
	total := 0
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			began := time.Now()
			x, first := newSearch(t, sc)
			states, depth := x.explore(first, most)
			total += states
			t.Logf("from %d states: %d states, all within %d steps; %d ends, %d reconciles, %s",
				len(first), states, depth, len(x.ended), x.reconciles, time.Since(began).Round(time.Millisecond))
		})
	}
	t.Logf("%d states", total)
}
