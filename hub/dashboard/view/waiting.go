package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/causes"
)

const (
	// tabUnwell is the tab of the clusters that need an action.
	tabUnwell = "attention"
	// causeNames is how many objects of a cause are named.
	causeNames = 3
	// singleApprovals is how many approvals are shown one by one, with the link to give them.
	singleApprovals = 3
	// maxCause is the longest text of a cause, in characters; the page of an object has the whole text.
	maxCause = 240
)

// waitKind is a kind of object that needs an action.
type waitKind struct {
	name string
	tone Tone
	// noun in the singular, and the rest of the text after it.
	noun, rest string
	link       string
}

// Kinds of what waits, in the order of the verdict.
const (
	waitCluster, waitApproval, waitFailed, waitRejected, waitGate, waitStalled, waitPipeline, waitBackend = "cluster", "approval", "failed", "rejected", "gate", "stalled", "pipeline", "backend"
)

// stalledLink is the list of all stalled promotions.
var stalledLink = Query{State: stalledWord}.At(PromotionsPath)

var waitKinds = []waitKind{
	{waitApproval, Asking, "approval", "", Query{Tab: tabWaiting, State: "Awaiting approval"}.At(PromotionsPath)},
	{waitFailed, Bad, "failed promotion", "", Query{State: "Failed"}.At(PipelinesPath)},
	{waitRejected, Warning, "rejected promotion", "", Query{State: "Rejected"}.At(PipelinesPath)},
	{waitStalled, Warning, "stalled promotion", "", stalledLink},
	{waitGate, Warning, "gate", " in error", Query{Tab: tabWaiting, State: "Awaiting gates"}.At(PromotionsPath)},
	{waitPipeline, Bad, "Pipeline", " invalid or stalled", Query{State: "Stalled"}.At(PipelinesPath)},
	{waitBackend, Bad, "backend", " not ready", BackendsPath},
}

// wait is an object that needs an action.
type wait struct {
	kind string
	mark Mark
	// reason is equal for objects with the same cause; text says more, of this one.
	reason, text string
	// name of the object, its page, and where it is approved.
	name, link, approve string
	// revision that waits for an approval.
	revision string
	since    time.Time
}

// waitList has all objects that need an action.
type waitList struct {
	all    []wait
	counts map[string]int
}

// Cause is a number of objects that need the same action.
type Cause struct {
	Mark Mark
	// Title is the object, or their number, and Text the cause.
	Title, Text string
	// Names of the first objects, if there are several, and how many there are besides.
	Names []string
	More  int
	// Oldest is when the first of them began to wait; zero if it is not known.
	Oldest  time.Time
	Link    string
	Approve string
	// What is approved.
	Revision string
}

// waits collects what needs an action of a person.
func (f *fleet) waits(rows []ClusterRow) *waitList {
	w := &waitList{counts: map[string]int{}}
	for i := range rows {
		r := &rows[i]
		if !r.Health.well() {
			worst := r.Health.Worst()
			one := wait{kind: waitCluster, mark: worst.Mark, name: r.Cluster.String(), link: r.Link, text: worst.Note}
			if worst.Name == aspectNames[aspectConnection] { // Its message may name the cluster; the reason is the same for all with the same cause.
				one.reason, one.since = r.Reason, r.Since
			}
			w.add(one)
		}
	}
	promotions := map[string]*capstanv1.Promotion{}
	for i := range f.Promotions {
		if p := &f.Promotions[i]; f.scope.Promotions.Has(p.Namespace) && f.scope.Pipelines.Has(p.Namespace) {
			promotions[p.Namespace+"/"+p.Name] = p
		}
	}
	for i := range f.Pipelines {
		if p := &f.Pipelines[i]; f.scope.Pipelines.Has(p.Namespace) {
			w.pipeline(p, promotions, f.scope)
		}
	}
	for i := range f.Backends {
		if b := &f.Backends[i]; f.scope.Backends.Has(b.Namespace) {
			if mark := backendMark(b); mark.Tone <= Warning {
				w.add(wait{kind: waitBackend, mark: mark, text: whyBackend(b), name: b.Namespace + "/" + b.Name,
					link: Query{Search: b.Namespace + "/" + b.Name}.At(BackendsPath), since: sinceBackend(b)})
			}
		}
	}
	return w
}

