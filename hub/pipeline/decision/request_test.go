package decision

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// requested is a promotion by request, which holds the environment.
func requested(n int64, revision string, hold int64, phase capstanv1.PromotionPhase) Entry {
	e := entry(n, revision, 0, phase)
	e.Request, e.Hold, e.CarriedOut = types.UID(fmt.Sprint("request-", n)), hold, phase == capstanv1.PhaseSucceeded
	return e
}

// rolledBack is a rollback of the promotion before it.
func rolledBack(n int64, revision string, hold int64, phase capstanv1.PromotionPhase) Entry {
	e := entry(n, revision, 0, phase)
	e.RollbackOf, e.Hold, e.CarriedOut = n-1, hold, phase == capstanv1.PhaseSucceeded
	return e
}

// rollsBackWithin configures rollbacks, of a newest promotion to another one.
func rollsBackWithin(limit pipelinesv1.RollbackLimit, to *Entry) func(*Question) {
	return func(q *Question) {
		q.Into.Rollback = RollbackRules{Mode: pipelinesv1.RollbackPromote, Within: limit}
		q.Into.Targets = []Target{unready("1.1")}
		q.RollbackTo = to
	}
}

func TestDecideOutOfTurn(t *testing.T) {
	asks := func(q *Question) { q.Request = &Request{Name: "hotfix", UID: "uid", Revision: "1.0.1"} }
	good, bad := entry(1, "1.0", 1, capstanv1.PhaseSucceeded), failed(2, "1.1", Degraded)
	minor := rollsBackWithin(pipelinesv1.RollbackMinor, &good)
	former := rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded)
	former.Former = true
	gone := requested(3, "1.0", 2, capstanv1.PhaseRejected)
	edited := func(e Entry, change ...func(*Entry)) Entry {
		e.Intent = manual
		for _, c := range change {
			c(&e)
		}
		return e
	}
	failsBefore := func(e *Entry) { e.Phase, e.Reason, e.CarriedOut = capstanv1.PhaseFailed, "AuthFailed", false }
	rollsBack := rolledBack(3, "1.04", 0, capstanv1.PhaseAwaitingMerge)
	back := gone
	back.RollbackOf, back.Phase = 2, capstanv1.PhaseSuperseded
	for name, tc := range map[string]struct {
		q    Question
		want Reason
	}{
		"a request":                                 {question(asks), Requested},
		"a request, the source is mixed":            {question(asks, func(q *Question) { q.Source.Targets = nil }), Requested},
		"a request, the environment is stale":       {question(asks, func(q *Question) { q.Into.Targets = []Target{stale("1.0")} }), Requested},
		"a request, another is in flight":           {question(asks, with(requested(3, "1.0", 2, capstanv1.PhasePromoting))), Requested},
		"a request under a hold":                    {question(asks, with(good, bad, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded))), Requested},
		"a request, no targets":                     {question(asks, func(q *Question) { q.Into.Targets = nil }), NoTargets},
		"a request, suspended":                      {question(asks, func(q *Question) { q.Suspended = true }), Suspended},
		"a request, no promotion":                   {question(asks, func(q *Question) { q.Into.Intent = nil }), NoPromotion},
		"a request instead of a rollback":           {question(minor, with(good, bad), asks), Requested},
		"G46: a request is carried out":             {question(with(requested(3, "1.0", 1, capstanv1.PhaseAwaitingMerge))), Busy},
		"G46: a rollback is carried out":            {question(with(good, bad, rolledBack(3, "1.0", 1, capstanv1.PhaseAwaitingMerge))), Busy},
		"G46: a rollback is rolled out":             {question(with(good, bad, rolledBack(3, "1.0", 1, capstanv1.PhaseAwaitingRollout))), Busy},
		"a request, edited":                         {question(with(edited(requested(3, "1.0", 2, capstanv1.PhaseAwaitingMerge)))), Reissued},
		"a rollback, edited":                        {question(with(good, bad, edited(rolledBack(3, "1.0", 2, capstanv1.PhaseAwaitingGates)))), Reissued},
		"a rollback that failed before, edited":     {question(with(good, bad, edited(rolledBack(3, "1.0", 2, ""), failsBefore))), Reissued},
		"a rollback that failed before":             {question(with(good, bad, edited(rolledBack(3, "1.0", 2, ""), failsBefore, func(e *Entry) { e.Intent = notify }))), Held},
		"a rollback that failed there, edited":      {question(with(good, bad, edited(rolledBack(3, "1.0", 2, capstanv1.PhaseFailed), func(e *Entry) { e.Reason, e.CarriedOut = string(Degraded), true }))), Held},
		"a rollback that is rolled out, edited":     {question(with(good, bad, edited(rolledBack(3, "1.0", 2, capstanv1.PhaseAwaitingRollout), func(e *Entry) { e.CarriedOut = true }))), Busy},
		"a request of a former Pipeline, edited":    {question(with(edited(former, failsBefore))), Held},
		"a request for another application, edited": {question(with(edited(requested(3, "1.0", 1, capstanv1.PhaseAwaitingMerge), func(e *Entry) { e.Intent = other }))), NewRevision},
		"a request for the candidate, closed":       {question(with(requested(3, "1.1", 2, capstanv1.PhaseRejected))), AlreadyDecided},
		"one for an earlier agreement, closed":      {question(with(requested(3, "1.1", 1, capstanv1.PhaseRejected))), NewRevision},
		"held, the source was renamed":              {question(func(q *Question) { q.HeldBefore = true }), Held},
		"staging is being rolled back":              {question(fromStaging("1.1", entry(2, "1.1", 2, capstanv1.PhaseSucceeded), rollsBack)), SourceHeld},
		"staging's rollback cannot be carried out":  {question(fromStaging("1.1", entry(2, "1.1", 2, capstanv1.PhaseSucceeded), edited(rollsBack, failsBefore))), SourceHeld},
		"staging's rollback was closed":             {question(fromStaging("1.1", entry(2, "1.1", 2, capstanv1.PhaseSucceeded), rolledBack(3, "1.04", 0, capstanv1.PhaseRejected))), NewRevision},
		"G29: rolled back, nothing new":             {question(with(good, bad, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded))), Held},
		"G29: rolled back, the next one":            {question(with(good, bad, rolledBack(3, "1.0", 1, capstanv1.PhaseSucceeded))), NewRevision},
		"a rollback that a user closed":             {question(with(good, bad, rolledBack(3, "1.0", 2, capstanv1.PhaseRejected))), Held},
		"requested, nothing new":                    {question(with(requested(3, "1.0", 2, capstanv1.PhaseSucceeded))), Held},
		"requested, the next one":                   {question(with(requested(3, "1.0", 1, capstanv1.PhaseSucceeded))), NewRevision},
		"a request that a user closed":              {question(with(gone)), NewRevision},
		"a request that a user closed, under one":   {question(with(rolledBack(2, "1.0", 2, capstanv1.PhaseSucceeded), gone)), Held},
		"a withdrawn request after a failure":       {question(with(good, bad, gone)), AlreadyDecided},
		"a withdrawn rollback after a rejection":    {question(with(entry(2, "1.1", 2, capstanv1.PhaseRejected), back)), AlreadyDecided},
		"a rollback by request that was superseded": {question(with(back)), NewRevision},
		"held in a former Pipeline":                 {question(with(former), func(q *Question) { q.Source.Agreed = agreed("1.1", 1) }), Held},
		"held in a former Pipeline, its sequence":   {question(with(former)), Held},
		"held in a former Pipeline, the next one":   {question(with(former), func(q *Question) { q.Source.Agreed = agreed("1.1", 3) }), NewRevision},
		"held by another source":                    {question(with(Entry{Number: 3, Revision: "1.0", Source: "qa", Intent: notify, RollbackOf: 2, Hold: 9, Phase: capstanv1.PhaseSucceeded})), NewRevision},
		"G32: staging rolled back on demand":        {question(fromStaging("1.04", entry(1, "1.04", 1, capstanv1.PhaseSucceeded), entry(2, "1.05", 2, capstanv1.PhaseSucceeded), rolledBack(3, "1.04", 2, capstanv1.PhaseSucceeded))), SourceHeld},
		"G32: dev runs it again":                    {question(fromStaging("1.1", rolledBack(3, "1.1", 2, capstanv1.PhaseSucceeded))), NewRevision},
		"a hotfix in staging":                       {question(fromStaging("1.0.1", requested(3, "1.0.1", 2, capstanv1.PhaseSucceeded))), SourceHeld},
		"a failure, rolled back":                    {question(minor, with(good, bad)), RolledBack},
		"a failed check, rolled back":               {question(minor, with(good, failed(2, "1.1", VerificationFailed))), RolledBack},
		"a late roll-out, rolled back":              {question(minor, with(good, failed(2, "1.1", RolloutDeadline))), RolledBack},
		"no verdict":                                {question(minor, with(good, failed(2, "1.1", Inconclusive))), AlreadyDecided},
		"failed before it was rolled out":           {question(minor, with(good, failed(2, "1.1", "AuthFailed"))), AlreadyDecided},
		"no rollback is configured":                 {question(with(good, bad), func(q *Question) { q.RollbackTo = &good }), AlreadyDecided},
		"nothing succeeded before":                  {question(rollsBackWithin(pipelinesv1.RollbackAny, nil), with(bad)), AlreadyDecided},
		"G30: the rollback fails too":               {question(minor, with(good, bad, func() Entry { e := failed(3, "1.0", Degraded); e.Sequence, e.RollbackOf, e.Hold = 0, 2, 2; return e }())), Held},
		"the environment was repaired by hand":      {question(minor, with(good, bad), func(q *Question) { q.Into.Targets = []Target{at("1.1.1")} }), AlreadyDecided},
		"its controller put the old one back":       {question(minor, with(good, bad), func(q *Question) { q.Into.Targets = []Target{at("1.0")} }), RolledBack},
		"the failed one became ready":               {question(minor, with(good, bad), func(q *Question) { q.Into.Targets = []Target{at("1.1")} }), RolledBack},
		"a failure of a former Pipeline":            {question(minor, with(func() Entry { e := bad; e.Former = true; return e }())), AlreadyDecided},
		"another application":                       {question(minor, with(func() Entry { e := bad; e.Intent = other; return e }())), NewRevision},
		"a failure of a request":                    {question(minor, with(good, func() Entry { e := bad; e.Request, e.Sequence, e.Hold = "r", 0, 2; return e }())), RolledBack},
		"too far back":                              {question(rollsBackWithin(pipelinesv1.RollbackPatch, &good), with(good, bad)), AlreadyDecided},
		"a patch back":                              {question(rollsBackWithin(pipelinesv1.RollbackPatch, &Entry{Revision: "1.1.0-rc.1"}), with(good, bad)), RolledBack},
		"G31: a major version back, within Minor":   {question(rollsBackWithin(pipelinesv1.RollbackMinor, &Entry{Revision: "0.9.0"}), with(bad)), AlreadyDecided},
		"a major version back, within Any":          {question(rollsBackWithin(pipelinesv1.RollbackAny, &Entry{Revision: "0.9.0"}), with(bad)), RolledBack},
		"no semantic version, within Minor":         {question(rollsBackWithin(pipelinesv1.RollbackMinor, &Entry{Revision: "main@sha1:" + digest}), with(bad)), AlreadyDecided},
		"no semantic version, within Any":           {question(rollsBackWithin(pipelinesv1.RollbackAny, &Entry{Revision: "main@sha1:" + digest}), with(bad)), RolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			v := Decide(tc.q)
			g.Expect(v.Reason).To(Equal(tc.want))
			switch v.Reason { //nolint:exhaustive // The others are of the table of TestDecide.
			case Requested:
				g.Expect(v).To(And(HaveField("Create", true), HaveField("Revision", "1.0.1"), HaveField("Sequence", int64(0)), HaveField("Hold", int64(2))))
			case Reissued:
				n := tc.q.Into.Ledger.Newest()
				g.Expect(v).To(And(HaveField("Create", true), HaveField("Revision", n.Revision), HaveField("Sequence", int64(0)),
					HaveField("Hold", n.Hold), HaveField("Replaces", n), HaveField("RollbackOf", BeNil())))
			case RolledBack:
				g.Expect(v).To(And(HaveField("Create", true), HaveField("Revision", tc.q.RollbackTo.Revision), HaveField("Sequence", int64(0)),
					HaveField("Hold", int64(2)), HaveField("RollbackOf", tc.q.Into.Ledger.Newest())))
			}
		})
	}
}

