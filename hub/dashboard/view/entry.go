package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// shownCommit is how many digits of a commit are shown: as many as Git shows in a large repository.
const shownCommit = 12

// Entry is a promotion in a list.
type Entry struct {
	Namespace, Name            string
	Pipeline, PipelineLink     string
	Environment, Source        string
	Number                     int64
	From, Revision             string
	Mark                       Mark
	Reason, Message            string
	Who                        string
	Decided, Started, Finished time.Time
	// Took is how long it took; empty before it finished.
	Took     string
	Attempts int64
	// Failure of the newest attempt.
	Failure string
	// Retry is how often a user restarted it.
	Retry int64
	URL   string
	// Origin says what caused it, if its source did not.
	Origin Origin
	// Gates of the environment as they were judged last; empty when it waits for none.
	Gates []Gate
	// Checks of these gates or, from its verification on, those of the verification.
	Checks []Check
	// Expected is when all gates will be open if nothing changes, or the verification will have ended;
	// zero if that is not known.
	Expected time.Time
	// Verifying is whether it is verified.
	Verifying bool
	// Approve is the address for approving it; empty when the viewer cannot approve it.
	Approve string
	// Actions are the other actions that the viewer can do, in the lists of promotions.
	Actions []ActionLink
	// Commit is the beginning of the commit that the hub pushed for the pull request; empty if there is none.
	Commit string
	// Open is whether the page of the Pipeline shows its details at once.
	Open bool
}

// Gate is the state of a gate.
type Gate struct {
	Mark            Mark
	Name            string
	Reason, Message string
	// Since is when the state changed last, and Change when it changes next; zero if not known.
	Since, Change time.Time
}

// Origin is a rollback, a PromotionRequest, or both. All texts are of users.
type Origin struct {
	// Number of the promotion that is rolled back; 0 if it is no rollback.
	Number int64
	// Revision of that promotion; empty if it was deleted.
	Revision string
	// Request is the name of the PromotionRequest; empty if none caused it.
	Request string
	// By created it, for a Reason.
	By, Reason string
}

func originOf(p *capstanv1.Promotion) Origin {
	var o Origin
	if of := p.Spec.RollbackOf; of != nil {
		o.Number = of.Number
	}
	if r := p.Spec.Request; r != nil {
		o.Request, o.By, o.Reason = r.Name, r.By, r.Reason
	}
	return o
}

// origin is originOf with the revision that is rolled back.
func (f *Facts) origin(p *capstanv1.Promotion) Origin {
	o := originOf(p)
	if of := p.Spec.RollbackOf; of != nil {
		for i := range f.Promotions { // slices.IndexFunc would copy each of them.
			if other := &f.Promotions[i]; other.Name == of.Name && other.Namespace == p.Namespace {
				o.Revision = other.Spec.Revision
			}
		}
	}
	return o
}

// Check is the state of a check.
type Check struct {
	Mark Mark
	Name string
	// Value that was judged; empty if there is none, or if Message ends with it.
	Value, Message string
	// Since is when its verdict changed last; zero if it was not measured.
	Since time.Time
}

// checksOf returns the checks of the gates that a promotion waits for, and those of its verification.
func checksOf(p *capstanv1.Promotion) []Check {
	if !waitsForGates(p) && p.Status.VerifyTime == nil {
		return nil
	}
	checks := make([]Check, 0, len(p.Status.Checks))
	for i := range p.Status.Checks {
		c := &p.Status.Checks[i]
		check := Check{Mark: checkMark(c), Name: c.Name, Value: c.Value, Message: c.Message}
		if strings.HasSuffix(c.Message, " "+c.Value) {
			check.Value = ""
		}
		if c.LastTransitionTime != nil && c.Verdict != "" {
			check.Since = c.LastTransitionTime.Time
		}
		checks = append(checks, check)
	}
	return checks
}

// waitsForGates returns whether the gates of a promotion matter: it was not carried out.
func waitsForGates(p *capstanv1.Promotion) bool {
	return !p.Status.Phase.Finished() && p.Status.Phase != capstanv1.PhaseAwaitingRollout && p.Status.Phase != capstanv1.PhaseVerifying
}

// gatesOf returns the gates of a promotion that was not carried out.
func gatesOf(p *capstanv1.Promotion) []Gate {
	if !waitsForGates(p) {
		return nil
	}
	return gateList(p.Status.Gates)
}

func gateList(all []capstanv1.GateStatus) []Gate {
	gates := make([]Gate, 0, len(all))
	for _, g := range all {
		gate := Gate{Mark: gateMark(g.State), Name: g.Name, Reason: g.Reason, Message: g.Message}
		if g.LastTransitionTime != nil {
			gate.Since = g.LastTransitionTime.Time
		}
		if g.NextChangeTime != nil {
			gate.Change = g.NextChangeTime.Time
		}
		gates = append(gates, gate)
	}
	return gates
}

