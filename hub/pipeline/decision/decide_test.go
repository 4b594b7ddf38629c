package decision

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/soak"
)

var (
	notify = Intent{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}}
	manual = Intent{Strategy: notify.Strategy, Manual: true}
	other  = Intent{Strategy: notify.Strategy, App: pipelinesv1.LocalAppReference{Name: "another"}}
)

// verifies and verifiedSource make the environment, or its source, verify revisions.
func verifies(q *Question)       { q.Into.Verified = true }
func verifiedSource(q *Question) { q.Source.Verified = true }

func failed(n int64, revision string, why PhaseReason) Entry {
	e := entry(n, revision, 2, capstanv1.PhaseFailed)
	e.Reason, e.CarriedOut = string(why), true
	return e
}

// verifiedAs is a promotion that ended as Verified.
func verifiedAs(n int64, revision string, sequence int64) Entry {
	e := entry(n, revision, sequence, capstanv1.PhaseSucceeded)
	e.Reason = string(Verified)
	return e
}

// fleet is a fleet without a quorum.
func fleet(targets ...Target) Fleet { return Fleet{Targets: targets} }

// runsIt makes the environment run the candidate and verify it.
func runsIt(q *Question) { q.Into.Targets, q.Into.Verified = []Target{at("1.1")}, true }

// sameRollOut says that the newest promotion, from another source, is for the candidate.
func sameRollOut(q *Question) { q.SameOrigin = true }

// at is a target that runs a revision, fresh and ready.
func at(revision string) Target { return Target{Fresh: true, Ready: true, Revision: revision} }

func unready(revision string) Target { return Target{Fresh: true, Revision: revision} }
func working(revision string) Target {
	return Target{Fresh: true, Progressing: true, Revision: revision}
}
func stale(revision string) Target { return Target{Ready: true, Revision: revision} }

func agreed(revision string, sequence int64) *pipelinesv1.AgreedRevision {
	return &pipelinesv1.AgreedRevision{Revision: revision, Sequence: sequence}
}

// entry is a promotion from the first environment.
func entry(n int64, revision string, sequence int64, phase capstanv1.PromotionPhase) Entry {
	return Entry{Number: n, Revision: revision, Sequence: sequence, Source: "dev", Intent: notify, Phase: phase}
}

// TestAPromotionThatIsOwed: the quorum of a wave runs 1.1, and a cluster that joined does not. The promotion for it ended before it
// was carried out.
func TestAPromotionThatIsOwed(t *testing.T) {
	t.Parallel()
	edited := notify
	edited.Manual = !edited.Manual
	for name, tc := range map[string]struct {
		newest      Entry
		waveChanged bool
		reason      Reason
	}{
		"a cluster moved":             {Entry{Phase: capstanv1.PhaseSuperseded, Reason: string(WaveChanged)}, false, PromotionRestored},
		"it was rejected for a time":  {Entry{Phase: capstanv1.PhaseSuperseded, Reason: string(RevisionRejected)}, false, PromotionRestored},
		"failed, and a cluster moved": {Entry{Phase: capstanv1.PhaseFailed}, true, PromotionRestored},
		"failed":                      {Entry{Phase: capstanv1.PhaseFailed}, false, AlreadyDecided},
		"a user rejected it":          {Entry{Phase: capstanv1.PhaseRejected}, false, AlreadyDecided},
		"failed, and was edited":      {Entry{Phase: capstanv1.PhaseFailed, Intent: edited}, false, IntentChanged},
		"in flight":                   {Entry{Phase: capstanv1.PhaseAwaitingMerge}, false, AlreadyDecided},
		"carried out":                 {Entry{Phase: capstanv1.PhaseSucceeded, CarriedOut: true}, false, UpToDate},
	} {
		n := tc.newest
		n.Number, n.Revision, n.Sequence, n.Source, n.Clusters = 2, "1.1", 2, "dev", []string{"eu/1", "eu/2", "eu/3", "eu/8"}
		if n.Intent == (Intent{}) {
			n.Intent = notify
		}
		q := question(with(n), func(q *Question) {
			q.WaveChanged = tc.waveChanged
			q.Into.Wave = true
			q.Into.Fleet = quorumOf(t)
			for _, of := range []struct{ cluster, runs string }{{"eu/1", "1.1"}, {"eu/2", "1.1"}, {"eu/3", "1.1"}, {"eu/8", "1.0"}} {
				one := at(of.runs)
				one.Cluster = of.cluster
				q.Into.Targets = append(q.Into.Targets, one)
			}
		})
		NewWithT(t).Expect(Decide(q).Reason).To(Equal(tc.reason), name)
	}
}

