package pipeline

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// standbyCalls records what is demanded and confirmed, and marks the latter as the Watcher does.
type standbyCalls struct {
	index     *index.Index
	demands   map[string][]watchers.Demand
	confirmed []string // namespaces of the objects
	// confirm is what Confirm does then; it marks them if it is nil.
	confirm func(index.Object)
}

func (c *standbyCalls) SetDemand(owner string, want []watchers.Demand) { c.demands[owner] = want }
func (c *standbyCalls) SetDemands(want map[string][]watchers.Demand) {
	for owner, demands := range want {
		c.demands[owner] = demands
	}
}
func (c *standbyCalls) Confirm(d watchers.Demand) {
	c.confirmed = append(c.confirmed, d.Namespace)
	o := index.Object{Kind: helmReleases, Namespace: d.Namespace, Name: d.Name}
	if c.confirm != nil {
		c.confirm(o)
		return
	}
	c.index.SetUnread(o, watchers.Confirming)
}

// standby makes the scene's process a standby, and returns what it calls and a function that elects it.
func (s *scene) standby() (*standbyCalls, func()) {
	s.start()
	calls, elected := &standbyCalls{index: s.r.Index, demands: map[string][]watchers.Demand{}}, make(chan struct{})
	s.r.Watchers, s.r.Elected, s.r.WarmStandby = calls, elected, true
	s.r.led.Store(nil)
	return calls, func() {
		close(elected)
		s.g.Expect(s.r.takeOver(context.Background(), NewWaker(s.r.Index))).To(Succeed())
	}
}

// TestAStandbyPassesDemandOn: and does nothing else. Its client cannot write.
func TestAStandbyPassesDemandOn(t *testing.T) {
	s := newScene(t)
	calls, elect := s.standby()
	kept, deleted := pipelineNamed("kept"), pipelineNamed("deleted")
	s.r.Client = stored{pipelines: []pipelinesv1.Pipeline{*kept, *deleted}}
	reconcile := func(p *pipelinesv1.Pipeline) {
		result, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		s.g.Expect(err).NotTo(HaveOccurred())
		s.g.Expect(result).To(Equal(ctrl.Result{}))
	}
	s.g.Expect(s.r.Warm()).To(MatchError(ContainSubstring("not read yet")))
	reconcile(kept)
	s.g.Expect(calls.demands).To(And(HaveLen(2), HaveKeyWithValue("Pipeline/apps/kept", HaveLen(2))))
	s.g.Expect(s.r.Warm()).To(MatchError("2 of 2 applications of Pipelines were not observed yet"), "both Pipelines use the same two")
	s.g.Expect(s.r.waits(client.ObjectKeyFromObject(kept))).To(BeTrue(), "observations wake nothing on a standby")

	edited := kept.DeepCopy()
	edited.Spec.Environments = edited.Spec.Environments[:1]
	s.r.Client = stored{pipelines: []pipelinesv1.Pipeline{*edited}}
	reconcile(edited)
	reconcile(deleted)
	s.g.Expect(calls.demands["Pipeline/apps/kept"]).To(HaveLen(1))
	s.g.Expect(calls.demands["Pipeline/apps/deleted"]).To(BeEmpty())
	s.g.Expect(s.r.Index.Stats().Pipelines).To(Equal(1))
	s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Fresh: true})
	s.r.Index.Observe(index.Object{Kind: helmReleases, Namespace: "dev", Name: "web"}, ready10())
	s.g.Expect(s.r.Warm()).To(Succeed())

	s.g.Expect(s.r.leads()).To(BeFalse())
	elect()
	s.g.Expect(s.r.leads()).To(BeTrue())
	s.g.Expect(s.r.waits(client.ObjectKeyFromObject(kept))).To(BeFalse())
}

// slowClusters cannot resolve references before known is closed.
type slowClusters struct {
	fleet
	known chan struct{}
}

func (c slowClusters) Resolve(r clusters.Ref) (multicluster.ClusterName, error) {
	select {
	case <-c.known:
		return r.ClusterName(), nil
	default:
		return "", clusters.ErrNotSynced
	}
}