func gateMark(state capstanv1.GateState) Mark {
	switch state {
	case capstanv1.GateOpen:
		return Mark{Good, "Open"}
	case capstanv1.GateClosed:
		return Mark{Busy, "Closed"}
	case capstanv1.GateInvalid:
		return Mark{Bad, "Invalid"}
	}
	return Mark{Idle, string(state)}
}

// newestFirst is the order of a timeline; promotions in progress come before finished ones.
func newestFirst(a, b *capstanv1.Promotion) int {
	over := func(p *capstanv1.Promotion) int {
		if p.Status.Phase.Finished() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(over(a), over(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Spec.Number, a.Spec.Number),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (f *Facts) entries(promotions []*capstanv1.Promotion, scope Scope) []Block {
	blocks := make([]Block, 0, len(promotions))
	for _, p := range promotions {
		e := EntryOf(p, scope)
		e.Origin = f.origin(p)
		e.Actions = slices.DeleteFunc(f.ActionsOf(p, scope), func(l ActionLink) bool { return l.Name == useraction.Approve })
		blocks = append(blocks, Block{ID: entryID(e.Namespace, e.Name), List: "entries", Template: "entry", Data: e})
	}
	return blocks
}

func entryID(namespace, name string) string { return "promotion/" + namespace + "/" + name }

// EntryOf returns the Entry of a promotion.
func EntryOf(p *capstanv1.Promotion, scope Scope) Entry {
	e := Entry{
		Namespace: p.Namespace, Name: p.Name, Pipeline: p.Namespace + "/" + p.Spec.Pipeline.Name,
		Environment: p.Spec.Environment, Source: p.Spec.Source.Environment, Number: p.Spec.Number, Revision: p.Spec.Revision,
		Mark: phaseMark(p.Status.Phase, stalled(p)), Reason: p.Status.Reason, Message: p.Status.Message, Who: who(p),
		Decided: p.CreationTimestamp.Time, Retry: p.Spec.Retry, URL: p.Status.URL, Gates: gatesOf(p), Checks: checksOf(p), Origin: originOf(p),
	}
	e.Verifying = p.Status.Phase == capstanv1.PhaseVerifying
	if p.Status.ExpectedTime != nil {
		e.Expected = p.Status.ExpectedTime.Time
	}
	if scope.Pipelines.Has(p.Namespace) {
		e.PipelineLink = pipelinePath(p.Namespace, p.Spec.Pipeline.Name)
	}
	if p.Spec.From != nil {
		e.From = strings.Join(p.Spec.From.Revisions, ", ")
	}
	if p.Status.StartTime != nil {
		e.Started = p.Status.StartTime.Time
	}
	if p.Status.FinishTime != nil {
		e.Finished = p.Status.FinishTime.Time
		if !e.Started.IsZero() {
			e.Took = lasted(e.Finished.Sub(e.Started))
		}
	}
	if r := p.Status.PullRequest; r != nil {
		e.Commit = r.HeadSHA[:min(len(r.HeadSHA), shownCommit)]
	}
	if a := p.Status.Attempt; a != nil {
		e.Attempts, e.Failure = a.Number, a.Error
	}
	if useraction.Approvable(p) && scope.Approve.Has(p.Namespace) {
		e.Approve = ApprovePath(p.Namespace, p.Name)
	}
	return e
}

// who returns the text that says how a promotion was approved.
func who(p *capstanv1.Promotion) string {
	switch {
	case p.Status.Approval != nil && p.Status.Approval.Method == capstanv1.ApprovalByHTTP:
		return "approved by " + p.Status.Approval.By + " (signed call)"
	case p.Status.Approval != nil:
		return "approved by " + p.Status.Approval.By + useraction.Quoted(p.Status.Approval.Comment)
	case p.Approved():
		return "approved by " + p.Spec.Approval.By + useraction.Quoted(p.Spec.Approval.Comment)
	case p.Rejected():
		return "rejected by " + p.Spec.Rejection.By
	case p.Spec.Manual && p.Status.Phase == capstanv1.PhaseSucceeded:
		return "no approval was necessary" // It ran there already.
	case p.Spec.Manual && p.Status.Phase.Finished():
		return "was not approved"
	case p.Spec.Manual:
		return "needs an approval"
	case p.Spec.Request != nil:
		return "needs no approval"
	}
	return "automatic"
}

// lasted returns a duration as two units at most: "5 s", "11 min 14 s", "3 d 2 h".
func lasted(d time.Duration) string {
	const day = 24 * time.Hour
	units := []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	d = max(d, 0)
	for i, u := range units {
		n := d / u.of
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%d %s", n, u.name)
		if i+1 < len(units) {
			if rest := (d % u.of) / units[i+1].of; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0 s"
}

// originText returns the words by which a search finds a rollback, or a promotion by request.
func originText(p *capstanv1.Promotion) string {
	var words []string
	if p.Spec.RollbackOf != nil {
		words = append(words, "rollback")
	}
	if r := p.Spec.Request; r != nil {
		words = append(words, "requested by "+r.By, r.Reason)
	}
	return strings.Join(words, ", ")
}
