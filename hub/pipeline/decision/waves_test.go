package decision

import (
	"testing"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// A cluster moved if it is in another wave. If the promotion failed, it is enough that it left. One that the wave has, and that the
// status does not show yet, has not moved: the status may stand for an earlier selection.
func TestMoved(t *testing.T) {
	t.Parallel()
	target := func(name string) pipelinesv1.Target {
		return pipelinesv1.Target{Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: name}}
	}
	shown := func(names ...string) *pipelinesv1.EnvironmentStatus {
		status := &pipelinesv1.EnvironmentStatus{Fleet: &pipelinesv1.FleetStatus{}}
		for _, name := range names {
			one := target(name)
			status.Targets = append(status.Targets, pipelinesv1.TargetStatus{ClusterAppRef: pipelinesv1.ClusterAppReference{ClusterRef: one.ClusterRef}})
		}
		return status
	}
	p := &pipelinesv1.Pipeline{
		Spec: pipelinesv1.PipelineSpec{Environments: []pipelinesv1.Environment{
			{Name: "prod/early", Stage: &pipelinesv1.Stage{Environment: "prod", Wave: "early"}, Targets: []pipelinesv1.Target{target("a"), target("new")}},
			{Name: "prod/rest", Stage: &pipelinesv1.Stage{Environment: "prod", Wave: "rest"}},
		}},
		Status: pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{"prod/early": shown("a", "b"), "prod/rest": shown("c")}},
	}
	p.Namespace = "fleet"
	for cluster, moved := range map[string][2]bool{
		"a": {}, "b": {}, "new": {}, "c": {true, true}, "gone": {false, true},
	} {
		name := "fleet/" + cluster
		for failed, is := range map[bool]bool{false: moved[0], true: moved[1]} {
			want := ""
			if is {
				want = name
			}
			NewWithT(t).Expect(Moved(p, "prod/early", []string{"fleet/a", name}, failed)).To(Equal(want), "%s, failed: %t", cluster, failed)
		}
	}
}

// The clusters of the canary left. They count as a failure if the last roll-out of the revision was interrupted, unless one before it
// showed that the revision works, and the canary got no other one since.
func TestTakenOutOfAWaveThatHasNoClusters(t *testing.T) {
	t.Parallel()
	works := verifiedAs(1, "1.1", 2)
	interrupted := func(n int64, revision string) Entry {
		e := entry(n, revision, 2, capstanv1.PhaseSuperseded)
		e.Reason, e.CarriedOut, e.Clusters = string(EnvironmentRemoved), true, []string{"eu/1"}
		return e
	}
	retried := interrupted(2, "1.1")
	retried.Retried = true
	for name, tc := range map[string]struct {
		entries []Entry
		number  int64
	}{
		"never ran there":                          {[]Entry{interrupted(1, "1.1")}, 1},
		"was verified":                             {[]Entry{works}, 0},
		"was verified, then again":                 {[]Entry{works, interrupted(2, "1.1")}, 0},
		"was replaced, then again":                 {[]Entry{interrupted(1, "1.1"), interrupted(2, "1.1")}, 2},
		"was verified, and another followed":       {[]Entry{works, verifiedAs(2, "1.2", 3), interrupted(3, "1.1")}, 3},
		"was verified, another did not follow":     {[]Entry{works, entry(2, "1.2", 3, capstanv1.PhaseRejected), interrupted(3, "1.1")}, 0},
		"was verified, failed by hand, then again": {[]Entry{works, failedByHand(2, "1.1"), interrupted(3, "1.1")}, 3},
		"was verified, a retry was interrupted":    {[]Entry{works, retried}, 2},
		"was verified, a retry, then again":        {[]Entry{works, retried, interrupted(3, "1.1")}, 3},
		"failed, then again":                       {[]Entry{failed(1, "1.1", VerificationFailed), interrupted(2, "1.1")}, 2},
	} {
		var number int64
		if e := NewLedger(tc.entries, 0).takenOut(notify.App, "1.1", false, func([]string) bool { return true }); e != nil {
			number = e.Number
		}
		NewWithT(t).Expect(number).To(Equal(tc.number), name)
	}
}

// failedByHand is a promotion of a revision that was put there by hand, and failed its verification.
func failedByHand(n int64, revision string) Entry {
	e := failed(n, revision, VerificationFailed)
	e.CarriedOut = false
	return e
}

// A later wave gets what its first wave got with an approval. A cluster that joined that one later needed none.
func TestTheApprovalIsForAllWaves(t *testing.T) {
	t.Parallel()
	arrived := func(n int64, revision string, approved bool) Entry {
		e := entry(n, revision, 2, capstanv1.PhaseSucceeded)
		e.Intent, e.Approved = manual, approved
		return e
	}
	replaced := arrived(2, "1.1", true)
	replaced.Phase, replaced.Reason, replaced.CarriedOut = capstanv1.PhaseSuperseded, string(NewerPromotion), true
	sent := entry(2, "1.2", 3, capstanv1.PhaseSuperseded)
	sent.Reason, sent.CarriedOut = string(SourceMovedOn), true
	ofAnother := arrived(1, "1.1", true)
	ofAnother.Intent.App = other.App
	for name, tc := range map[string]struct {
		entries []Entry
		passed  bool
	}{
		"none":                            {nil, false},
		"approved":                        {[]Entry{arrived(1, "1.1", true)}, true},
		"not approved":                    {[]Entry{arrived(1, "1.1", false)}, false},
		"approved, then there already":    {[]Entry{arrived(1, "1.1", true), arrived(2, "1.1", false)}, true},
		"another one between them":        {[]Entry{arrived(1, "1.1", true), arrived(2, "1.0", true), arrived(3, "1.1", false)}, false},
		"another one approved":            {[]Entry{arrived(1, "1.0", true), arrived(2, "1.1", false)}, false},
		"nothing but another application": {[]Entry{ofAnother}, false},
		"another one was sent, and left":  {[]Entry{arrived(1, "1.1", true), sent}, true},
		"another one failed by hand":      {[]Entry{arrived(1, "1.1", true), failedByHand(2, "1.2"), arrived(3, "1.1", false)}, false},
		"another application approved":    {[]Entry{ofAnother, arrived(2, "1.1", false)}, false},
		"another one since":               {[]Entry{arrived(1, "1.1", true), arrived(2, "1.0", true)}, false},
		"approved, sent, and replaced":    {[]Entry{arrived(1, "1.0", true), replaced, arrived(3, "1.1", false)}, true},
		"the one between was not sent":    {[]Entry{arrived(1, "1.1", true), entry(2, "1.0", 3, capstanv1.PhaseRejected), arrived(3, "1.1", false)}, true},
	} {
		NewWithT(t).Expect(NewLedger(tc.entries, 0).hasPermitted(notify.App, "1.1")).To(Equal(tc.passed), name)
	}
}

// The approval of a run that failed is in force when a retry finds its revision there.
func TestTheApprovalOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	p := &capstanv1.Promotion{}
	p.Spec.Manual = true
	g.Expect(EntryOf(p).Permitted()).To(BeFalse())
	p.Status.OtherApprovals = []capstanv1.ApprovalRecord{{By: "anna", NoEffect: capstanv1.ApprovalTooLateReason}}
	g.Expect(EntryOf(p).Permitted()).To(BeFalse(), "it came too late")
	p.Status.OtherApprovals = append(p.Status.OtherApprovals, capstanv1.ApprovalRecord{By: "anna"})
	g.Expect(EntryOf(p).Permitted()).To(BeTrue())
}