// WaitForObjects gives up at once if it may not wait for ever.
func (c slowClusters) WaitForObjects(ctx context.Context) error {
	if _, limited := ctx.Deadline(); limited {
		return context.DeadlineExceeded
	}
	select {
	case <-c.known:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestAStandbyIsNotWarmBeforeTheClustersAreKnown: until then, Pipelines demand nothing of them.
func TestAStandbyIsNotWarmBeforeTheClustersAreKnown(t *testing.T) {
	s := newScene(t)
	calls, _ := s.standby()
	known := make(chan struct{})
	s.r.Clusters = slowClusters{known: known}
	east := &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "east"}
	for i := range s.p.Spec.Environments {
		s.p.Spec.Environments[i].Targets[0].ClusterRef = east
	}
	s.r.Client = stored{pipelines: []pipelinesv1.Pipeline{*s.p}}
	reconcile := func() {
		_, err := s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.p)})
		s.g.Expect(err).NotTo(HaveOccurred())
	}
	reconcile()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.r.primeReplica(t.Context())
	}()
	s.g.Consistently(s.r.Warm, 200*time.Millisecond).Should(MatchError(ContainSubstring("not read yet")))
	s.g.Expect(calls.demands["Pipeline/apps/shop"]).To(BeEmpty())

	close(known)
	reconcile() // The reference can be resolved now.
	s.g.Expect(calls.demands["Pipeline/apps/shop"]).To(HaveLen(2))
	s.g.Eventually(s.r.Warm).WithTimeout(time.Minute).Should(MatchError("2 of 2 applications of Pipelines were not observed yet"))
	s.g.Eventually(ended).WithTimeout(time.Minute).Should(BeClosed())
}

// TestANewLeaderHandlesRequestsWithoutAPipeline: the standby has reconciled such a Pipeline before, without asking for another time.
func TestANewLeaderHandlesRequestsWithoutAPipeline(t *testing.T) {
	s := newScene(t)
	_, _ = s.standby()
	request := func(pipeline string, phase capstanv1.RequestPhase) capstanv1.PromotionRequest {
		return capstanv1.PromotionRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "for-" + pipeline}, Spec: capstanv1.PromotionRequestSpec{Pipeline: pipeline},
			Status: capstanv1.PromotionRequestStatus{Phase: phase},
		}
	}
	s.r.Client = stored{
		pipelines: []pipelinesv1.Pipeline{*pipelineNamed("kept")},
		requests:  []capstanv1.PromotionRequest{request("kept", ""), request("deleted", ""), request("handled", capstanv1.RequestRefused)},
	}
	waker, elected := NewWaker(s.r.Index), make(chan struct{})
	close(elected)
	s.r.Elected = elected
	s.g.Expect(s.r.takeOver(t.Context(), waker)).To(Succeed())
	s.g.Expect(waker.lockedEarly).To(And(HaveLen(2),
		HaveKey(types.NamespacedName{Namespace: "apps", Name: "kept"}), HaveKey(types.NamespacedName{Namespace: "apps", Name: "deleted"})))
}

// TestAStandbyThatIsNeverElected ends with its process.
func TestAStandbyThatIsNeverElected(t *testing.T) {
	s := newScene(t)
	s.standby()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.g.Expect(s.r.takeOver(ctx, NewWaker(s.r.Index))).To(Succeed())
	s.g.Expect(s.r.leads()).To(BeFalse())
}

// TestTheStoredStatusStands: a hub that starts writes nothing that only says that it has not looked yet.
func TestTheStoredStatusStands(t *testing.T) {
	for name, shown := range map[string]func(*scene){
		"ready": func(s *scene) { s.runs("dev", ready10()); s.runs("prod", ready10()) },
		"behind": func(s *scene) {
			s.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
			s.runs("prod", ready10())
		},
		"not ready": func(s *scene) {
			s.runs("dev", index.Observation{Reason: "UpgradeFailed", Message: "timed out", Revision: "1.1"})
			s.runs("prod", ready10())
		},
		"absent": func(s *scene) { s.runs("dev", ready10()) },
		"a fleet": func(s *scene) {
			quorum := &pipelinesv1.Quorum{}
			s.p.Spec.Environments[1].Quorum = quorum
			s.runs("dev", ready10())
			s.runs("prod", ready10())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			shown(s)
			s.reconcile()
			before := s.p.Status.DeepCopy()

			s.start() // Another process: it has observed nothing.
			s.clock.Step(time.Second)
			s.g.Expect(s.reconcile()).To(BeEmpty())
			s.g.Expect(&s.p.Status).To(BeComparableTo(before))
			s.clock.Step(2 * leastHold)
			s.g.Expect(s.reconcile()).To(BeEmpty())
			s.g.Expect(&s.p.Status).To(BeComparableTo(before))
			of, seen, _ := s.r.observe(s.p)
			s.g.Expect(s.r.standing(of, seen)).To(ConsistOf("dev", "prod"), "promotions must not use their status")
			s.clock.Step(standFor)
			s.g.Expect(s.r.standing(of, seen)).To(BeEmpty())
			s.reconcile()
			for _, env := range s.p.Status.Environments {
				for _, target := range env.Targets {
					s.g.Expect(target.Fresh()).To(BeFalse(), "it cannot be trusted for ever")
				}
			}
		})
	}
}

