package delivery

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// second is the index of the environment into which a revision is promoted first.
const second = 1

// Pipeline is what the figures need of a Pipeline.
type Pipeline struct {
	Namespace, Name string
	UID             types.UID
	// Environments in their order, without waves.
	Environments []string
}

// PipelineOf returns the Pipeline of an object. It may have stages in place of environments with waves.
func PipelineOf(p *pipelinesv1.Pipeline) Pipeline {
	of := Pipeline{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Environments: make([]string, 0, len(p.Spec.Environments))}
	for i := range p.Spec.Environments {
		name := p.Spec.Environments[i].Base()
		if n := len(of.Environments); n == 0 || of.Environments[n-1] != name {
			of.Environments = append(of.Environments, name)
		}
	}
	return of
}

// Last is the name of the last environment, usually production; empty if there is none that promotions go into.
func (p Pipeline) Last() string {
	if len(p.Environments) <= second {
		return ""
	}
	return p.Environments[len(p.Environments)-1]
}

// Change is a revision that was to be brought into an environment, and ended deployed or failed. It may be both: it
// was deployed and then rolled back.
type Change struct {
	Environment string
	// Last is whether the environment is the last one of the Pipeline.
	Last             bool
	Deployed, Failed bool
	// End is when it was deployed, or failed.
	End time.Time
	// Lead is the lead time; negative if it is not known, or not of the last environment.
	Lead time.Duration
	// By is the UID of the Promotion that ended it.
	By types.UID
}

// Restore is a time in which a failed environment was restored.
type Restore struct {
	Environment string
	Last        bool
	End         time.Time
	Took        time.Duration
	// By is the UID of the Promotion that restored it.
	By types.UID
}

// Wait is how long a Promotion waited. A duration is negative if it did not wait for that.
type Wait struct {
	Environment     string
	End             time.Time
	Approval, Gates time.Duration
	By              types.UID
}

// Rollback is a rollback that succeeded.
type Rollback struct {
	Environment string
	Last        bool
	End         time.Time
}

// History is what happened in the environments of one Pipeline, in the order of time, except changes that never were
// deployed into all waves: these are last.
type History struct {
	Pipeline  Pipeline
	Changes   []Change
	Restores  []Restore
	Waits     []Wait
	Rollbacks []Rollback
	// series are the Promotions by stage, for what the retention deleted.
	series []series
}

// Entered returns the environments that the ledger has Promotions into, in the order of the Pipeline.
func (h *History) Entered() []string {
	var entered []string
	for _, name := range h.Pipeline.Environments {
		if slices.ContainsFunc(h.series, func(s series) bool { return s.environment == name }) {
			entered = append(entered, name)
		}
	}
	return entered
}

// moment is something that happened to a Promotion.
type moment struct {
	at   int64 // in seconds since 1970
	kind momentKind
	of   *capstanv1.Promotion
}

type momentKind int

// Kinds of moments, in the order in which those of one Promotion happen.
const (
	begun  momentKind = iota // the second environment gets a new revision
	broken                   // a rollback was created
	ended
)

// chronological is the order of moments. What begins is first, so that it is known when it ends in the same second.
func chronological(a, b moment) int {
	if d := cmp.Compare(a.at, b.at); d != 0 {
		return d
	}
	if (a.kind == begun) != (b.kind == begun) {
		return cmp.Compare(a.kind, b.kind)
	}
	return cmp.Or(cmp.Compare(a.of.Spec.Number, b.of.Spec.Number), cmp.Compare(a.kind, b.kind), cmp.Compare(a.of.Spec.Environment, b.of.Spec.Environment))
}

// HistoryOf returns the History of a Pipeline from its Promotions, in any order. Promotions of other UIDs are ignored.
func HistoryOf(p Pipeline, promotions []*capstanv1.Promotion) History {
	s := scan{history: History{Pipeline: p}, states: make([]state, len(p.Environments)), began: map[string]int64{}, rolledBack: map[string]bool{}}
	moments := make([]moment, 0, len(promotions)+len(promotions)/2)
	for _, one := range promotions {
		at := slices.Index(p.Environments, one.Spec.BaseEnvironment())
		if one.Spec.Pipeline.UID != p.UID || at < 0 {
			continue
		}
		s.history.note(one)
		created := one.CreationTimestamp.Unix()
		switch {
		case one.Spec.RollbackOf != nil:
			s.rolledBack[one.Spec.RollbackOf.Name] = true
			moments = append(moments, moment{created, broken, one})
		case at == second:
			moments = append(moments, moment{created, begun, one})
		}
		if one.Status.Phase.Finished() && one.Status.FinishTime != nil {
			moments = append(moments, moment{one.Status.FinishTime.Unix(), ended, one})
		}
	}
	slices.SortFunc(moments, chronological)
	for _, m := range moments {
		s.step(m)
	}
	s.finish()
	s.history.order()
	return s.history
}