// A cluster joined a wave after the promotion for the others.
func TestAClusterThatJoinedAndIsAtWork(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		newcomer Target
		reason   Reason
	}{
		"runs another":               {at("1.0"), TargetsJoined},
		"runs it":                    {at("1.1"), UpToDate},
		"shows it, at work":          {working("1.1"), AlreadyDecided},
		"shows another, at work":     {working("1.0"), TargetsJoined},
		"shows it, and is not ready": {unready("1.1"), TargetsJoined},
	} {
		member, newcomer := at("1.1"), tc.newcomer
		member.Cluster, newcomer.Cluster = "eu/1", "eu/9"
		n := entry(1, "1.1", 2, capstanv1.PhaseSucceeded)
		n.CarriedOut, n.Clusters = true, []string{"eu/1"}
		q := question(with(n), func(q *Question) { q.Into.Wave, q.Into.Targets = true, []Target{member, newcomer} })
		NewWithT(t).Expect(Decide(q).Reason).To(Equal(tc.reason), name)
	}
}

// question is about staging: dev agreed on 1.1 (its second), staging runs 1.0.
func question(edit ...func(*Question)) Question {
	dev := Environment{Name: "dev", Fleet: fleet(at("1.1")), Agreed: agreed("1.1", 2)}
	q := Question{
		First: dev, Source: dev,
		Into: Environment{Name: "staging", Fleet: fleet(at("1.0")), Agreed: agreed("1.0", 1), Intent: &notify},
	}
	for _, e := range edit {
		e(&q)
	}
	return q
}

func with(entries ...Entry) func(*Question) {
	return func(q *Question) { q.Into.Ledger = NewLedger(entries, 0) }
}

// brought is a promotion that an earlier agreement sent, and that the source has left since.
func brought(revision string) Entry {
	e := entry(1, revision, 1, capstanv1.PhaseSuperseded)
	e.Reason, e.CarriedOut = string(SourceMovedOn), true
	return e
}

// quorumOf is a fleet of which 60 % must run a revision.
func quorumOf(t *testing.T, targets ...Target) Fleet {
	t.Helper()
	p := &pipelinesv1.Pipeline{Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{{Quorum: &pipelinesv1.Quorum{Ready: "60%"}}}}}
	return Fleet{Targets: targets, Quorum: quorum.For(p, 0)}
}

// fromStaging makes the question about prod: staging agreed on a revision, dev on another.
func fromStaging(revision string, entries ...Entry) func(*Question) {
	return func(q *Question) {
		q.Source = Environment{Name: "staging", Fleet: fleet(at(revision)), Agreed: agreed(revision, 7), Ledger: NewLedger(entries, 0)}
		q.Into.Name = "prod"
	}
}