// TestWhatDoesNotStand: what is new is shown at once.
func TestWhatDoesNotStand(t *testing.T) {
	stale := func(s *scene, env string) bool { return s.p.Status.Environments[env].Targets[0].Stale }
	t.Run("an edited Pipeline", func(t *testing.T) {
		s := newScene(t)
		s.runs("dev", ready10())
		s.reconcile()
		s.p.Generation++
		s.start()
		s.reconcile()
		s.g.Expect(stale(s, "dev")).To(BeTrue())
	})
	t.Run("a cluster that cannot be reached", func(t *testing.T) {
		s := newScene(t)
		s.runs("dev", ready10())
		s.reconcile()
		s.start()
		s.r.observe(s.p)
		s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Reason: watchers.ReasonUnreachable, Message: "no answer"})
		s.reconcile()
		s.g.Expect(stale(s, "dev")).To(BeTrue())
	})
	t.Run("another target of the environment", func(t *testing.T) {
		s := newScene(t)
		cluster := &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "east"}
		s.p.Spec.Environments[0].Targets = append(s.p.Spec.Environments[0].Targets, pipelinesv1.Target{Namespace: "dev", ClusterRef: cluster})
		east := index.Object{Cluster: "Cluster/apps/east", Kind: helmReleases, Namespace: "dev", Name: "web"}
		see := func(revision string) {
			s.r.Index.SetFreshness(east.Cluster, helmReleases, index.Freshness{Fresh: true})
			s.r.Index.Observe(east, index.Observation{Found: true, Ready: true, Revision: revision})
		}
		s.runs("dev", ready10())
		see("1.0")
		s.reconcile()
		s.start()
		s.r.observe(s.p)
		see("1.1")
		s.reconcile()
		targets := s.p.Status.Environments["dev"].Targets
		s.g.Expect(targets[0].Revision).To(Equal("1.0"))
		s.g.Expect(targets[0].Stale).To(BeFalse(), "this one stands")
		s.g.Expect(targets[1].Revision).To(Equal("1.1"))
		s.g.Expect(s.p.Status.Environments["dev"].Agreed.Revision).To(Equal("1.0"))
	})
}