// scan reads the moments of a Pipeline in their order.
type scan struct {
	history History
	// states of the environments, in their order.
	states []state
	// began is when the first environment agreed on a revision, by its content.
	began map[string]int64
	// rolledBack are the names of the Promotions that a rollback replaces.
	rolledBack map[string]bool
}

// state of an environment.
type state struct {
	// failed are the stages that failed, since failedAt.
	failed   []string
	failedAt int64
	// waves are the changes that were not deployed into the last wave yet, by the content of their revision.
	waves map[string]*group
	// runs are the contents that the waves got by their last Promotion; absent if that failed.
	runs map[string]string
	// deployed are the newest changes that all waves got, by the content of their revision: indices of Changes, or none if
	// the hub made no attempt.
	deployed map[string]int
}

// none is the index of no change.
const none = -1

// group is a change in an environment with waves.
type group struct {
	attempted, failed bool
	// failedAt and by are those of the first failure.
	failedAt int64
	by       types.UID
}

func (s *scan) step(m moment) {
	p, at := m.of, slices.Index(s.history.Pipeline.Environments, m.of.Spec.BaseEnvironment())
	e := &s.states[at]
	switch m.kind {
	case begun:
		content := revision.Content(p.Spec.Revision)
		if _, known := s.began[content]; !known {
			s.began[content] = m.at
		}
	case broken:
		e.fail(p.Spec.Environment, m.at)
	case ended:
		s.end(m, at, e)
	}
}

func (e *state) fail(stage string, at int64) {
	if len(e.failed) == 0 {
		e.failedAt = at
	}
	if !slices.Contains(e.failed, stage) {
		e.failed = append(e.failed, stage)
	}
}

// got notes the end of a Promotion into a wave, and returns whether the wave had its revision before.
func (e *state) got(p *capstanv1.Promotion, attempted bool) (had bool) {
	if e.runs == nil {
		e.waves, e.runs, e.deployed = map[string]*group{}, map[string]string{}, map[string]int{}
	}
	wave, content := p.Spec.Environment, revision.Content(p.Spec.Revision)
	had = e.runs[wave] == content
	switch {
	case p.Status.Phase == capstanv1.PhaseSucceeded:
		e.runs[wave] = content
	case attempted && !had:
		delete(e.runs, wave)
	}
	return had
}

// end handles the end of a Promotion into environment number at.
func (s *scan) end(m moment, at int, e *state) {
	p, name, last := m.of, s.history.Pipeline.Environments[at], s.last(at)
	attempted := p.Status.Attempt != nil || p.Status.CarriedOutTime != nil
	had := p.Spec.Wave != nil && e.got(p, attempted)
	succeeded, failed := p.Status.Phase == capstanv1.PhaseSucceeded, p.Status.Phase == capstanv1.PhaseFailed
	if succeeded || failed {
		s.wait(m, name)
	}
	switch {
	case failed:
		e.fail(p.Spec.Environment, m.at)
	case succeeded:
		if i := slices.Index(e.failed, p.Spec.Environment); i >= 0 {
			if e.failed = slices.Delete(e.failed, i, i+1); len(e.failed) == 0 {
				s.history.Restores = append(s.history.Restores, Restore{Environment: name, Last: last, End: timeOf(m.at), Took: between(e.failedAt, m.at), By: p.UID})
			}
		}
	}
	if p.Spec.RollbackOf != nil {
		if succeeded {
			s.history.Rollbacks = append(s.history.Rollbacks, Rollback{Environment: name, Last: last, End: timeOf(m.at)})
		}
		return
	}
	// One that was superseded and is rolled back had reached the environment.
	replaced := s.rolledBack[p.Name] && (succeeded || p.Status.Phase == capstanv1.PhaseSuperseded)
	if p.Spec.Wave != nil {
		s.wave(m, at, e, had, group{attempted: attempted, failed: failed || replaced})
		return
	}
	if deployed := succeeded && attempted; deployed || failed || replaced {
		s.change(m, at, deployed, failed || replaced)
	}
}

