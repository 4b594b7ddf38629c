package explain

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
)

// update writes the golden files: go test ./hub/explain -update
var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

// shop is a Pipeline of dev, staging and prod (of two clusters), all at 1.0.0.
func shop() *Facts {
	p := &pipelinesv1.Pipeline{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop", UID: "uid", Generation: 1},
		Spec: pipelinesv1.PipelineSpec{
			AppRef:    pipelinesv1.LocalAppReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Name: "web"},
			Promotion: &pipelinesv1.Promotion{Strategy: pipelinesv1.Strategy{Notification: &pipelinesv1.NotificationPromotion{}}},
		},
		Status: pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets, ObservedGeneration: 1, Environments: map[string]*pipelinesv1.EnvironmentStatus{}},
	}
	for env, clusters := range map[string][]string{"dev": {"dev"}, "staging": {"staging"}, "prod": {"eu", "us"}} {
		status := &pipelinesv1.EnvironmentStatus{Agreed: &pipelinesv1.AgreedRevision{Revision: "1.0.0", Sequence: 1}}
		for range clusters {
			status.Targets = append(status.Targets, pipelinesv1.TargetStatus{Ready: true, Revision: "1.0.0"})
		}
		p.Status.Environments[env] = status
	}
	for _, e := range []struct {
		name     string
		clusters []string
	}{{"dev", []string{"dev"}}, {"staging", []string{"staging"}}, {"prod", []string{"eu", "us"}}} {
		env := pipelinesv1.Environment{Name: e.name}
		for _, cluster := range e.clusters {
			env.Targets = append(env.Targets, pipelinesv1.Target{Namespace: "shop", ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: cluster}})
		}
		p.Spec.Environments = append(p.Spec.Environments, env)
	}
	return &Facts{Pipeline: p, Now: now}
}

// at makes an environment run a revision.
func (f *Facts) at(env, revision string, sequence int64) {
	status := f.Pipeline.Status.Environments[env]
	status.Agreed = &pipelinesv1.AgreedRevision{Revision: revision, Sequence: sequence}
	for j := range status.Targets {
		status.Targets[j].Revision = revision
	}
}

func (f *Facts) target(env string, j int) *pipelinesv1.TargetStatus {
	return &f.Pipeline.Status.Environments[env].Targets[j]
}

// promoting adds a promotion of 1.1.0 into staging.
func (f *Facts) promoting(status capstanv1.PromotionStatus) *capstanv1.Promotion {
	f.at("dev", "1.1.0", 2)
	status.StartTime = before(5 * time.Minute)
	if status.Phase.Finished() {
		status.FinishTime = before(2 * time.Minute)
	}
	promotion := f.Pipeline.PromotionFor(&f.Pipeline.Spec.Environments[1])
	f.Promotions = append(f.Promotions, capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "shop-staging-9d1f3a77-1", CreationTimestamp: *before(5 * time.Minute)},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "shop", UID: "uid"}, App: f.Pipeline.Spec.AppRef, Environment: "staging", Number: 1, Revision: "1.1.0",
			Source: capstanv1.PromotionSource{Environment: "dev", Sequence: 2}, Strategy: promotion.Strategy, Manual: promotion.Manual,
		},
		Status: status,
	})
	return &f.Promotions[len(f.Promotions)-1]
}

// outOfTurn adds a promotion of a revision into staging that is a rollback, by request, or both.
func (f *Facts) outOfTurn(number int64, revision string, edit func(*capstanv1.PromotionSpec), status capstanv1.PromotionStatus) *capstanv1.Promotion {
	p := f.promoting(status)
	p.Name, p.Spec.Number, p.Spec.Revision, p.Spec.Source.Sequence = fmt.Sprintf("shop-staging-9d1f3a77-%d", number), number, revision, 0
	p.Spec.Hold = &capstanv1.Hold{UntilSequence: 2}
	edit(&p.Spec)
	return p
}