func TestDecide(t *testing.T) {
	const inFlight = capstanv1.PhaseAwaitingRollout
	for name, tc := range map[string]struct {
		q    Question
		want Reason
	}{
		"a new revision":                       {question(), NewRevision},
		"suspended":                            {question(func(q *Question) { q.Suspended = true }), Suspended},
		"no promotion":                         {question(func(q *Question) { q.Into.Intent = nil }), NoPromotion},
		"no targets":                           {question(func(q *Question) { q.Into.Targets = nil }), NoTargets},
		"source mixed":                         {question(func(q *Question) { q.Source.Targets = []Target{at("1.1"), at("1.0")} }), SourceNotAgreed},
		"source unready":                       {question(func(q *Question) { q.Source.Targets = []Target{unready("1.1")} }), SourceNotAgreed},
		"source stale":                         {question(func(q *Question) { q.Source.Targets = []Target{stale("1.1")} }), SourceNotAgreed},
		"source without targets":               {question(func(q *Question) { q.Source.Targets = nil }), SourceNotAgreed},
		"source agreed, not yet recorded":      {question(func(q *Question) { q.Source.Agreed = nil }), SourceNotAgreed},
		"environment stale":                    {question(func(q *Question) { q.Into.Targets = []Target{stale("1.0")} }), EnvironmentNotFresh},
		"environment runs it":                  {question(func(q *Question) { q.Into.Targets = []Target{at("1.1")} }), UpToDate},
		"environment half there":               {question(func(q *Question) { q.Into.Targets = []Target{at("1.1"), at("1.0")} }), NewRevision},
		"environment there, at work":           {question(func(q *Question) { q.Into.Targets = []Target{at("1.1"), working("1.1")} }), EnvironmentAtWork},
		"environment there, one has not begun": {question(func(q *Question) { q.Into.Targets = []Target{working("1.1"), at("1.0")} }), NewRevision},
		"environment at work on another":       {question(func(q *Question) { q.Into.Targets = []Target{working("1.0")} }), NewRevision},
		"environment at work, with nothing":    {question(func(q *Question) { q.Into.Targets = []Target{working("")} }), NewRevision},
		"a quorum there, one is at work":       {question(func(q *Question) { q.Into.Fleet = quorumOf(t, at("1.1"), working("1.1"), at("1.0")) }), EnvironmentAtWork},
		"a quorum there, one is broken":        {question(func(q *Question) { q.Into.Fleet = quorumOf(t, at("1.1"), working("1.1"), unready("1.1")) }), EnvironmentAtWork},
		"less than a quorum there":             {question(func(q *Question) { q.Into.Fleet = quorumOf(t, working("1.1"), unready("1.1"), at("1.0")) }), NewRevision},
		"a quorum there, ready":                {question(func(q *Question) { q.Into.Fleet = quorumOf(t, at("1.1"), at("1.1"), at("1.0")) }), UpToDate},
		"at work, as the last one says":        {question(with(brought("1.1")), func(q *Question) { q.Into.Targets = []Target{working("1.1")} }), EnvironmentAtWork},
		"at work, on what was sent to it":      {question(with(brought("1.2")), func(q *Question) { q.Into.Targets = []Target{working("1.1")} }), NewRevision},
		"environment at work, and decided":     {question(with(entry(1, "1.1", 2, capstanv1.PhaseRejected)), func(q *Question) { q.Into.Targets = []Target{working("1.1")} }), AlreadyDecided},
		"environment there, unready":           {question(func(q *Question) { q.Into.Targets = []Target{unready("1.1")} }), NewRevision},
		"environment runs nothing":             {question(func(q *Question) { q.Into.Targets = []Target{{Fresh: true}} }), NewRevision},
		"in flight":                            {question(with(entry(1, "1.1", 2, inFlight))), AlreadyDecided},
		"created, not begun":                   {question(with(entry(1, "1.1", 2, ""))), AlreadyDecided},
		"succeeded, then rolled back":          {question(with(entry(1, "1.1", 2, capstanv1.PhaseSucceeded))), AlreadyDecided},
		"rejected":                             {question(with(entry(1, "1.1", 2, capstanv1.PhaseRejected))), AlreadyDecided},
		"failed":                               {question(with(entry(1, "1.1", 2, capstanv1.PhaseFailed))), AlreadyDecided},
		"the same revision again (ABA)":        {question(with(entry(1, "1.1", 1, capstanv1.PhaseSucceeded))), NewRevision},
		"an older one in flight":               {question(with(entry(1, "1.0", 1, inFlight))), NewRevision},
		"an older one for it, newer other":     {question(with(entry(1, "1.1", 2, capstanv1.PhaseSuperseded), entry(2, "1.0", 1, inFlight))), NewRevision},
		"same sequence, other source":          {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "qa", Intent: notify, Phase: inFlight})), NewRevision},
		"strategy edited under way":            {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: manual, Phase: capstanv1.PhaseAwaitingApproval})), IntentChanged},
		"strategy edited after failure":        {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: manual, Phase: capstanv1.PhaseFailed})), IntentChanged},
		"strategy edited during the roll-out":  {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: manual, Phase: inFlight, CarriedOut: true})), AlreadyDecided},
		"another application":                  {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: other, Phase: capstanv1.PhaseSucceeded})), NewRevision},
		"other source, same roll-out":          {question(sameRollOut, with(Entry{Number: 1, Revision: "1.1", Sequence: 9, Source: "qa", Intent: notify, Phase: inFlight, CarriedOut: true})), AlreadyDecided},
		"other source, not carried out":        {question(sameRollOut, with(Entry{Number: 1, Revision: "1.1", Sequence: 9, Source: "qa", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(SourceChanged)})), PromotionRestored},
		"other source, rejected there":         {question(sameRollOut, with(Entry{Number: 1, Revision: "1.1", Sequence: 9, Source: "qa", Intent: notify, Phase: capstanv1.PhaseRejected})), AlreadyDecided},
		"removed during the roll-out":          {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(EnvironmentRemoved), CarriedOut: true})), AlreadyDecided},
		"former Pipeline, carried out":         {question(with(Entry{Number: 4, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(PipelineDeleted), CarriedOut: true, Former: true})), AlreadyDecided},
		"former Pipeline, not carried out":     {question(with(Entry{Number: 4, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(PipelineDeleted), Former: true})), PromotionRestored},
		"former Pipeline, failed":              {question(with(Entry{Number: 4, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseFailed, Former: true})), PromotionRestored},
		"former Pipeline, in flight still":     {question(with(Entry{Number: 4, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhasePromoting, Former: true})), AlreadyDecided},
		"strategy edited after rejection":      {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: manual, Phase: capstanv1.PhaseRejected})), AlreadyDecided},
		"failed, a cluster of its wave is not": {question(func(q *Question) { q.WaveChanged = true }, with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseFailed})), PromotionRestored},
		"failed there, and a cluster moved":    {question(func(q *Question) { q.WaveChanged = true }, with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseFailed, Reason: string(Degraded), CarriedOut: true})), AlreadyDecided},
		"promotion taken out, back again":      {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(PromotionRemoved)})), PromotionRestored},
		"environment was changed by hand":      {question(with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(EnvironmentMovedOn)})), AlreadyDecided},
		"it got a later one before":            {question(func(q *Question) { q.Ahead = true }), EnvironmentAhead},
		"in flight, and it got a later one":    {question(func(q *Question) { q.Ahead = true }, with(entry(1, "1.1", 2, inFlight))), AlreadyDecided},
		"staging at dev's revision":            {question(fromStaging("1.1")), NewRevision},
		"fast dev: promoted into staging":      {question(fromStaging("1.05", entry(3, "1.05", 1, capstanv1.PhaseSucceeded))), NewRevision},
		"staging made by hand":                 {question(fromStaging("9.9", entry(3, "1.05", 1, capstanv1.PhaseSucceeded))), SourceMadeByHand},
		"staging rolled back by hand":          {question(fromStaging("1.04", entry(2, "1.04", 1, capstanv1.PhaseSucceeded), entry(3, "1.05", 1, capstanv1.PhaseSucceeded))), SourceMadeByHand},
		"staging brought there, then deleted":  {question(fromStaging("1.05", Entry{Number: 3, Revision: "1.05", Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(PipelineDeleted), CarriedOut: true, Former: true})), NewRevision},
		"verifies":                             {question(with(entry(1, "1.0", 1, capstanv1.PhaseVerifying))), Busy},
		"a former Pipeline verified":           {question(with(Entry{Number: 4, Revision: "1.0", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseVerifying, Former: true})), NewRevision},
		"runs it, not verified yet":            {question(verifies, func(q *Question) { q.Into.Targets = []Target{at("1.1")} }), NotVerified},
		"runs it, rejected":                    {question(verifies, func(q *Question) { q.Into.Targets, q.Rejected = []Target{at("1.1")}, true }), CandidateRejected},
		"runs it, verification interrupted":    {question(verifies, func(q *Question) { q.Into.Targets = []Target{at("1.1")} }, with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseSuperseded, Reason: string(EnvironmentRemoved), CarriedOut: true})), NotVerified},
		"runs it, rolled out":                  {question(verifies, func(q *Question) { q.Into.Targets = []Target{at("1.1")} }, with(entry(1, "1.1", 2, inFlight))), UpToDate},
		"runs it, verified":                    {question(runsIt, with(verifiedAs(1, "1.1", 2))), UpToDate},
		"verified it in another roll-out":      {question(runsIt, with(verifiedAs(1, "1.1", 1))), UpToDate},
		"verified it, another is waiting":      {question(runsIt, with(verifiedAs(1, "1.1", 1), entry(2, "1.0", 1, capstanv1.PhaseAwaitingGates))), UpToDate},
		"verified it, another came since":      {question(runsIt, with(verifiedAs(1, "1.1", 1), failed(2, "1.0", Degraded))), NotVerified},
		"got it before the verification":       {question(runsIt, with(entry(1, "1.1", 2, capstanv1.PhaseSucceeded))), NotVerified},
		"failed in a former Pipeline":          {question(runsIt, with(Entry{Number: 1, Revision: "1.1", Intent: notify, Phase: capstanv1.PhaseFailed, Reason: string(Degraded), Former: true, Source: "dev", Sequence: 2})), NotVerified},
		"edited after it degraded":             {question(func(q *Question) { q.Into.Intent = &manual }, with(Entry{Number: 1, Revision: "1.1", Sequence: 2, Source: "dev", Intent: notify, Phase: capstanv1.PhaseFailed, Reason: string(Degraded)})), AlreadyDecided},
		"another application is verified":      {question(func(q *Question) { i := notify; i.App.Name = "another"; q.Into.Intent = &i }, with(entry(1, "1.0", 1, capstanv1.PhaseVerifying))), NewRevision},
		"runs it, failed":                      {question(verifies, func(q *Question) { q.Into.Targets = []Target{at("1.1")} }, with(failed(1, "1.1", Degraded))), UpToDate},
		"staging verified it":                  {question(fromStaging("1.1", verifiedAs(3, "1.1", 1)), verifiedSource), NewRevision},
		"staging got it before":                {question(fromStaging("1.1", entry(3, "1.1", 1, capstanv1.PhaseSucceeded)), verifiedSource), SourceNotVerified},
		"staging got it again":                 {question(fromStaging("1.1", verifiedAs(1, "1.1", 1), failed(2, "1.2", Degraded), entry(3, "1.1", 2, capstanv1.PhaseAwaitingMerge)), verifiedSource), SourceNotVerified},
		"staging never verified it":            {question(fromStaging("1.1"), verifiedSource), SourceNotVerified},
		"staging is being verified":            {question(fromStaging("1.1", entry(3, "1.1", 1, capstanv1.PhaseVerifying)), verifiedSource), SourceNotVerified},
		"staging failed":                       {question(fromStaging("1.1", failed(3, "1.1", Degraded)), verifiedSource), SourceNotVerified},
		"staging failed after it succeeded":    {question(fromStaging("1.1", verifiedAs(2, "1.1", 1), failed(3, "1.1", Inconclusive)), verifiedSource), SourceNotVerified},
		"staging succeeded, then superseded":   {question(fromStaging("1.1", verifiedAs(2, "1.1", 1), entry(3, "1.1", 2, capstanv1.PhaseSuperseded)), verifiedSource), NewRevision},
		"staging's was carried out, deleted":   {question(fromStaging("1.1", Entry{Number: 3, Revision: "1.1", Phase: capstanv1.PhaseSuperseded, Reason: string(EnvironmentRemoved), CarriedOut: true}), verifiedSource), SourceNotVerified},
		"staging's newest failed, as before":   {question(fromStaging("1.05", entry(3, "1.05", 1, capstanv1.PhaseSucceeded), entry(4, "1.06", 1, capstanv1.PhaseFailed))), NewRevision},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			v := Decide(tc.q)
			g.Expect(v.Reason).To(Equal(tc.want))
			if v.Create {
				g.Expect(v.Revision).To(Equal(tc.q.Source.Agreed.Revision))
				g.Expect(v.Sequence).To(Equal(tc.q.Source.Agreed.Sequence))
			}
		})
	}
}

