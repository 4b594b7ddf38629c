package decision

import (
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/verify"
)

func TestNext(t *testing.T) {
	const (
		gated     = capstanv1.PhaseAwaitingGates
		waiting   = capstanv1.PhaseAwaitingApproval
		acting    = capstanv1.PhasePromoting
		merge     = capstanv1.PhaseAwaitingMerge
		rollout   = capstanv1.PhaseAwaitingRollout
		verifying = capstanv1.PhaseVerifying
		done      = capstanv1.PhaseSucceeded
		failed    = capstanv1.PhaseFailed
		closed    = capstanv1.PhaseRejected
		over      = capstanv1.PhaseSuperseded
	)
	for name, tc := range map[string]struct {
		from   capstanv1.PromotionPhase
		facts  Facts
		to     capstanv1.PromotionPhase
		reason PhaseReason
	}{
		"new, automatic":                     {created, Facts{}, acting, Automatic},
		"new, manual":                        {created, Facts{Manual: true}, waiting, ApprovalRequired},
		"new, manual, approved already":      {created, Facts{Manual: true, Approved: true}, acting, Approved},
		"waiting stays":                      {waiting, Facts{Manual: true}, waiting, ""},
		"approved":                           {waiting, Facts{Manual: true, Approved: true}, acting, Approved},
		"approved while superseded":          {waiting, Facts{Manual: true, Approved: true, Newer: true}, over, NewerPromotion},
		"approved when the source moved on":  {waiting, Facts{Manual: true, Approved: true, SourceMovedOn: true}, over, SourceMovedOn},
		"approve a superseded one":           {over, Facts{Manual: true, Approved: true}, over, ""},
		"new, a gate is closed":              {created, Facts{GateClosed: true}, gated, GateClosed},
		"new, manual, a gate is closed":      {created, Facts{GateClosed: true, Manual: true}, gated, GateClosed},
		"a gate closes before the approval":  {waiting, Facts{GateClosed: true, Manual: true}, gated, GateClosed},
		"a gate closes before the act":       {acting, Facts{GateClosed: true}, gated, GateClosed},
		"a gate closes between attempts":     {acting, Facts{GateClosed: true, Begun: true, Tried: true}, acting, ""},
		"a gate closes, open":                {merge, Facts{GateClosed: true, Begun: true, Tried: true}, merge, ""},
		"a gate closes after the act":        {rollout, Facts{GateClosed: true, Begun: true, Tried: true}, rollout, ""},
		"gated stays":                        {gated, Facts{GateClosed: true}, gated, ""},
		"gated, manual and approved, stays":  {gated, Facts{GateClosed: true, Manual: true, Approved: true}, gated, ""},
		"gates open, automatic":              {gated, Facts{}, acting, Automatic},
		"gates open, manual":                 {gated, Facts{Manual: true}, waiting, ApprovalRequired},
		"G54: gates open, approved before":   {gated, Facts{Manual: true, Approved: true}, acting, Approved},
		"gated, the source moved on":         {gated, Facts{GateClosed: true, SourceMovedOn: true}, over, SourceMovedOn},
		"gated, runs it":                     {gated, Facts{GateClosed: true, Runs: true}, done, AlreadyThere},
		"gated, newer":                       {gated, Facts{GateClosed: true, Newer: true}, over, NewerPromotion},
		"secret changed, a gate is closed":   {created, Facts{GateClosed: true, Begun: true}, acting, Automatic},
		"G21: merged while a gate is closed": {merge, Facts{GateClosed: true, Begun: true, Tried: true, Outcome: OutcomeMerged}, rollout, MergedWhileClosed},
		"already there":                      {created, Facts{Runs: true}, done, AlreadyThere},
		"there while waiting":                {waiting, Facts{Manual: true, Runs: true}, done, AlreadyThere},
		"acting stays":                       {acting, Facts{Tried: true}, acting, ""},
		"acted":                              {acting, Facts{Tried: true, Outcome: OutcomeDone}, rollout, CarriedOut},
		"opened":                             {acting, Facts{Tried: true, Outcome: OutcomeOpen}, merge, PullRequestOpened},
		"merged at once":                     {acting, Facts{Tried: true, Outcome: OutcomeMerged}, rollout, PullRequestMerged},
		"merged":                             {merge, Facts{Tried: true, Outcome: OutcomeMerged}, rollout, PullRequestMerged},
		"closed":                             {merge, Facts{Tried: true, Outcome: OutcomeClosed}, closed, PullRequestClosed},
		"impossible":                         {acting, Facts{Tried: true, Outcome: OutcomeImpossible}, failed, Impossible},
		"rolled out":                         {rollout, Facts{Tried: true, Runs: true}, done, RolledOut},
		"rolled out before the outcome":      {acting, Facts{Tried: true, Runs: true}, done, RolledOut},
		"runs, but is not the newest":        {rollout, Facts{Tried: true, Runs: true, Newer: true}, over, NewerPromotion},
		"source moved on":                    {rollout, Facts{Tried: true, SourceMovedOn: true}, over, SourceMovedOn},
		"environment moved on":               {rollout, Facts{Tried: true, EnvironmentMovedOn: true}, over, EnvironmentMovedOn},
		"pipeline deleted":                   {rollout, Facts{Tried: true, PipelineDeleted: true}, over, PipelineDeleted},
		"environment removed":                {rollout, Facts{Tried: true, EnvironmentRemoved: true}, over, EnvironmentRemoved},
		"promotion removed":                  {acting, Facts{PromotionRemoved: true}, over, PromotionRemoved},
		"source changed while waiting":       {waiting, Facts{Manual: true, SourceChanged: true}, over, SourceChanged},
		"approved when the source changed":   {waiting, Facts{Manual: true, Approved: true, SourceChanged: true}, over, SourceChanged},
		"source changed, open":               {merge, Facts{Tried: true, SourceChanged: true}, over, SourceChanged},
		"it failed in the source, open":      {merge, Facts{Tried: true, SourceFailed: true}, over, SourceFailed},
		"it failed in the source, too late":  {rollout, Facts{Tried: true, SourceFailed: true}, rollout, ""},
		"it failed in the source, sent":      {acting, Facts{Tried: true, SourceFailed: true, MaybeSent: true}, acting, ""},
		"its request was deleted":            {merge, Facts{Tried: true, RequestDeleted: true}, over, RequestDeleted},
		"its request was deleted, too late":  {rollout, Facts{Tried: true, RequestDeleted: true}, rollout, ""},
		"its request was deleted, sent":      {acting, Facts{Tried: true, RequestDeleted: true, MaybeSent: true}, acting, ""},
		"source changed after the act":       {rollout, Facts{Tried: true, SourceChanged: true}, rollout, ""},
		"source changed, outcome unknown":    {acting, Facts{Tried: true, SourceChanged: true, MaybeSent: true}, acting, ""},
		"deleted, outcome unknown":           {acting, Facts{Tried: true, PipelineDeleted: true, MaybeSent: true}, acting, ""},
		"removed, outcome unknown":           {acting, Facts{Tried: true, EnvironmentRemoved: true, MaybeSent: true}, acting, ""},
		"newer, outcome unknown":             {acting, Facts{Tried: true, Newer: true, MaybeSent: true}, over, NewerPromotion},
		"promotion removed after the act":    {rollout, Facts{Tried: true, PromotionRemoved: true}, rollout, ""},
		"retry of a rejected one":            {closed, Facts{Retry: true}, created, Retried},
		"retry of a succeeded one":           {done, Facts{Retry: true}, created, Retried},
		"retry of one that is not newest":    {failed, Facts{Retry: true, Newer: true}, failed, ""},
		"secret changed":                     {failed, Facts{Tried: true, SecretChanged: true}, created, SecretChanged},
		"secret changed, not the newest":     {failed, Facts{Tried: true, SecretChanged: true, Newer: true}, failed, ""},
		"secret changed of a rejected one":   {closed, Facts{Tried: true, SecretChanged: true}, closed, ""},
		"failed, runs it":                    {failed, Facts{Tried: true, Runs: true}, done, RolledOut},
		"failed, runs it, not the newest":    {failed, Facts{Tried: true, Runs: true, Newer: true}, failed, ""},
		"failed, its Pipeline was deleted":   {failed, Facts{Tried: true, Runs: true, PipelineDeleted: true}, failed, ""},
		"failed, tried again: opened":        {failed, Facts{Tried: true, Outcome: OutcomeOpen}, merge, PullRequestOpened},
		"failed, tried again: carried out":   {failed, Facts{Tried: true, Outcome: OutcomeDone}, rollout, CarriedOut},
		"failed, tried again: impossible":    {failed, Facts{Tried: true, Outcome: OutcomeImpossible}, failed, ""},
		"failed, merged by a person":         {failed, Facts{Tried: true, Outcome: OutcomeMerged}, rollout, PullRequestMerged},
		"failed, closed by a person":         {failed, Facts{Tried: true, Outcome: OutcomeClosed}, closed, PullRequestClosed},
		"failed stays":                       {failed, Facts{Tried: true, SourceMovedOn: true}, failed, ""},
		"rejected, runs it":                  {closed, Facts{Tried: true, Runs: true}, closed, ""},
		"rolled out, to be verified":         {rollout, Facts{Tried: true, Runs: true, Verification: true}, verifying, RolledOut},
		"there already, to be verified":      {created, Facts{Runs: true, Verification: true, Manual: true, GateClosed: true}, verifying, RolledOut},
		"verifying, the source moved on":     {verifying, Facts{Runs: true, Verification: true, SourceMovedOn: true, EnvironmentMovedOn: true}, verifying, ""},
		"verifying, newer":                   {verifying, Facts{Runs: true, Verification: true, Newer: true}, over, NewerPromotion},
		"verifying, the Pipeline is deleted": {verifying, Facts{PipelineDeleted: true}, over, PipelineDeleted},
		"verifying, the environment is gone": {verifying, Facts{EnvironmentRemoved: true}, over, EnvironmentRemoved},
		"verified":                           {verifying, Facts{Runs: true, Verification: true, Verdict: verify.Verified}, done, Verified},
		"degraded":                           {verifying, Facts{Verification: true, Verdict: verify.Degraded}, failed, Degraded},
		"inconclusive":                       {verifying, Facts{Runs: true, Verification: true, Verdict: verify.Inconclusive}, failed, Inconclusive},
		"the verification was removed":       {verifying, Facts{Runs: true}, done, RolledOut},
		"late":                               {rollout, Facts{Tried: true, Verification: true, Verdict: verify.Late}, failed, RolloutDeadline},
		"late, but there":                    {rollout, Facts{Tried: true, Runs: true, Verification: true, Verdict: verify.Late}, verifying, RolledOut},
		"late, arrives later":                {failed, Facts{Tried: true, Runs: true, Verification: true}, verifying, RolledOut},
		"degraded, recovers":                 {failed, Facts{Tried: true, Runs: true, Verification: true, Judged: true}, failed, ""},
		"degraded, not verified any more":    {failed, Facts{Tried: true, Runs: true, Judged: true}, done, RolledOut},
		"degraded, retried":                  {failed, Facts{Tried: true, Runs: true, Verification: true, Judged: true, Retry: true}, created, Retried},
		"retry under way waits":              {rollout, Facts{Tried: true, Retry: true}, rollout, ""},
		"rejected by a user, new":            {created, Facts{RunRejected: true, Manual: true}, closed, RejectedByUser},
		"rejected by a user, at its gates":   {gated, Facts{RunRejected: true, GateClosed: true}, closed, RejectedByUser},
		"rejected by a user, automatic":      {gated, Facts{RunRejected: true}, closed, RejectedByUser},
		"rejected by a user, unapproved":     {waiting, Facts{RunRejected: true, Manual: true}, closed, RejectedByUser},
		"rejected by a user, and replaced":   {waiting, Facts{RunRejected: true, Manual: true, Newer: true}, over, NewerPromotion},
		"rejected by a user too late":        {acting, Facts{RunRejected: true, Tried: true, Begun: true}, acting, ""},
		"rejected by a user, then retried":   {closed, Facts{RunRejected: true, Retry: true}, created, Retried},
		"finished stays, with any facts":     {done, Facts{SourceMovedOn: true, EnvironmentMovedOn: true, Newer: true, PipelineDeleted: true}, done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			to, reason, moved := Next(tc.from, tc.facts)
			g.Expect(to).To(Equal(tc.to))
			g.Expect(reason).To(Equal(tc.reason))
			g.Expect(moved).To(Equal(tc.reason != ""))
		})
	}
}