// failing makes 1.1.0 fail in staging, where 1.0.0 had succeeded. spec.rollback has the mode.
func (f *Facts) failing(mode pipelinesv1.RollbackMode) {
	f.Pipeline.Spec.Rollback = &pipelinesv1.Rollback{Mode: mode}
	f.Pipeline.Spec.Environments[1].Verification = &pipelinesv1.Verification{For: "30m"}
	good := f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(4 * time.Minute)})
	good.Spec.Revision, good.Spec.Source.Sequence = "1.0.0", 1
	bad := f.promoting(capstanv1.PromotionStatus{
		Phase: capstanv1.PhaseFailed, Reason: "VerificationFailed", CarriedOutTime: before(3 * time.Minute), Message: `check "errors" of environment "staging" failed with 1.1.0: "value < 1" is false, with the value 7`,
	})
	bad.Name, bad.Spec.Number = "shop-staging-9d1f3a77-2", 2
	f.at("staging", "1.1.0", 2)
}

// waves makes prod a fleet in waves, in which 1.1.0 has arrived in the canary, and is promoted into the first batch.
func (f *Facts) waves() {
	f.at("dev", "1.1.0", 2)
	f.at("staging", "1.1.0", 2)
	env := &f.Pipeline.Spec.Environments[2]
	env.Targets = []pipelinesv1.Target{{Namespace: "shop", Clusters: &pipelinesv1.ClusterSelector{}}}
	env.Waves = []pipelinesv1.Wave{{Name: "canary", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "0"}}, Soak: &pipelinesv1.Soak{For: "1h"}}, {Name: "rest", Batches: 3}}
	for i, stage := range []string{"canary", "rest-1", "rest-2", "rest-3"} {
		revision := "1.0.0"
		if stage == "canary" {
			revision = "1.1.0"
		}
		status := &pipelinesv1.EnvironmentStatus{
			Agreed: &pipelinesv1.AgreedRevision{Revision: revision, Sequence: 2},
			Fleet:  &pipelinesv1.FleetStatus{Targets: 1, Revision: revision, Ready: 1, Required: 1},
			Targets: []pipelinesv1.TargetStatus{{
				ClusterAppRef: pipelinesv1.ClusterAppReference{ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: fmt.Sprintf("eu-%d", i)}},
				Namespace:     "shop", Ready: true, Revision: revision,
			}},
		}
		f.Pipeline.Status.Environments[pipelinesv1.StageName("prod", stage)] = status
	}
	f.Pipeline.Status.Environments["prod"] = &pipelinesv1.EnvironmentStatus{Fleet: &pipelinesv1.FleetStatus{Targets: 4, Ready: 1, Required: 4, Revision: "1.1.0", Message: "1.1.0: canary; 1.0.0: rest-1, rest-2, rest-3"}}
	add := func(stage, source string, number int64, status capstanv1.PromotionStatus) {
		p := f.promoting(status)
		p.Name, p.Spec.Environment, p.Spec.Source.Environment, p.Spec.Number = "shop-prod-"+stage+"-1", pipelinesv1.StageName("prod", stage), source, number
		p.Spec.Wave = &capstanv1.PromotionWave{Environment: "prod", Name: stage}
	}
	add("canary", "staging", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(4 * time.Minute)})
	add("rest-1", "prod/canary", 1, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates, Gates: []capstanv1.GateStatus{{
		Name: "soak", Type: capstanv1.SoakGate, State: capstanv1.GateClosed, Message: "healthy for 20m of 1h",
	}}})
}

// fleet makes an environment one with a quorum of six tenths, of which one may be lost: with these targets, and the message that the hub
// writes.
func (f *Facts) fleet(env, message string, targets ...pipelinesv1.TargetStatus) {
	i := f.Pipeline.Find(env)
	f.Pipeline.Spec.Environments[i].Quorum = &pipelinesv1.Quorum{Ready: "60%", Lost: &pipelinesv1.LostTargets{Max: intstr.FromInt32(1)}}
	status := f.Pipeline.Status.Environments[env]
	status.Targets, status.Fleet = targets, &pipelinesv1.FleetStatus{Targets: int32(len(targets)), Message: message}
	for j := range targets {
		targets[j].Namespace = "shop"
		targets[j].ClusterAppRef.ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: fmt.Sprintf("eu-%d", j)}
	}
	fleet := quorum.FleetOf(f.Pipeline, i)
	runs, n := fleet.Most()
	status.Fleet.Revision, status.Fleet.Ready, status.Fleet.Required = runs, int32(n), int32(fleet.Required())
}

// running is a number of targets that run a revision, ready.
func running(n int, revision string) []pipelinesv1.TargetStatus {
	return slices.Repeat([]pipelinesv1.TargetStatus{{Ready: true, Revision: revision}}, n)
}