// Each reason names one row.
func TestDecisionRowsAreDistinct(t *testing.T) {
	g := NewWithT(t)
	seen := map[Reason]bool{}
	for _, row := range decisionTable {
		g.Expect(seen[row.reason]).To(BeFalse(), string(row.reason))
		seen[row.reason] = true
	}
}

func TestObserve(t *testing.T) {
	for name, tc := range map[string]struct {
		targets []Target
		want    soak.Verdict
	}{
		"no targets":              {nil, soak.Unobserved},
		"all run it":              {[]Target{at("1.1"), at("1.1")}, soak.Ready},
		"one runs another":        {[]Target{at("1.1"), at("1.0")}, soak.Unready},
		"one is not ready":        {[]Target{unready("1.1"), at("1.1")}, soak.Unready},
		"one is stale":            {[]Target{at("1.1"), stale("1.1")}, soak.Unobserved},
		"one is stale, one fails": {[]Target{stale("1.1"), unready("1.1")}, soak.Unready},
		"one is worked on":        {[]Target{at("1.1"), working("1.1")}, soak.Progressing},
		"an upgrade begins":       {[]Target{working("1.0")}, soak.Progressing},
		"stale and worked on":     {[]Target{working("1.1"), stale("1.1")}, soak.Unobserved},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(fleet(tc.targets...).Observe("1.1", soak.Unready)).To(Equal(tc.want))
		})
	}
}

func TestRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		last     *pipelinesv1.AgreedRevision
		targets  []Target
		outbound []Entry
		want     *pipelinesv1.AgreedRevision
	}{
		"first":                        {nil, []Target{at("1.0")}, nil, agreed("1.0", 1)},
		"same":                         {agreed("1.0", 3), []Target{at("1.0")}, nil, agreed("1.0", 3)},
		"another":                      {agreed("1.0", 3), []Target{at("1.1"), at("1.1")}, nil, agreed("1.1", 4)},
		"mixed keeps the last":         {agreed("1.0", 3), []Target{at("1.1"), at("1.0")}, nil, agreed("1.0", 3)},
		"stale keeps the last":         {agreed("1.0", 3), []Target{stale("1.1")}, nil, agreed("1.0", 3)},
		"unready keeps the last":       {agreed("1.0", 3), []Target{unready("1.1")}, nil, agreed("1.0", 3)},
		"no targets":                   {nil, nil, nil, nil},
		"status lost, same revision":   {nil, []Target{at("1.1")}, []Entry{entry(1, "1.0", 4, ""), entry(2, "1.1", 5, "")}, agreed("1.1", 5)},
		"status lost, revision passed": {nil, []Target{at("1.2")}, []Entry{entry(1, "1.0", 4, ""), entry(2, "1.1", 5, "")}, agreed("1.2", 6)},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Record(tc.last, fleet(tc.targets...), tc.outbound)).To(Equal(tc.want))
		})
	}
}