// digest is one of SHA-1.
const digest = "0123456789abcdef0123456789abcdef01234567"

// A rollback that the hub does not make has a reason for users.
func TestRollbackAdvice(t *testing.T) {
	good, bad := entry(1, "1.0", 1, capstanv1.PhaseSucceeded), failed(2, "2.0", Degraded)
	for why, edit := range map[string]func(*Question){
		"spec.rollback has the mode Notify":                            func(q *Question) { q.Into.Rollback.Mode = pipelinesv1.RollbackNotify },
		"no other revision succeeded there before":                     func(q *Question) { q.RollbackTo = nil },
		"2.0 to 1.0 is further back than spec.rollback.within (Minor)": func(*Question) {},
		"2.0 was requested, and 2.1 is later": func(q *Question) {
			requested := bad
			requested.Request = "uid"
			with(good, requested)(q)
			q.RollbackTo = &Entry{Revision: "2.1"}
		},
		"2.0 or main is no semantic version, and spec.rollback is within Minor": func(q *Question) { q.RollbackTo = &Entry{Revision: "main"} },
	} {
		g, q := NewWithT(t), question(rollsBackWithin(pipelinesv1.RollbackMinor, &good), with(good, bad))
		edit(&q)
		_, text := Rollback(q)
		g.Expect(text).To(Equal(why))
	}
}