// left is a number of targets with a standing, in which 1.0.0 was observed.
func left(n int, standing pipelinesv1.TargetStanding) []pipelinesv1.TargetStatus {
	return slices.Repeat([]pipelinesv1.TargetStatus{{Revision: "1.0.0", Standing: standing, StandingTime: before(time.Hour), Stale: standing == pipelinesv1.TargetLost}}, n)
}

func byAnn(s *capstanv1.PromotionSpec) {
	s.Request = &capstanv1.RequestReference{Name: "back", UID: "r", By: "ann", Reason: "incident 4711"}
}

func ofTwo(s *capstanv1.PromotionSpec) {
	s.RollbackOf = &capstanv1.RollbackReference{Name: "shop-staging-9d1f3a77-2", Number: 2}
}

func ofTwoByAnn(s *capstanv1.PromotionSpec) { byAnn(s); ofTwo(s) }

func (f *Facts) connection1(name string, status capstanv1.ClusterConnectionStatus) {
	f.Connections = append(f.Connections, capstanv1.ClusterConnection{
		Spec:   capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: "fleet", Name: name}},
		Status: status,
	})
}

func (f *Facts) invalidSpec(message string) {
	f.Pipeline.Status.Conditions = []metav1.Condition{
		{Type: pipelinesv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: pipelinesv1.InvalidSpecReason, Message: message},
		{Type: pipelinesv1.StalledCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.InvalidSpecReason, Message: message},
	}
}