func TestLedger(t *testing.T) {
	g := NewWithT(t)
	g.Expect(NewLedger(nil, 0).Next()).To(Equal(int64(1)))
	g.Expect(NewLedger(nil, 7).Next()).To(Equal(int64(8)), "the newest was deleted: its number is not used again")
	l := NewLedger([]Entry{entry(2, "b", 1, ""), entry(9, "d", 1, ""), entry(3, "c", 1, capstanv1.PhaseSucceeded)}, 7)
	g.Expect(l.Next()).To(Equal(int64(10)))
	g.Expect(l.Newest().Number).To(Equal(int64(9)))
	g.Expect(l.LastBrought().Number).To(Equal(int64(3)))
	g.Expect(l.HasEarlier("c", 9)).To(BeTrue())
	g.Expect(l.HasEarlier("d", 9)).To(BeFalse(), "not its own")
}

// A receiver is slow: it carries out the promotion into an environment that was removed, after the
// environment has returned and a newer revision was sent. The older one is not promoted further.
// TestRandomHistoriesOfTheLine found that it was, over a newer one.
func TestLateArrivalInAnEnvironmentThatReturned(t *testing.T) {
	g := NewWithT(t)
	removed := entry(1, "1.3", 1, capstanv1.PhaseSuperseded)
	removed.Reason, removed.CarriedOut = string(EnvironmentRemoved), true
	sent := func(revision string, phase capstanv1.PromotionPhase) Entry {
		e := entry(2, revision, 2, phase)
		e.CarriedOut = phase != capstanv1.PhasePromoting
		return e
	}
	brought := func(entries ...Entry) *Entry { return NewLedger(entries, 0).LastBrought() }
	g.Expect(brought(removed)).To(HaveValue(Equal(removed)), "the newest that was sent")
	g.Expect(brought(removed, sent("1.11", capstanv1.PhasePromoting))).To(HaveValue(Equal(removed)), "the newer one was not sent yet")
	g.Expect(brought(removed, sent("1.11", capstanv1.PhaseAwaitingRollout))).To(BeNil())
	g.Expect(brought(removed, sent("1.11", capstanv1.PhaseFailed))).To(BeNil())
	g.Expect(brought(entry(0, "1.2", 1, capstanv1.PhaseSucceeded), removed, sent("1.11", capstanv1.PhaseFailed))).To(BeNil(), "nor is what it ran before that")
	g.Expect(brought(removed, sent("1.3", capstanv1.PhaseAwaitingRollout))).To(HaveValue(Equal(removed)), "the same revision was sent again")
	arrived := entry(1, "1.3", 1, capstanv1.PhaseSucceeded)
	g.Expect(brought(arrived, sent("1.11", capstanv1.PhaseAwaitingRollout))).To(HaveValue(Equal(arrived)), "it arrived before the newer one was sent")
}