// TestANewLeaderConfirmsWhatDiffers: the watch of a standby may be behind that of the leader before it, which has
// promoted what it saw. An older revision must not become a new agreement.
func TestANewLeaderConfirmsWhatDiffers(t *testing.T) {
	see := func(s *scene, revision string, since time.Time) {
		s.r.observe(s.p)
		s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Fresh: true})
		for _, namespace := range []string{"dev", "prod"} {
			s.r.Index.Observe(index.Object{Kind: helmReleases, Namespace: namespace, Name: "web"}, index.Observation{Found: true, Ready: true, Revision: revision, Since: since})
		}
	}
	begin := func(t *testing.T) (*scene, *standbyCalls, func()) {
		s := newScene(t)
		for _, revision := range []string{"1.0", "1.1"} { // What the leader before saw and wrote.
			see(s, revision, s.clock.Now())
			s.reconcile()
		}
		s.g.Expect(s.p.Status.Environments["dev"].Agreed.Sequence).To(BeEquivalentTo(2))
		calls, elect := s.standby()
		return s, calls, func() {
			s.r.Client = stored{pipelines: []pipelinesv1.Pipeline{*s.p}}
			elect()
			s.clock.Step(time.Second)
		}
	}
	agreed := func(s *scene) pipelinesv1.AgreedRevision { return *s.p.Status.Environments["dev"].Agreed }

	t.Run("it is behind", func(t *testing.T) {
		s, calls, elect := begin(t)
		see(s, "1.0", s.clock.Now())
		elect()
		before := s.p.Status.DeepCopy()
		for range 2 {
			s.g.Expect(s.reconcile()).To(BeEmpty())
			s.g.Expect(&s.p.Status).To(BeComparableTo(before))
			s.g.Expect(calls.confirmed).To(Equal([]string{"dev", "prod"}), "they are read once")
		}

		see(s, "1.1", s.clock.Now()) // What was read.
		s.reconcile()
		s.g.Expect(agreed(s).Sequence).To(BeEquivalentTo(2), "nothing has changed")
	})
	for name, revision := range map[string]string{"its kind is between two runs": "", "the watch delivers another old one": "1.0.1"} {
		t.Run(name, func(t *testing.T) {
			s, calls, elect := begin(t)
			old := s.clock.Now()
			see(s, "1.0", old)
			elect()
			calls.confirm = func(o index.Object) {
				if revision != "" {
					s.r.Index.Observe(o, index.Observation{Found: true, Ready: true, Revision: revision, Since: old})
				}
			}
			before := s.p.Status.DeepCopy()
			_, seen, _ := s.r.observe(s.p)
			s.g.Expect(seen[0][0].target.Fresh).To(BeFalse())
			s.g.Expect(early(seen)).To(Equal(2), "so it is reconciled again, though nothing wakes it")
			s.g.Expect(s.reconcile()).To(BeEmpty())
			s.g.Expect(&s.p.Status).To(BeComparableTo(before))

			see(s, "1.2", s.clock.Now())
			s.reconcile()
			s.g.Expect(agreed(s).Revision).To(Equal("1.2"))
		})
	}
	t.Run("it has changed", func(t *testing.T) {
		s, calls, elect := begin(t)
		see(s, "1.1", s.clock.Now())
		elect()
		see(s, "1.2", s.clock.Now())
		s.reconcile()
		s.g.Expect(calls.confirmed).To(BeEmpty(), "it was listed, or read, since this process leads")
		s.g.Expect(agreed(s).Revision).To(Equal("1.2"))
	})
	t.Run("it is the same", func(t *testing.T) {
		s, calls, elect := begin(t)
		see(s, "1.1", s.clock.Now())
		elect()
		s.g.Expect(s.reconcile()).To(BeEmpty())
		s.g.Expect(calls.confirmed).To(BeEmpty())
		s.g.Expect(agreed(s).Sequence).To(BeEquivalentTo(2))
	})
	t.Run("it leads for long", func(t *testing.T) {
		s, calls, elect := begin(t)
		see(s, "1.1", s.clock.Now())
		elect()
		s.clock.Step(standFor)
		see(s, "1.2", time.Time{})
		s.reconcile()
		s.g.Expect(calls.confirmed).To(BeEmpty())
		s.g.Expect(agreed(s).Revision).To(Equal("1.2"))
	})
	t.Run("it was at work", func(t *testing.T) {
		g := NewWithT(t)
		last := &pipelinesv1.TargetStatus{Revision: "1.1", Progressing: true}
		g.Expect(shows(last, nil, quorum.Target{Fresh: true, Progressing: true, Revision: "1.1"})).To(BeTrue())
		g.Expect(shows(last, nil, quorum.Target{Fresh: true, Revision: "1.1"})).To(BeFalse(), "what is decided of an unready one depends on it")
		last.Ready = true
		g.Expect(shows(last, nil, quorum.Target{Fresh: true, Ready: true, Revision: "1.1"})).To(BeTrue())
	})
	t.Run("a fleet that does not list the target", func(t *testing.T) {
		g := NewWithT(t)
		at := &pipelinesv1.AgreedRevision{Revision: "1.1"}
		runs := func(revision string, ready bool) bool {
			s := observation{obs: index.Observation{Revision: revision}}
			s.target.Revision, s.target.Ready, s.target.Fresh = revision, ready, true
			return shows(nil, at, s.target)
		}
		g.Expect(runs("1.1", true)).To(BeTrue())
		g.Expect(runs("1.0", true)).To(BeFalse())
		g.Expect(runs("1.1", false)).To(BeFalse())
	})
}