// Each state of a Pipeline is explained as its golden file has it.
func TestExplanations(t *testing.T) {
	for name, edit := range map[string]func(*Facts){
		"nothing-to-promote": func(*Facts) {},
		"not-observed-yet": func(f *Facts) {
			f.Pipeline.Status = pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets, ObservedGeneration: -1}
		},
		"edit-not-seen":        func(f *Facts) { f.Pipeline.Generation = 4 },
		"about-to-be-promoted": func(f *Facts) { f.at("dev", "1.1.0", 2) },
		"created":              func(f *Facts) { f.promoting(capstanv1.PromotionStatus{}) },
		"waiting-for-approval": func(f *Facts) {
			f.Pipeline.Spec.Promotion.Manual = true
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
		},
		"waiting-for-approval-of-a-retry": func(f *Facts) {
			f.Pipeline.Spec.Promotion.Manual = true
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval, Retry: 2})
		},
		"waiting-for-approval-signed": func(f *Facts) {
			f.Pipeline.Spec.Promotion.Manual = true
			f.Pipeline.Spec.Promotion.Strategy.SecretRef = &pipelinesv1.LocalObjectReference{Name: "hmac"}
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
		},
		"being-retried": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Reason: "Retrying", Message: "attempt 3 failed, the next follows in 20s: the receiver answered 503"})
		},
		"awaiting-merge": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingMerge, URL: "https://git.example.org/fleet/manifests/pulls/17"})
		},
		"rollout": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
		},
		"verifying": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseVerifying, Message: `every target of environment "staging" runs 1.1.0, and must be ready for 30m in all`})
		},
		"rollout-stalled": func(f *Facts) {
			p := f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			p.Status.Conditions = []metav1.Condition{{Type: capstanv1.StalledCondition, Status: metav1.ConditionTrue}}
			*f.target("staging", 0) = pipelinesv1.TargetStatus{Revision: "1.1.0"}
		},
		"rollout-fails": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			*f.target("staging", 0) = pipelinesv1.TargetStatus{
				Revision: "1.0.0", Reason: "UpgradeFailed", Message: "Helm upgrade failed for release shop/web with chart web@1.1.0: context deadline exceeded.",
			}
		},
		"rollout-not-reported": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			*f.target("staging", 0) = pipelinesv1.TargetStatus{Message: "has not reported Ready yet"}
		},
		"no-promotion-and-credentials-refused": func(f *Facts) {
			f.Pipeline.Spec.Promotion = nil
			*f.target("staging", 0) = pipelinesv1.TargetStatus{Revision: "1.0.0", Stale: true, Reason: "AuthFailed", Error: "Cluster/fleet/staging: the API server answered 401: renew the token"}
		},
		"rollout-unreachable": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			f.target("staging", 0).Stale = true
			f.connection1("staging", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionUnreachable, Reason: "ProbeFailed", Message: "dial tcp 10.0.0.7:6443: i/o timeout.", LastTransitionTime: before(42 * time.Minute)})
		},
		"stale-source": func(f *Facts) {
			f.target("dev", 0).Stale, f.target("dev", 0).Ready = true, false
			f.connection1("dev", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionAuthFailed, Reason: "Rejected", Message: "the API server answered 401: renew the token in Secret fleet/dev-kubeconfig", LastTransitionTime: before(3 * time.Hour)})
		},
		"stale-environment": func(f *Facts) {
			f.at("dev", "1.1.0", 2)
			f.at("staging", "1.1.0", 2)
			for j := range 2 {
				f.target("prod", j).Stale = true
			}
			f.connection1("eu", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionUnreachable, Reason: "ProbeFailed", LastTransitionTime: before(90 * time.Second)})
		},
		"failed": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound", Message: `no file of branch main has the marker # {"$promotion": "apps:shop:staging"}: put it on the line of the version`})
		},
		"rejected": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected, Reason: "PullRequestClosed", URL: "https://git.example.org/fleet/manifests/pulls/17"})
		},
		"superseded": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseSuperseded, Reason: "EnvironmentMovedOn", Message: `environment "staging" agreed on a revision that no promotion is for`})
			f.at("staging", "0.9.0", 2)
		},
		"drifted": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
			f.at("staging", "1.0.0", 3)
		},
		"promoted-and-at-work": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
			f.at("staging", "1.1.0", 3)
			s := f.target("staging", 0)
			s.Ready, s.Progressing, s.Reason, s.Message = false, true, "Progressing", "Running 'upgrade' action"
		},
		"suspended": func(f *Facts) {
			f.at("dev", "1.1.0", 2)
			f.Pipeline.Spec.Suspend = true
		},
		"suspended-manual": func(f *Facts) {
			f.at("dev", "1.1.0", 2)
			f.Pipeline.Spec.Promotion.Manual = true
			f.Pipeline.Spec.Suspend = true
		},
		"suspended-in-flight": func(f *Facts) {
			f.Pipeline.Spec.Suspend = true
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Reason: "Suspended"})
		},
		"no-strategy":  func(f *Facts) { f.Pipeline.Spec.Promotion.Strategy.Notification = nil },
		"no-promotion": func(f *Facts) { f.Pipeline.Spec.Promotion = nil },
		"unresolved-target": func(f *Facts) {
			*f.target("dev", 0) = pipelinesv1.TargetStatus{Error: "Cluster fleet/dev not found: create it, or correct the clusterRef"}
		},
		"missing-app": func(f *Facts) {
			*f.target("staging", 0) = pipelinesv1.TargetStatus{Error: "HelmRelease shop/web not found in Cluster/fleet/staging: create it, or correct spec.appRef or the target's namespace"}
		},
		"targets-differ": func(f *Facts) {
			f.Pipeline.Spec.Environments[0].Targets = f.Pipeline.Spec.Environments[2].Targets
			f.Pipeline.Status.Environments["dev"].Targets = []pipelinesv1.TargetStatus{{Ready: true, Revision: "1.1.0"}, {Ready: true, Revision: "1.0.0"}}
		},
		"rejected-of-a-former-pipeline": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseRejected}).Spec.Pipeline.UID = "former"
			f.at("dev", "1.1.0", 1)
		},
		"environment-ahead": func(f *Facts) { // prod was before staging.
			brought := f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded})
			brought.Spec.Revision, brought.Spec.Source.Sequence = "1.0.0", 1
			later := f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(4 * time.Minute)})
			later.Spec.Environment, later.Name = "prod", "shop-prod-9d1f3a77-1"
			f.at("prod", "1.1.0", 2)
		},
		"requested": func(f *Facts) {
			f.outOfTurn(1, "1.0.1", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			f.at("dev", "1.2.0", 3)
		},
		"requested-behind-which-nothing-waits": func(f *Facts) {
			f.outOfTurn(1, "1.0.1", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
		},
		"requested-without-a-user": func(f *Facts) {
			f.outOfTurn(1, "1.0.1", func(s *capstanv1.PromotionSpec) {
				s.Request = &capstanv1.RequestReference{Name: "hotfix", UID: "r"}
			}, capstanv1.PromotionStatus{})
		},
		"requested-failed": func(f *Facts) {
			f.outOfTurn(1, "1.0.1", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "MarkerNotFound", Message: "no file has the marker"})
		},
		"rolled-back-next": func(f *Facts) { f.failing(pipelinesv1.RollbackPromote) },
		"rolled-back-next-suspended": func(f *Facts) {
			f.failing(pipelinesv1.RollbackPromote)
			f.Pipeline.Spec.Suspend = true
		},
		"not-rolled-back": func(f *Facts) {
			f.failing(pipelinesv1.RollbackNotify)
			f.Pipeline.Status.Environments["staging"].RollbackAdvice = "it is not rolled back to 1.0.0: spec.rollback has the mode Notify; create a PromotionRequest with rollback: {} to do so"
		},
		"not-rolled-back-because-nothing-succeeded": func(f *Facts) {
			f.failing(pipelinesv1.RollbackPromote)
			f.Promotions = f.Promotions[1:]
			f.Pipeline.Status.Environments["staging"].RollbackAdvice = "it is not rolled back: no other revision succeeded there before; create a PromotionRequest for a revision that works"
		},
		"rolling-back": func(f *Facts) {
			f.failing(pipelinesv1.RollbackPromote)
			f.outOfTurn(3, "1.0.0", ofTwo, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			f.at("dev", "1.2.0", 3)
		},
		"rolling-back-by-request": func(f *Facts) {
			f.Pipeline.Spec.Promotion.Manual = true
			f.failing(pipelinesv1.RollbackNever)
			f.outOfTurn(3, "1.0.0", ofTwoByAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
		},
		"rolling-back-a-deleted-promotion": func(f *Facts) {
			f.outOfTurn(3, "1.0.0", ofTwo, capstanv1.PromotionStatus{Phase: capstanv1.PhasePromoting, Message: "the attempt begins"}).Spec.From = &capstanv1.PromotionBase{Revisions: []string{"1.1.0", "1.1.1"}}
		},
		"rollback-failed": func(f *Facts) {
			f.failing(pipelinesv1.RollbackPromote)
			f.outOfTurn(3, "1.0.0", ofTwo, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "Degraded", CarriedOutTime: before(3 * time.Minute), Message: "a target was not ready"})
		},
		"rollback-issued-again-after-an-edit": func(f *Facts) {
			f.failing(pipelinesv1.RollbackPromote)
			f.outOfTurn(3, "1.0.0", ofTwo, capstanv1.PromotionStatus{Phase: capstanv1.PhaseFailed, Reason: "InvalidSpec", Message: "the receiver answered 400"})
			f.Pipeline.Spec.Promotion.Strategy = pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{Type: "gitea", URL: "https://git.example/shop.git"}}
		},
		"held-after-a-rollback": func(f *Facts) {
			f.failing(pipelinesv1.RollbackPromote)
			f.outOfTurn(3, "1.0.0", ofTwoByAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(3 * time.Minute)})
			f.at("staging", "1.0.0", 3)
		},
		"held-by-a-former-pipeline": func(f *Facts) {
			f.outOfTurn(3, "1.0.1", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(3 * time.Minute)}).Spec.Pipeline.UID = "former"
			f.at("dev", "it's", 1)
			f.at("staging", "1.0.1", 1)
		},
		"held-and-up-to-date": func(f *Facts) {
			f.outOfTurn(3, "1.1.0", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(3 * time.Minute)})
			f.at("staging", "1.1.0", 3)
			f.at("prod", "1.1.0", 3)
		},
		"source-held": func(f *Facts) {
			f.outOfTurn(3, "1.0.1", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(3 * time.Minute)})
			f.at("staging", "1.0.1", 3)
		},
		"verifying-with-a-check": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{
				Phase: capstanv1.PhaseVerifying, Message: `environment "staging" was ready with 1.1.0 for long enough; check "errors" fails: 7 is too much; after 3 failures in sequence the promotion fails`,
				Checks: []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckFail}, {Name: "latency", Verdict: capstanv1.CheckNoData}, {Name: "pods", Verdict: capstanv1.CheckPass, Done: true}},
			})
		},
		"verifying-paused-with-checks": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{
				Phase: capstanv1.PhaseVerifying, Message: `environment "staging" must be ready with 1.1.0 for 30m in all; the time does not count while a target is reconciled or cannot be observed`,
				Checks: []capstanv1.CheckStatus{{Name: "errors"}, {Name: "latency", Verdict: capstanv1.CheckPass}},
			})
		},
		"waiting-for-checks": func(f *Facts) {
			f.Pipeline.Spec.Gates = &pipelinesv1.Gates{Checks: []pipelinesv1.Check{
				{Name: "errors", Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "errors", Expression: "value < 1.0"}},
				{Name: "pods", CEL: &pipelinesv1.CELCheck{Expression: "targets.all(t, t.ready)"}},
				{Name: "latency", Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "latency", Expression: "value < 1.0"}},
			}}
			f.promoting(capstanv1.PromotionStatus{
				Phase: capstanv1.PhaseAwaitingGates, Reason: gate.ReasonCheckFailed,
				Gates:  []capstanv1.GateStatus{{Name: capstanv1.GateChecks, Type: capstanv1.CheckGate, State: capstanv1.GateClosed, Reason: gate.ReasonCheckFailed, Message: `check "errors" fails: "value < 1.0" is false, with the value 7`}},
				Checks: []capstanv1.CheckStatus{{Name: "errors", Verdict: capstanv1.CheckFail}, {Name: "latency"}},
			})
		},
		"waiting-for-a-soak-before-checks": func(f *Facts) {
			f.Pipeline.Spec.Gates = &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "2h"}, Checks: []pipelinesv1.Check{
				{Name: "errors", Prometheus: &pipelinesv1.PrometheusCheck{Endpoint: "main", Query: "errors", Expression: "value < 1.0"}},
			}}
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingGates})
		},
		"made-by-hand": func(f *Facts) { f.at("staging", "1.0.1-hotfix", 2) },
		"invalid-spec": func(f *Facts) {
			f.invalidSpec(`spec.environments[1]: the name "dev" is used twice; give each environment a different name`)
		},
		"invalid-target": func(f *Facts) {
			wrong := `environment "staging": invalid target: targets[0].namespace is empty: set the application's namespace`
			f.invalidSpec(wrong)
			*f.target("staging", 0) = pipelinesv1.TargetStatus{Error: wrong, Reason: pipelinesv1.InvalidSpecReason}
		},
		"no-environments": func(f *Facts) {
			f.Pipeline.Spec.Environments = nil
			f.invalidSpec("spec.environments is empty: name at least one environment")
		},
		"no-targets": func(f *Facts) {
			f.Pipeline.Spec.Environments[1].Targets, f.Pipeline.Status.Environments["staging"].Targets = nil, nil
		},
		"fleet-lost": func(f *Facts) {
			f.fleet("dev", "2 of 5 targets are lost, and 1 may be: the hub may be cut off from them; lost: shop/web in Cluster/fleet/eu-3; shop/web in Cluster/fleet/eu-4",
				append(running(3, "1.1.0"), left(2, pipelinesv1.TargetLost)...)...)
		},
		"fleet-into-lost": func(f *Facts) {
			f.at("dev", "1.1.0", 2)
			f.fleet("staging", "2 of 5 targets are lost, and 1 may be: the hub may be cut off from them; lost: shop/web in Cluster/fleet/eu-3; shop/web in Cluster/fleet/eu-4",
				append(running(3, "1.0.0"), left(2, pipelinesv1.TargetLost)...)...)
		},
		"fleet-differs": func(f *Facts) {
			f.fleet("dev", "4 targets run 1.1.0, ready, and 8 must", slices.Concat(running(4, "1.1.0"), running(3, "1.0.0"), running(3, "1.0.1"), running(1, "1.0.2"), running(1, "1.0.3"))...)
		},
		"fleet-rollout-joining": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			f.fleet("staging", "2 targets run 1.1.0, ready, and 3 must; lost: shop/web in Cluster/fleet/eu-2; joining: shop/web in Cluster/fleet/eu-3; shop/web in Cluster/fleet/eu-4",
				slices.Concat(running(2, "1.1.0"), left(1, pipelinesv1.TargetLost), left(2, pipelinesv1.TargetJoining))...)
		},
		"fleet-rollout-broken": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			f.fleet("staging", "2 targets run 1.1.0, ready, and 3 must", append(running(2, "1.1.0"), running(3, "1.0.0")...)...)
		},
		"fleet-rollout-arrived": func(f *Facts) {
			f.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
			f.fleet("staging", "", append(running(3, "1.1.0"), running(2, "1.0.0")...)...)
		},
		"waves": func(f *Facts) { f.waves() },
		"waves-with-a-late-cluster": func(f *Facts) {
			f.waves()
			p := f.Promotions[0]
			late := f.target("prod/canary", 0)
			late.Standing, late.Revision = pipelinesv1.TargetLate, "1.0.0"
			late.StandingTime = before(time.Minute)
			f.Promotions = append(f.Promotions[:0:0], p)
			f.Promotions[0].Spec.Wave.Clusters = []string{"fleet/other"}
			f.Pipeline.Status.Environments["prod/canary"].Fleet = &pipelinesv1.FleetStatus{Targets: 1, Revision: "1.0.0", Ready: 1, Required: 1, Message: "late: shop/web in Cluster/fleet/eu-0"}
		},
		"waves-not-observed-yet": func(f *Facts) {
			f.waves()
			f.Pipeline.Status = pipelinesv1.PipelineStatus{Schema: pipelinesv1.StatusSchema, SchemaFleets: pipelinesv1.StatusSchemaFleets, ObservedGeneration: -1}
		},
		"long-names": func(f *Facts) {
			f.Pipeline.Spec.Environments[1].Name = strings.Repeat("Prod-EU/überall ", 6)
			f.Pipeline.Status.Environments[f.Pipeline.Spec.Environments[1].Name] = f.Pipeline.Status.Environments["staging"]
			f.at("staging", "1.0.0-rc.1+"+strings.Repeat("build.", 12), 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := shop()
			edit(f)
			var out strings.Builder
			report := Explain(*f)
			g.Expect(report.Write(&out)).To(Succeed())
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				g.Expect(os.WriteFile(golden, []byte(out.String()), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(golden)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(string(want)))
			for _, e := range report.Environments {
				g.Expect(e.Why).NotTo(BeEmpty(), e.Name)
			}
			for line := range strings.Lines(out.String()) {
				if !strings.HasPrefix(line, indent+indent) && strings.Contains(strings.TrimSpace(line), " ") { // Commands and words are not wrapped.
					g.Expect(utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))).To(BeNumerically("<=", width), line)
				}
			}
		})
	}
}