// A promotion was superseded after it was carried out. Its revision goes on if all that came after it
// brought nothing new: the merge of the promotion itself, or of those behind it.
func TestWhatBroughtNothingNewReplacesNothing(t *testing.T) {
	g := NewWithT(t)
	merged := func(reason PhaseReason) Entry {
		e := entry(2, "b", 2, capstanv1.PhaseSuperseded)
		e.Reason, e.CarriedOut = string(reason), true
		return e
	}
	ended := func(n int64, phase capstanv1.PromotionPhase, reason PhaseReason) Entry {
		e := entry(n, "c", n, phase)
		e.Reason = string(reason)
		return e
	}
	before := entry(1, "a", 1, capstanv1.PhaseSucceeded)
	brought := func(entries ...Entry) string {
		if e := NewLedger(append(entries, before), 0).LastBrought(); e != nil {
			return e.Revision
		}
		return ""
	}
	nothing := ended(3, capstanv1.PhaseSuperseded, NothingNew)
	for _, reason := range []PhaseReason{SourceMovedOn, NewerPromotion} {
		g.Expect(brought(merged(reason), nothing)).To(Equal("b"))
		g.Expect(brought(merged(reason), nothing, ended(4, capstanv1.PhaseSuperseded, NothingNew))).To(Equal("b"))
		g.Expect(brought(merged(reason))).To(Equal("a"), "what replaced it has no promotion yet")
		g.Expect(brought(merged(reason), ended(3, capstanv1.PhasePromoting, ""))).To(Equal("a"), "it may bring something")
		between := ended(3, capstanv1.PhaseSuperseded, SourceMovedOn)
		between.Intent.Strategy = pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}}
		last := ended(4, capstanv1.PhaseSuperseded, NothingNew)
		g.Expect(brought(merged(reason), between, last)).To(Equal("b"), "the one between was not merged")
		g.Expect(brought(merged(reason), between)).To(Equal("a"), "it ended, and the state of Git is not known")
		between.CarriedOut = true
		g.Expect(brought(merged(reason), between, last)).To(Equal("c"), "the one between was merged")
		between.CarriedOut, between.Intent = false, notify
		g.Expect(brought(merged(reason), between, last)).To(Equal("a"), "its notification may have been received")
		g.Expect(brought(merged(reason), nothing, ended(4, capstanv1.PhasePromoting, ""))).To(Equal("a"))
		open := merged(reason)
		open.CarriedOut = false
		g.Expect(brought(open, nothing)).To(Equal("a"), "it was not merged")
	}
	g.Expect(brought(merged(EnvironmentMovedOn), nothing)).To(Equal("a"))
}

