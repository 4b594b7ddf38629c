package pipeline

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/index"
)

// soakScene is a scene whose prod requires that dev soaks for two hours.
func soakScene(t *testing.T) *scene {
	s := newScene(t)
	s.p.Spec.Environments[1].Gates = &pipelinesv1.Gates{Soak: &pipelinesv1.Soak{For: "2h"}}
	return s
}

func (s *scene) soak() *pipelinesv1.SoakStatus {
	env := s.p.Status.Environments["dev"]
	if env == nil || env.Agreed == nil {
		return nil
	}
	return env.Agreed.Soak
}

// dev is observed, and the status written. It returns whether that changed.
func (s *scene) dev(o index.Observation) bool {
	s.runs("dev", o)
	return s.written()
}

func (s *scene) written() bool {
	before := s.p.Status.DeepCopy()
	s.reconcile()
	return fmt.Sprint(before.Environments["dev"].Agreed.Soak) != fmt.Sprint(s.soak())
}

// pass reconciles at every time that the reconciler asks for, until a duration has passed. It returns
// how often the status changed.
func (s *scene) pass(d time.Duration) (writes int) {
	for d > 0 {
		step := d
		if s.next > 0 {
			step = min(d, s.next)
		}
		s.clock.Step(step)
		d -= step
		before := s.p.Status.DeepCopy()
		s.reconcile()
		if !equalStatus(before, &s.p.Status) {
			writes++
		}
	}
	return writes
}

func equalStatus(a, b *pipelinesv1.PipelineStatus) bool {
	return fmt.Sprintf("%#v", statusText(a)) == fmt.Sprintf("%#v", statusText(b))
}

func statusText(s *pipelinesv1.PipelineStatus) string {
	text, err := statusPatch("", &pipelinesv1.PipelineStatus{}, s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func progressing10() index.Observation {
	return index.Observation{Revision: "1.0", Progressing: true, Reason: "Progressing"}
}

// The soak ends although no event arrives: the reconciler asks to be called then. Until then it writes
// no more often than every 15 minutes.
func TestG3SoakEndsWithoutAnEvent(t *testing.T) {
	s := soakScene(t)
	s.runs("dev", ready10())
	s.reconcile()
	began := s.clock.Now()
	s.g.Expect(s.soak()).To(HaveField("Seconds", BeZero()))
	s.g.Expect(s.soak().CountedTime.Time).To(BeTemporally("==", began))
	s.g.Expect(s.next).To(Equal(15 * time.Minute))
	s.g.Expect(s.pass(119 * time.Minute)).To(Equal(7))
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(105 * 60))
	s.g.Expect(s.next).To(Equal(time.Minute))
	s.g.Expect(s.pass(time.Minute)).To(Equal(1))
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(2 * 3600))
	s.g.Expect(s.next).To(BeZero())
	s.g.Expect(s.pass(24*time.Hour)).To(BeZero(), "a soak that is done is not written again")
}

// A hub that is killed at 1h50 and comes back an hour later has lost what was counted since the last
// write, and takes at most 25 minutes more.
func TestG4KilledInASoak(t *testing.T) {
	s := soakScene(t)
	s.runs("dev", ready10())
	s.reconcile()
	s.pass(110 * time.Minute)
	s.clock.Step(time.Hour)
	s.start()
	s.reconcile()
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(105*60), "it is not known what happened meanwhile")
	s.g.Expect(s.dev(ready10())).To(BeTrue(), "readers see from when on it counts")
	s.g.Expect(s.soak().CountedTime.Time).To(BeTemporally("==", s.clock.Now()))
	s.g.Expect(s.next).To(Equal(15 * time.Minute))
	s.pass(15*time.Minute - time.Second)
	s.g.Expect(s.soak().Seconds).To(BeNumerically("<", 2*3600))
	s.pass(time.Second)
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(2 * 3600))
}