// wave adds the end of a Promotion into a wave to the change of its revision. had is whether the wave had the revision before: if
// it was deployed, the Promotion is for clusters that joined, and is no other deployment.
func (s *scan) wave(m moment, at int, e *state, had bool, of group) {
	content := revision.Content(m.of.Spec.Revision)
	g := e.waves[content]
	if i, deployed := e.deployed[content]; had && deployed && (g == nil || m.of.Spec.Wave.Last) {
		switch {
		case of.failed && i != none:
			s.history.Changes[i].Failed = true
		case of.failed:
			e.deployed[content] = s.change(m, at, false, true)
		}
		return
	}
	if g == nil {
		g = &group{}
		e.waves[content] = g
	}
	if of.failed && !g.failed {
		g.failed, g.failedAt, g.by = true, m.at, m.of.UID
	}
	g.attempted = g.attempted || of.attempted
	if m.of.Status.Phase != capstanv1.PhaseSucceeded || !m.of.Spec.Wave.Last {
		return
	}
	delete(e.waves, content)
	e.deployed[content] = none
	if g.attempted || g.failed {
		e.deployed[content] = s.change(m, at, g.attempted, g.failed)
	}
}

// change adds a change that a Promotion ended, and returns its index.
func (s *scan) change(m moment, at int, deployed, failed bool) int {
	c := Change{
		Environment: s.history.Pipeline.Environments[at], Last: s.last(at), Deployed: deployed, Failed: failed, End: timeOf(m.at), Lead: unknown, By: m.of.UID,
	}
	if c.Last && deployed {
		content := revision.Content(m.of.Spec.Revision)
		if began, ok := s.began[content]; ok {
			c.Lead = between(began, m.at)
			delete(s.began, content)
		}
	}
	s.history.Changes = append(s.history.Changes, c)
	return len(s.history.Changes) - 1
}

// finish adds the changes that failed in a wave and were not deployed into the last one.
func (s *scan) finish() {
	for at := range s.states {
		var failed []Change
		for _, g := range s.states[at].waves {
			if g.failed {
				failed = append(failed, Change{
					Environment: s.history.Pipeline.Environments[at], Last: s.last(at), Failed: true, End: timeOf(g.failedAt), Lead: unknown, By: g.by,
				})
			}
		}
		slices.SortFunc(failed, func(a, b Change) int { return cmp.Or(a.End.Compare(b.End), cmp.Compare(a.By, b.By)) })
		s.history.Changes = append(s.history.Changes, failed...)
	}
}

func (s *scan) last(at int) bool { return at >= second && at == len(s.states)-1 }

// wait adds how long a Promotion waited.
func (s *scan) wait(m moment, environment string) {
	status := &m.of.Status
	w := Wait{Environment: environment, End: timeOf(m.at), Approval: unknown, Gates: unknown, By: m.of.UID}
	opened := status.GatesOpenTime
	if shut := status.GatesCloseTime; shut != nil && opened != nil && !opened.Before(shut) {
		w.Gates = between(shut.Unix(), opened.Unix())
	}
	if a := status.Approval; a != nil && status.StartTime != nil && a.Retry == status.Retry && !a.ApprovalTime.Before(status.StartTime) {
		from := status.StartTime.Unix()
		if opened != nil && !a.ApprovalTime.Before(opened) {
			from = max(from, opened.Unix())
		}
		w.Approval = between(from, a.ApprovalTime.Unix())
	}
	if w.Approval >= 0 || w.Gates >= 0 {
		s.history.Waits = append(s.history.Waits, w)
	}
}

// unknown is a duration that is not known.
const unknown = -time.Second

// between is the time between two seconds; 0 if clocks differ so that the second one is earlier.
func between(from, to int64) time.Duration { return time.Duration(max(0, to-from)) * time.Second }

func timeOf(at int64) time.Time { return time.Unix(at, 0).UTC() }
