package explain

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func connection(kind, name string, status capstanv1.ClusterConnectionStatus) capstanv1.ClusterConnection {
	c := capstanv1.ClusterConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}, Status: status}
	c.Spec.ClusterRef = pipelinesv1.CrossNamespaceClusterReference{Kind: kind, Namespace: "fleet", Name: name}
	return c
}

func TestFleet(t *testing.T) {
	g := NewWithT(t)
	quiet, waiting := shop(), shop()
	quiet.Pipeline.Name, quiet.Pipeline.UID = "billing", "other"
	waiting.promoting(capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingApproval})
	waiting.Promotions[0].Labels = map[string]string{capstanv1.PipelineUIDLabel: "uid"}
	f := Fleet{
		Now: now, Promotions: waiting.Promotions,
		Pipelines: []pipelinesv1.Pipeline{*quiet.Pipeline, *waiting.Pipeline},
		Connections: []capstanv1.ClusterConnection{
			connection("Cluster", "dev", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionReady, LastTransitionTime: before(time.Hour), Apps: 2, KubernetesVersion: "v1.36.3", CredentialExpiryTime: before(-9 * time.Minute)}),
			connection("Cluster", "new", capstanv1.ClusterConnectionStatus{}),
			connection("Cluster", "eu", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionUnreachable, Reason: "ProbeFailed", Message: "i/o timeout", LastTransitionTime: before(42 * time.Minute)}),
			connection("GitopsCluster", "us", capstanv1.ClusterConnectionStatus{State: capstanv1.ConnectionAuthFailed, Reason: "SecretMissing", Message: "there is no Secret fleet/us", LastTransitionTime: before(time.Minute), CredentialExpiryTime: before(time.Minute)}),
		},
	}
	var b strings.Builder
	g.Expect(f.Write(&b, false)).To(Succeed())
	g.Expect(b.String()).To(Equal(`2 of 4 clusters need you · 1 approval

Clusters: 1 AuthFailed, 1 Unreachable, 1 Ready, 1 not observed yet
CLUSTER                 STATE        SINCE  APPS  VERSION  CREDENTIALS
GitopsCluster fleet/us  AuthFailed   60s    0     -        ended
fleet/eu                Unreachable  42m    0     -        -
fleet/dev               Ready        60m    2     v1.36.3  end in 9m
fleet/new               -            -      0     -        -
GitopsCluster fleet/us is AuthFailed (SecretMissing): there is no Secret
  fleet/us
fleet/eu is Unreachable (ProbeFailed): i/o timeout
fleet/new is not observed yet

Pipelines: 2 (1 waiting)
PIPELINE      ENVIRONMENT  RUNS   READY  IN FLIGHT
apps/shop     dev          1.1.0  1/1    -
apps/shop     staging      1.0.0  1/1    1.1.0 AwaitingApproval
apps/shop     prod         1.0.0  2/2    -
apps/billing  dev          1.0.0  1/1    -
apps/billing  staging      1.0.0  1/1    -
apps/billing  prod         1.0.0  2/2    -
apps/shop, staging: 1.1.0 has waited 5m for an approval: approve it (you need
  the ClusterRole capstan-approver).
`))
}

// A rollback is marked, and so is an environment that is held.
func TestFleetShowsRollbacks(t *testing.T) {
	g := NewWithT(t)
	back, held := shop(), shop()
	back.failing(pipelinesv1.RollbackNever)
	back.outOfTurn(3, "1.0.0", ofTwoByAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseAwaitingRollout})
	held.Pipeline.Name, held.Pipeline.UID = "billing", "other"
	held.outOfTurn(3, "1.0.1", byAnn, capstanv1.PromotionStatus{Phase: capstanv1.PhaseSucceeded, CarriedOutTime: before(time.Minute)})
	held.Promotions[0].Spec.Pipeline = capstanv1.PipelineReference{Name: "billing", UID: "other"}
	held.at("staging", "1.0.1", 2)
	f := Fleet{Now: now, Promotions: append(back.Promotions, held.Promotions...), Pipelines: []pipelinesv1.Pipeline{*back.Pipeline, *held.Pipeline}}
	var b strings.Builder
	g.Expect(f.Write(&b, false)).To(Succeed())
	g.Expect(b.String()).To(HaveSuffix(`
Pipelines: 2 (2 waiting)
PIPELINE      ENVIRONMENT  RUNS   READY  IN FLIGHT
apps/billing  dev          1.1.0  1/1    -
apps/billing  staging      1.0.1  1/1    -
apps/billing  prod         1.0.0  2/2    -
apps/shop     dev          1.1.0  1/1    -
apps/shop     staging      1.1.0  1/1    rollback 1.0.0 AwaitingRollout
apps/shop     prod         1.0.0  2/2    -
apps/billing, staging: 1.1.0 is not promoted until "dev" agrees on another
  revision, or a PromotionRequest for 1.1.0 is created: the environment has been
  held since the promotion of 1.0.1, requested by ann (incident 4711).
apps/shop, staging: a rollback from 1.1.0 to 1.0.0, requested by ann (incident
  4711), is in flight: waiting for every target to run 1.0.0: shop/web in
  Cluster fleet/staging still runs 1.1.0.
`))
}

// Waves that wait for nothing and run the same are one row.
func TestFleetCondensesWaves(t *testing.T) {
	g := NewWithT(t)
	f := shop()
	f.waves()
	var b strings.Builder
	g.Expect((&Fleet{Now: now, Promotions: f.Promotions, Pipelines: []pipelinesv1.Pipeline{*f.Pipeline}}).Write(&b, false)).To(Succeed())
	g.Expect(b.String()).To(ContainSubstring(`
PIPELINE   ENVIRONMENT    RUNS   READY  IN FLIGHT
apps/shop  dev            1.1.0  1/1    -
apps/shop  staging        1.1.0  1/1    -
apps/shop  prod/canary    1.1.0  1/1    -
apps/shop  prod/rest-1    1.0.0  1/1    1.1.0 AwaitingGates
apps/shop  prod, 2 waves  1.0.0  2/2    -
`))
}