// kustomize-controller is at work at each interval: the soak pauses, and does not start again.
func TestG1SoakOfAKustomizationPauses(t *testing.T) {
	s := soakScene(t)
	s.runs("dev", ready10())
	s.reconcile()
	for range 13 {
		s.pass(10 * time.Minute)
		s.dev(progressing10())
		s.pass(30 * time.Second)
		s.g.Expect(s.soak().CountedTime).To(BeNil())
		s.dev(ready10())
	}
	s.g.Expect(s.soak().Seconds).To(BeNumerically(">=", 2*3600))
}

func TestG2SoakRestarts(t *testing.T) {
	s := soakScene(t)
	s.runs("dev", ready10())
	s.reconcile()
	s.pass(time.Hour)
	s.dev(index.Observation{Revision: "1.0", Reason: "HealthCheckFailed"})
	s.g.Expect(s.soak()).To(HaveField("State", pipelinesv1.SoakUnready))
	s.g.Expect(s.next).To(BeNumerically("~", 5*time.Minute, time.Second))
	s.pass(4 * time.Minute)
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(3600))
	s.g.Expect(s.pass(2*time.Minute)).To(Equal(1), "it has been unready for longer than is tolerated")
	s.g.Expect(s.soak().Seconds).To(BeZero())
	s.dev(ready10())
	s.pass(time.Hour)
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(3600))
	other := ready10()
	other.Digest = "0cc9a8446c95"
	s.dev(other)
	s.g.Expect(s.soak()).To(And(HaveField("Seconds", BeZero()), HaveField("Digest", "0cc9a8446c95")), "another content of the same version")
	newer := ready10()
	newer.Revision = "1.1"
	s.pass(time.Hour)
	s.dev(newer)
	s.g.Expect(s.soak().Seconds).To(BeZero())
	s.pass(time.Hour)
	s.dev(other)
	s.g.Expect(s.p.Status.Environments["dev"].Agreed.Sequence).To(BeEquivalentTo(3))
	s.g.Expect(s.soak().Seconds).To(BeZero(), "it left, and came back")
}

// What is not observed neither counts nor restarts. A target that is on its way to another revision
// does neither.
func TestG6NotObservedInASoak(t *testing.T) {
	s := soakScene(t)
	s.p.Spec.Environments[0].Targets = append(s.p.Spec.Environments[0].Targets, pipelinesv1.Target{Namespace: "dev2"})
	s.runs("dev", ready10())
	s.runs("dev2", ready10())
	s.reconcile()
	s.pass(time.Hour)
	s.r.Index.SetFreshness(index.LocalCluster, helmReleases, index.Freshness{Reason: "Unreachable", Message: "no answer"})
	s.g.Expect(s.written()).To(BeTrue())
	s.g.Expect(s.soak().CountedTime).To(BeNil())
	s.pass(3 * time.Hour)
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(3600))
	s.dev(ready10())
	s.pass(30 * time.Minute)
	newer := ready10()
	newer.Revision = "1.1"
	s.dev(newer)
	s.pass(time.Hour)
	s.g.Expect(s.soak()).To(And(HaveField("Seconds", BeEquivalentTo(90*60)), HaveField("CountedTime", BeNil())))
	s.dev(ready10())
	s.pass(30 * time.Minute)
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(2 * 3600))
}