func (w *waitList) add(one wait) {
	w.counts[one.kind]++
	w.all = append(w.all, one)
}

// pipeline adds what a Pipeline waits for.
func (w *waitList) pipeline(p *pipelinesv1.Pipeline, promotions map[string]*capstanv1.Promotion, scope Scope) {
	name, link := p.Namespace+"/"+p.Name, pipelinePath(p.Namespace, p.Name)
	if c := meta.FindStatusCondition(p.Status.Conditions, pipelinesv1.StalledCondition); c != nil && c.Status == "True" {
		w.add(wait{kind: waitPipeline, mark: Mark{Bad, "Stalled"}, reason: c.Reason, text: c.Message, name: name, link: link, since: c.LastTransitionTime.Time})
	}
	for _, env := range stageNames(p) {
		status := p.Status.Environments[env]
		if status == nil || status.Promotion == nil {
			continue
		}
		s := status.Promotion
		one := wait{name: name + " into " + env, link: link + "#" + entryID(p.Namespace, s.Name)}
		full := promotions[p.Namespace+"/"+s.Name]
		if full != nil {
			one.since = full.CreationTimestamp.Time
		}
		switch phase := capstanv1.PromotionPhase(s.Phase); phase {
		case capstanv1.PhaseAwaitingApproval:
			one.kind, one.mark, one.revision = waitApproval, phaseMark(phase, false), s.Revision
			if status.WaitingApproval.Revision == s.Revision && scope.Approve.Has(p.Namespace) {
				one.approve = ApprovePath(p.Namespace, s.Name)
			}
			w.add(one)
		case capstanv1.PhaseFailed, capstanv1.PhaseRejected:
			one.kind, one.mark, one.reason, one.text = waitFailed, phaseMark(phase, false), s.Reason, s.Message
			if phase == capstanv1.PhaseRejected {
				one.kind = waitRejected
			}
			if full != nil && full.Status.FinishTime != nil {
				one.since = full.Status.FinishTime.Time
			}
			w.add(one)
		case capstanv1.PhaseAwaitingGates:
			if full != nil {
				w.gates(one, full)
			}
		case "", capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
			if full != nil && stalled(full) {
				one.kind, one.mark, one.reason, one.text = waitStalled, phaseMark(phase, true), s.Reason, s.Message
				w.add(one)
			}
		case capstanv1.PhaseSucceeded, capstanv1.PhaseSuperseded:
		}
	}
}

// gates adds the gates of a promotion that cannot open by themselves: invalid ones, and checks that do not pass.
func (w *waitList) gates(one wait, p *capstanv1.Promotion) {
	for i := range p.Status.Gates {
		g := &p.Status.Gates[i]
		if g.State != capstanv1.GateInvalid && (g.State != capstanv1.GateClosed || g.Name != capstanv1.GateChecks || !checksFail(p)) {
			continue
		}
		one.kind, one.mark, one.reason, one.text = waitGate, Mark{Warning, "Gate closed"}, "gate "+g.Name+": "+g.Reason, g.Message
		if g.State == capstanv1.GateInvalid {
			one.mark = Mark{Bad, "Gate invalid"}
		}
		one.since = timeOf(g.LastTransitionTime)
		w.add(one)
	}
}

// checksFail reports whether a check of a promotion was measured and does not pass.
func checksFail(p *capstanv1.Promotion) bool {
	return slices.ContainsFunc(p.Status.Checks, func(c capstanv1.CheckStatus) bool { return c.Verdict != "" && c.Verdict != capstanv1.CheckPass })
}

// stageNames returns the names under which the status has the environments of a Pipeline, and their waves.
func stageNames(p *pipelinesv1.Pipeline) []string {
	names := make([]string, 0, len(p.Spec.Environments))
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		names = append(names, env.Name)
		if status := p.Status.Environments[env.Name]; status == nil || len(env.Waves) == 0 {
			continue
		}
		prefix := pipelinesv1.StageName(env.Name, "")
		var stages []string
		for name := range p.Status.Environments {
			if strings.HasPrefix(name, prefix) {
				stages = append(stages, name)
			}
		}
		slices.Sort(stages)
		names = append(names, stages...)
	}
	return names
}