func TestRollbackFor(t *testing.T) {
	g := NewWithT(t)
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{
		Rollback:     &pipelinesv1.Rollback{Mode: pipelinesv1.RollbackPromote},
		Environments: []pipelinesv1.Environment{{}, {}, {Rollback: &pipelinesv1.Rollback{Mode: "Sometimes"}}, {Rollback: &pipelinesv1.Rollback{Within: "Major"}}},
	}}
	g.Expect(RollbackFor(p, 1)).To(Equal(RollbackRules{Mode: pipelinesv1.RollbackPromote, Within: pipelinesv1.RollbackMinor}))
	g.Expect(RollbackFor(p, 2).Err()).To(MatchError(`spec.environments[2].rollback.mode: "Sometimes" is not Never, Notify or Promote`))
	g.Expect(RollbackFor(p, 3).Err()).To(MatchError(`spec.environments[3].rollback.within: "Major" is not Patch, Minor or Any`))
	g.Expect(RollbackFor(p, 3).Mode).To(Equal(pipelinesv1.RollbackNever), "nothing is done until it is corrected")
	g.Expect(RollbackFor(&pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{{}}}}, 0)).To(BeZero())
}

// The newest of the requests is due, once, and only for an hour.
func TestTriage(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	request := func(uid types.UID, age time.Duration, change ...func(*capstanv1.PromotionRequest)) *capstanv1.PromotionRequest {
		r := &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		for _, c := range change {
			c(r)
		}
		return r
	}
	finished := func(r *capstanv1.PromotionRequest) {
		r.Status.Phase, r.Status.Promotion = capstanv1.RequestPromoted, "web-3"
	}
	refused := func(r *capstanv1.PromotionRequest) { r.Status.Phase = capstanv1.RequestRefused }
	carries := requested(4, "1.0", 1, capstanv1.PhasePromoting)
	carries.Request, carries.Name = "b", "web-4"
	for name, tc := range map[string]struct {
		requests []*capstanv1.PromotionRequest
		due      types.UID
		others   map[types.UID]capstanv1.RequestPhase
	}{
		"none":                              {nil, "", nil},
		"one":                               {[]*capstanv1.PromotionRequest{request("a", time.Minute)}, "a", nil},
		"G34: two, the newest is due":       {[]*capstanv1.PromotionRequest{request("a", 2*time.Minute), request("z", 3*time.Minute)}, "a", map[types.UID]capstanv1.RequestPhase{"z": capstanv1.RequestSuperseded}},
		"two in one second":                 {[]*capstanv1.PromotionRequest{request("a", time.Minute), request("c", time.Minute)}, "c", map[types.UID]capstanv1.RequestPhase{"a": capstanv1.RequestSuperseded}},
		"a newer one was carried out":       {[]*capstanv1.PromotionRequest{request("a", 2*time.Minute), request("c", time.Minute, finished)}, "", map[types.UID]capstanv1.RequestPhase{"a": capstanv1.RequestSuperseded}},
		"one in the same second was":        {[]*capstanv1.PromotionRequest{request("a", time.Minute), request("c", time.Minute, finished)}, "a", nil},
		"a newer one was refused":           {[]*capstanv1.PromotionRequest{request("a", 2*time.Minute), request("c", time.Minute, refused)}, "a", nil},
		"G51: restored with its old status": {[]*capstanv1.PromotionRequest{request("a", 2*time.Hour)}, "", map[types.UID]capstanv1.RequestPhase{"a": capstanv1.RequestExpired}},
		"its outcome was not written":       {[]*capstanv1.PromotionRequest{request("b", 2*time.Minute)}, "", map[types.UID]capstanv1.RequestPhase{"b": capstanv1.RequestPromoted}},
		"carried out, a newer one":          {[]*capstanv1.PromotionRequest{request("b", 2*time.Minute), request("c", time.Minute)}, "c", map[types.UID]capstanv1.RequestPhase{"b": capstanv1.RequestPromoted}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			due, others := Triage(tc.requests, NewLedger([]Entry{carries}, 0), now)
			if tc.due == "" {
				g.Expect(due).To(BeNil())
			} else {
				g.Expect(due).To(HaveField("UID", tc.due))
			}
			g.Expect(others).To(HaveLen(len(tc.others)))
			for _, o := range others {
				g.Expect(o.Phase).To(Equal(tc.others[o.UID]))
				if o.Phase == capstanv1.RequestPromoted {
					g.Expect(o.Promotion).To(Equal("web-4"))
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	known := func(r string) bool { return r != "7.7" }
	rejected := func(r string) bool { return r == "6.6" }
	asks := func(revision string) *capstanv1.PromotionRequest {
		r := &capstanv1.PromotionRequest{Spec: capstanv1.PromotionRequestSpec{Revision: revision, By: "ann", Reason: "incident"}}
		if revision == "" {
			r.Spec.Rollback = &capstanv1.RollbackRequest{}
		}
		return r
	}
	first, second := entry(1, "1.0", 1, capstanv1.PhaseSucceeded), entry(2, "1.1", 2, capstanv1.PhaseSucceeded)
	arrives := entry(3, "1.2", 3, capstanv1.PhaseAwaitingRollout)
	arrives.CarriedOut = true
	runs := func(revision string) func(*Question) {
		return func(q *Question) { q.Into.Targets = []Target{at(revision)} }
	}
	attempt := entry(3, "1.2", 3, capstanv1.PhasePromoting)
	attempt.BusyUntil = time.Unix(1, 0)
	opens := attempt
	opens.Intent.Strategy = pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}}
	withdrawn := rolledBack(4, "1.1", 3, capstanv1.PhaseAwaitingRollout)
	withdrawn.CarriedOut = true
	for name, tc := range map[string]struct {
		q        Question
		request  *capstanv1.PromotionRequest
		revision string
		of       int64
		refused  string
	}{
		"a revision":                             {question(), asks("1.0.1"), "1.0.1", 0, ""},
		"G34: unknown":                           {question(), asks("7.7"), "", 0, "the Pipeline does not know 7.7: it runs in none of its environments, and none of its Promotions was for it"},
		"rejected":                               {question(), asks("6.6"), "", 0, "6.6 is in spec.reject of the Pipeline"},
		"no promotion":                           {question(func(q *Question) { q.Into.Intent = nil }), asks("1.0"), "", 0, `neither the promotion of environment "staging" nor spec.promotion is set`},
		"no targets":                             {question(func(q *Question) { q.Into.Targets = nil }), asks("1.0"), "", 0, `environment "staging" has no targets`},
		"a rollback":                             {question(runs("1.1"), with(first, second)), asks(""), "1.0", 2, ""},
		"a rollback of what is not ready":        {question(func(q *Question) { q.Into.Targets = []Target{unready("1.1")} }, with(first, second)), asks(""), "1.0", 2, ""},
		"G64: a newer one waits":                 {question(runs("1.1"), with(first, second, entry(3, "1.2", 3, capstanv1.PhaseAwaitingMerge))), asks(""), "1.0", 2, ""},
		"a newer one is rolled out":              {question(runs("1.1"), with(first, second, arrives)), asks(""), "1.1", 3, ""},
		"a newer one is being sent":              {question(runs("1.1"), with(first, second, attempt)), asks(""), "1.1", 3, ""},
		"a pull request is being opened":         {question(runs("1.1"), with(first, second, opens)), asks(""), "1.0", 2, ""},
		"a second rollback":                      {question(runs("1.1"), with(first, second, entry(3, "1.2", 3, capstanv1.PhaseSucceeded), rolledBack(4, "1.1", 3, capstanv1.PhaseSucceeded))), asks(""), "1.0", 4, ""},
		"a second rollback, the first not there": {question(runs("1.2"), with(first, second, entry(3, "1.2", 3, capstanv1.PhaseSucceeded), withdrawn)), asks(""), "1.0", 4, ""},
		"a second rollback, nothing before":      {question(runs("1.0"), with(first, second, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded))), asks(""), "", 0, `no revision other than 1.0 succeeded in environment "staging" before`},
		"a rollback after a rollback and a new":  {question(runs("1.3"), with(first, second, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded), entry(4, "1.3", 3, capstanv1.PhaseSucceeded))), asks(""), "1.0", 4, ""},
		"a rollback of a change by hand":         {question(runs("9.9"), with(first, second)), asks(""), "1.1", 2, ""},
		"a rollback of a failure":                {question(func(q *Question) { q.Into.Targets = []Target{unready("1.2")} }, with(first, second, failed(3, "1.2", Degraded))), asks(""), "1.1", 3, ""},
		"a rollback, nothing succeeded before":   {question(runs("1.0"), with(first)), asks(""), "", 0, `no revision other than 1.0 succeeded in environment "staging" before`},
		"a rollback, the one before is rejected": {question(runs("1.1"), with(entry(1, "6.6", 1, capstanv1.PhaseSucceeded), second)), asks(""), "", 0, `no revision other than 1.1 succeeded in environment "staging" before`},
		"a rollback of nothing": {question(func(q *Question) { q.Into.Targets, q.Into.Agreed = []Target{{Fresh: true}}, nil }), asks(""), "", 0,
			`it is not known which revision environment "staging" runs; name the revision to promote`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r, err := Resolve(tc.q, tc.request, known, rejected)
			if tc.refused != "" {
				g.Expect(err).To(MatchError(ErrRefused))
				g.Expect(err).To(MatchError("refused: " + tc.refused))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r).To(And(HaveField("Revision", tc.revision), HaveField("By", "ann")))
			if tc.of == 0 {
				g.Expect(r.RollbackOf).To(BeNil())
			} else {
				g.Expect(r.RollbackOf).To(HaveField("Number", tc.of))
			}
		})
	}
}