// An application with a digest that is gone is not ready: that is no other content.
func TestApplicationIsGoneInASoak(t *testing.T) {
	chart := ready10()
	chart.Digest = "0cc9a8446c95"
	gone := func(s *scene, namespace string) {
		s.r.Index.Observe(index.Object{Kind: helmReleases, Namespace: namespace, Name: "web"}, index.Observation{})
		s.reconcile()
	}

	t.Run("of one", func(t *testing.T) {
		s := soakScene(t)
		s.runs("dev", chart)
		s.reconcile()
		s.pass(time.Hour)
		gone(s, "dev")
		s.g.Expect(s.soak()).To(And(HaveField("Seconds", BeEquivalentTo(3600)), HaveField("State", pipelinesv1.SoakUnready), HaveField("Digest", chart.Digest)))
		s.pass(6 * time.Minute)
		s.g.Expect(s.soak().Seconds).To(BeZero(), "it was gone for longer than is tolerated")
	})
	t.Run("of a quorum", func(t *testing.T) {
		s := soakScene(t)
		dev := &s.p.Spec.Environments[0]
		dev.Quorum = &pipelinesv1.Quorum{Ready: "60%"}
		dev.Targets = append(dev.Targets, pipelinesv1.Target{Namespace: "dev2"}, pipelinesv1.Target{Namespace: "dev3"})
		for _, target := range dev.Targets {
			s.runs(target.Namespace, chart)
		}
		s.reconcile()
		s.pass(time.Hour)
		gone(s, "dev3")
		s.g.Expect(s.soak()).To(And(HaveField("Seconds", BeEquivalentTo(3600)), HaveField("State", pipelinesv1.SoakReady)), "two of three are enough")
		s.pass(time.Hour)
		s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(2 * 3600))
	})
}

// The sum is written together with any other change, so that a restart loses less.
func TestSoakIsWrittenWithOtherChanges(t *testing.T) {
	s := soakScene(t)
	s.runs("dev", ready10())
	s.reconcile()
	s.pass(14 * time.Minute)
	s.g.Expect(s.soak().Seconds).To(BeZero())
	s.runs("prod", ready10())
	s.reconcile()
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(14 * 60))
}

// Time in which a soak was not required, or its Pipeline was invalid, does not count: neither was
// watched then.
func TestSoakCountsOnlyWhileItIsRequired(t *testing.T) {
	s := soakScene(t)
	s.runs("dev", ready10())
	s.reconcile()
	s.pass(15 * time.Minute)
	gates := s.p.Spec.Environments[1].Gates
	s.p.Spec.Environments[1].Gates = nil
	s.reconcile()
	s.g.Expect(s.soak()).To(BeNil())
	s.g.Expect(s.next).To(BeZero())
	s.pass(time.Hour)
	s.p.Spec.Environments[1].Gates = gates
	s.reconcile()
	s.g.Expect(s.soak().Seconds).To(BeZero())
	s.pass(15 * time.Minute)
	s.p.Spec.AppRef.Kind = "Deployment"
	s.reconcile()
	s.pass(time.Hour)
	s.p.Spec.AppRef.Kind = "HelmRelease"
	s.reconcile()
	s.g.Expect(s.soak().Seconds).To(BeEquivalentTo(15 * 60))
}

// A soak is counted by the monotonic clock, which a change of the wall clock does not move.
func TestG5SoakByTheMonotonicClock(t *testing.T) {
	NewWithT(t).Expect(fmt.Sprint(New(Options{Clock: clock.RealClock{}}).Clock.Now())).To(ContainSubstring(" m=+"))
}

// Gates that are not valid stop only the promotions into their environment, and say what to correct.
func TestInvalidGatesStopOneEnvironment(t *testing.T) {
	s := newScene(t)
	s.p.Spec.Environments[1].Gates = &pipelinesv1.Gates{Windows: []pipelinesv1.Window{{Name: "office", WindowSpec: pipelinesv1.WindowSpec{
		Type: pipelinesv1.AllowWindow, Schedule: "0 9 * * 1-5", Duration: "8h", TimeZone: "Europe/Rigga",
	}}}}
	s.runs("dev", ready10())
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.StalledCondition)).To(And(HaveField("Reason", pipelinesv1.InvalidSpecReason), HaveField("Message",
		`nothing but a rollback is promoted into environment "prod": spec.environments[1].gates.windows[0].timeZone (window "office"): "Europe/Rigga" is not a time zone of the IANA database, such as Europe/Riga or UTC`)))
	s.p.Spec.Environments[0].Gates, s.p.Spec.Environments[1].Gates = &pipelinesv1.Gates{}, nil
	s.reconcile()
	s.g.Expect(s.condition(pipelinesv1.StalledCondition).Message).To(ContainSubstring("move spec.environments[0].gates"))
}