// TestLifecycleTerminates: no facts lead a promotion through the same phases again and
// again.
func TestLifecycleTerminates(t *testing.T) {
	g := NewWithT(t)
	outcomes := []Outcome{OutcomeNone, OutcomeDone, OutcomeOpen, OutcomeMerged, OutcomeClosed, OutcomeImpossible}
	for bits := range 1 << 17 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		for _, outcome := range outcomes {
			f := Facts{PipelineDeleted: bit(0), EnvironmentRemoved: bit(1), PromotionRemoved: bit(2), Newer: bit(3), Runs: bit(4),
				SourceMovedOn: bit(5), EnvironmentMovedOn: bit(6), Manual: bit(7), Approved: bit(8), Tried: bit(9),
				SourceChanged: bit(10), MaybeSent: bit(11), GateClosed: bit(12), Begun: bit(13),
				Verification: bit(14), SourceFailed: bit(15), RunRejected: bit(16), Outcome: outcome}
			for _, from := range []capstanv1.PromotionPhase{created, capstanv1.PhaseFailed} {
				phase, steps := from, 0
				for moved := true; moved; steps++ {
					phase, _, moved = Next(phase, f)
					g.Expect(steps).To(BeNumerically("<", 6), "%+v", f)
				}
			}
		}
	}
}