// blocks returns the blocks of the causes, oldest first.
func (w *waitList) blocks(scope Scope) []Block {
	items := make([]causes.Item, len(w.all))
	by := map[string][]*wait{}
	for i := range w.all {
		one := &w.all[i]
		key := one.kind + "/" + one.mark.Word + "/" + one.reason
		if one.kind == waitApproval {
			key = one.kind
			if w.counts[waitApproval] <= singleApprovals {
				key += "/" + one.name
			}
		}
		items[i] = causes.Item{Key: key, Severity: int(one.mark.Tone), Name: one.name, Since: one.since}
		by[key] = append(by[key], one)
	}
	groups := causes.Of(items, causeNames)
	slices.SortStableFunc(groups, func(a, b causes.Group) int { // Oldest first; those whose age is not known are the last.
		if a.Oldest.IsZero() != b.Oldest.IsZero() {
			return cmp.Compare(boolean(a.Oldest.IsZero()), boolean(b.Oldest.IsZero()))
		}
		return a.Oldest.Compare(b.Oldest)
	})
	var blocks []Block
	for _, g := range groups[:min(len(groups), maxWaiting)] {
		blocks = append(blocks, Block{ID: "cause/" + g.Key, List: "waiting", Template: "cause", Data: causeBlock(g, by[g.Key])})
	}
	if more := len(groups) - maxWaiting; more > 0 {
		blocks = append(blocks, Block{ID: "causes-more", List: "waiting", Template: "causes-more", Data: more})
	}
	if len(groups) == 0 {
		text := "Nothing waits for you."
		if !scope.Clusters.All || !scope.Pipelines.All || !scope.Promotions.All || !scope.Backends.All {
			text = "Nothing that you may see waits for you."
		}
		blocks = append(blocks, Block{ID: "waiting-empty", List: "waiting", Template: "empty-item", Data: Empty{Text: text}})
	}
	return blocks
}

// causeBlock returns the Cause of a group.
func causeBlock(g causes.Group, of []*wait) Cause {
	first := of[0]
	for _, one := range of {
		if one.mark.Tone < first.mark.Tone {
			first = one
		}
	}
	c := Cause{Mark: first.mark, Text: first.reason, Oldest: g.Oldest}
	if same := !slices.ContainsFunc(of, func(one *wait) bool { return one.text != first.text }); same && first.text != "" && !strings.Contains(first.text, first.reason) {
		c.Text = strings.TrimPrefix(first.reason+": "+first.text, ": ")
	} else if same && first.text != "" {
		c.Text = first.text
	}
	if runes := []rune(c.Text); len(runes) > maxCause {
		c.Text = string(runes[:maxCause]) + "…"
	}
	if g.Count == 1 {
		c.Title, c.Link, c.Approve, c.Revision = first.name, first.link, first.approve, first.revision
		return c
	}
	c.Names, c.More = g.Names, g.Count-len(g.Names)
	switch first.kind {
	case waitCluster:
		c.Title, c.Link = Plural(g.Count, "cluster"), Query{State: first.mark.Word, Reason: first.reason}.At(ClustersPath)
	case waitApproval:
		c.Text = "They wait for an approval."
		c.Title, c.Link = Plural(g.Count, "promotion"), waitKinds[0].link
	case waitFailed, waitRejected:
		c.Title, c.Link = Plural(g.Count, "promotion"), Query{Tab: tabFailed}.At(PromotionsPath)
	case waitStalled:
		c.Title, c.Link = Plural(g.Count, "promotion"), stalledLink
	case waitGate:
		c.Title, c.Link = Plural(g.Count, "promotion"), Query{Tab: tabWaiting}.At(PromotionsPath)
	case waitPipeline:
		c.Title, c.Link = Plural(g.Count, "Pipeline"), Query{State: "Stalled"}.At(PipelinesPath)
	case waitBackend:
		c.Title, c.Link = Plural(g.Count, "backend"), Query{State: first.mark.Word}.At(BackendsPath)
	}
	return c
}