// If the status of a Pipeline was lost, what a hold kept out stays out.
func TestRecordKeepsHolds(t *testing.T) {
	g := NewWithT(t)
	hold := requested(3, "1.0", 9, capstanv1.PhaseSucceeded)
	g.Expect(Record(nil, fleet(at("1.5")), []Entry{entry(2, "1.1", 5, capstanv1.PhaseSucceeded), hold})).To(Equal(agreed("1.5", 9)), "not above the hold")
	g.Expect(Record(agreed("1.5", 9), fleet(at("1.6")), []Entry{hold})).To(Equal(agreed("1.6", 10)))
}

// What an environment says about a revision does not depend on what was promoted into it later.
func TestVerdictOfTheSource(t *testing.T) {
	good, bad := verifiedAs(1, "1.0", 1), failed(2, "1.1", Degraded)
	again := requested(4, "1.1", 2, capstanv1.PhasePromoting)
	verified := verifiedAs(4, "1.1", 3)
	for name, tc := range map[string]struct {
		ledger             Ledger
		failed, rolledBack bool
	}{
		"nothing is known":        {NewLedger(nil, 0), false, false},
		"failed":                  {NewLedger([]Entry{good, bad}, 0), true, false},
		"failed, rolled back":     {NewLedger([]Entry{good, bad, rolledBack(3, "1.0", 2, capstanv1.PhasePromoting)}, 0), true, true},
		"failed, was rolled back": {NewLedger([]Entry{good, bad, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded)}, 0), true, false},
		"failed, another try":     {NewLedger([]Entry{good, bad, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded), again}, 0), true, false},
		"failed, verified since":  {NewLedger([]Entry{good, bad, rolledBack(3, "1.0", 2, capstanv1.PhaseSucceeded), verified}, 0), false, false},
		"too late":                {NewLedger([]Entry{good, failed(2, "1.1", RolloutDeadline)}, 0), false, false},
		"another is rolled back":  {NewLedger([]Entry{verifiedAs(1, "1.1", 1), entry(2, "1.2", 2, capstanv1.PhaseSucceeded), rolledBack(3, "1.0", 2, capstanv1.PhasePromoting)}, 0), false, false},
		"what failed was deleted": {NewLedger([]Entry{rolledBack(3, "1.0", 2, capstanv1.PhasePromoting)}, 0), false, true},
	} {
		g := NewWithT(t)
		g.Expect(tc.ledger.Failed(notify.App, "1.1")).To(Equal(tc.failed), name)
		g.Expect(tc.ledger.RollsBack("1.1")).To(Equal(tc.rolledBack), name)
		g.Expect(tc.ledger.RollsBack("1.0")).To(BeFalse(), name)
	}
}