// The numbers of a re-created Pipeline continue those of the former one, and its own
// promotions are newer than all of those.
func TestLedgerOfFormerPipelines(t *testing.T) {
	g := NewWithT(t)
	when := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	former := func(n int64, uid types.UID, age time.Duration) Entry {
		e := entry(n, "1.0", 1, capstanv1.PhaseSucceeded)
		e.Former, e.Pipeline, e.Created = true, uid, when.Add(-age)
		return e
	}
	l := NewLedger([]Entry{former(8, "oldest", 5*time.Hour), former(2, "old", time.Hour), former(3, "old", time.Hour)}, 0)
	g.Expect(l.Newest().Number).To(Equal(int64(3)), "the newest of the latest former Pipeline")
	g.Expect(l.Next()).To(Equal(int64(9)), "above every number ever used")

	own := entry(1, "1.1", 1, "")
	own.Pipeline = "now"
	l = NewLedger([]Entry{former(8, "oldest", 5*time.Hour), own}, 1)
	g.Expect(l.Newest().Pipeline).To(Equal(types.UID("now")))
	g.Expect(l.Highest()).To(Equal(int64(1)), "a promotion of an earlier version of the hub is not superseded by those of a former Pipeline")
	g.Expect(l.LastBrought().Number).To(Equal(int64(8)))
}

// Of two promotions into an environment, the one with the higher number outranks the other,
// also if the Pipeline was re-created between them.
func TestOutranks(t *testing.T) {
	when := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	made := func(n int64, uid types.UID, at time.Time) Entry {
		e := entry(n, "1.0", 1, "")
		e.Pipeline, e.Created = uid, at
		return e
	}
	for name, tc := range map[string]struct {
		ledger Ledger
		of     Entry
		want   bool
	}{
		"alone":                       {NewLedger([]Entry{made(1, "a", when)}, 1), made(1, "a", when), false},
		"a higher number":             {NewLedger([]Entry{made(2, "a", when)}, 0), made(1, "a", when), true},
		"a higher number was deleted": {NewLedger(nil, 2), made(1, "a", when), true},
		"a lower number":              {NewLedger([]Entry{made(1, "a", when)}, 0), made(2, "a", when), false},
		"the Pipeline was re-created, the numbers continued":           {NewLedger([]Entry{made(2, "b", when)}, 0), made(1, "a", when), true},
		"the Pipeline was re-created, the numbers began again: former": {NewLedger([]Entry{made(1, "b", when.Add(time.Minute))}, 0), made(5, "a", when), false},
		"the Pipeline was re-created, the numbers began again: own":    {NewLedger([]Entry{made(5, "a", when)}, 0), made(1, "b", when.Add(time.Minute)), false},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(tc.ledger.Outranks(tc.of)).To(Equal(tc.want)) })
	}
}

func TestBusyUntil(t *testing.T) {
	g := NewWithT(t)
	when := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	acting, own := entry(1, "1.0", 1, capstanv1.PhaseSuperseded), entry(2, "1.1", 2, capstanv1.PhasePromoting)
	acting.BusyUntil, own.BusyUntil = when, when.Add(time.Hour)
	g.Expect(NewLedger([]Entry{acting, own}, 0).BusyUntil(own)).To(Equal(when), "its own attempt does not count")
	g.Expect(NewLedger([]Entry{own}, 0).BusyUntil(own)).To(BeZero())
}