// For any content of the objects, there is an explanation and no panic.
func FuzzExplain(f *testing.F) {
	f.Add("prod", "1.0.0", "Failed", "why", int64(1), true)
	f.Fuzz(func(t *testing.T, env, revision, phase, message string, sequence int64, stale bool) {
		facts := shop()
		facts.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PromotionPhase(phase), Message: message})
		facts.Pipeline.Spec.Environments[2].Name = env
		facts.Promotions[0].Spec.Source.Sequence = sequence
		facts.target("staging", 0).Revision, facts.target("staging", 0).Stale = revision, stale
		report := Explain(*facts)
		if err := report.Write(&strings.Builder{}); err != nil {
			t.Fatal(err)
		}
	})
}

// A hub in dry run says what it would promote, and reads the revisions itself.
func TestDryRun(t *testing.T) {
	g := NewWithT(t)
	f := shop()
	f.Pipeline.Status.Environments["prod"].Targets[0].Revision = ""
	f.Pipeline.Status.DryRun = &pipelinesv1.DryRunStatus{ObservedGeneration: 1, Message: "Dry run: 1.1.0 would be promoted", Environments: []pipelinesv1.DryRunEnvironment{
		{Name: "dev", Runs: []string{"1.1.0"}}, {Name: "staging", Runs: []string{"1.1.0"}},
		{Name: "prod", Runs: []string{"1.0.0"}, Promotion: &pipelinesv1.DryRunPromotion{Revision: "1.1.0", Source: "staging", Strategy: "pull-request", Manual: true}},
	}}
	r := Explain(*f)
	g.Expect(r.Notes).To(ConsistOf("Dry run: 1.1.0 would be promoted."))
	g.Expect(r.Environments).To(ConsistOf(
		And(HaveField("Why", "nothing is promoted into the first environment."), HaveField("Runs", "1.1.0")),
		HaveField("Why", "dry run: no promotion into it is due."),
		And(HaveField("Why", "dry run: 1.1.0 would be promoted into it from staging by pull-request, after an approval."), HaveField("Runs", "1.0.0")),
	))
	fleet := Fleet{Pipelines: []pipelinesv1.Pipeline{*f.Pipeline}, Now: now}
	s := fleet.Summary()
	g.Expect(s.Verdict).To(HavePrefix("DRY RUN: the hub promotes nothing, and would create 1 promotion now · "))
	g.Expect(s.Pipelines).To(And(HaveField("DryRun", 1), HaveField("WouldPromote", 1)))
}
