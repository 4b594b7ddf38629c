package pipeline

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/index"
)

// patches receives the patches of a Pipeline's status. It panics at every other call.
type patches struct {
	client.Client

	g    *WithT
	sent int
}

func (p *patches) Status() client.SubResourceWriter { return statusPatches{of: p} }

// statusPatches is its client for status.
type statusPatches struct {
	client.SubResourceWriter
	of *patches
}

func (p statusPatches) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	raw, err := patch.Data(o)
	p.of.g.Expect(err).NotTo(HaveOccurred())
	var operations []operation
	p.of.g.Expect(json.Unmarshal(raw, &operations)).To(Succeed())
	p.of.g.Expect(operations[0].Op).To(Equal("test"))
	p.of.g.Expect(operations[1].Path).To(Equal("/metadata/resourceVersion"))
	for _, o := range operations[2:] {
		p.of.g.Expect(o.Path).To(HavePrefix("/status/dryRun"), "nothing else is written")
	}
	p.of.sent++
	return nil
}

// dry is a scene in dry run.
type dry struct {
	*scene
	api *patches
}

func newDry(t *testing.T) *dry {
	d := &dry{scene: newScene(t)}
	d.r.DryRun = true
	d.api = &patches{g: d.g}
	d.r.Client = d.api
	return d
}

// reconcile returns the Events. The Pipeline is as stored afterwards.
func (d *dry) reconcile() []string {
	stored := d.p.DeepCopy()
	result, err := d.r.reconcileDry(context.Background(), stored, nil)
	d.g.Expect(err).NotTo(HaveOccurred())
	d.next = result.RequeueAfter
	d.p.Status = stored.Status
	var all []string
	for len(d.recorder.Events) > 0 {
		all = append(all, <-d.recorder.Events)
	}
	return all
}

func TestADryRunWritesItsOwnFieldOnly(t *testing.T) {
	d := newDry(t)
	d.p.Status.Environments = map[string]*pipelinesv1.EnvironmentStatus{"dev": {Targets: []pipelinesv1.TargetStatus{{Error: "of the other controller"}}}}
	others := d.p.Status.DeepCopy()
	d.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
	d.runs("prod", ready10())
	d.g.Expect(d.reconcile()).To(ConsistOf(And(ContainSubstring("WouldPromote"), ContainSubstring(`1.1 would be promoted from environment "dev" into "prod", which runs 1.0, by notification`))))
	d.g.Expect(d.api.sent).To(Equal(1))
	d.g.Expect(d.p.Status.DryRun.Environments).To(Equal([]pipelinesv1.DryRunEnvironment{
		{Name: "dev", Runs: []string{"1.1"}},
		{Name: "prod", Runs: []string{"1.0"}, Promotion: &pipelinesv1.DryRunPromotion{Revision: "1.1", Source: "dev", Strategy: "notification"}},
	}))
	d.g.Expect(d.r.dry.due()).To(Equal(1.0))
	now := d.p.Status.DeepCopy()
	now.DryRun = nil
	d.g.Expect(now).To(Equal(others))

	// Nothing changed: nothing is written.
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.api.sent).To(Equal(1))
}

// pipeline-controller reconciles after each write, and may repeat a promotion then.
func TestADryRunWritesRarely(t *testing.T) {
	d := newDry(t)
	d.runs("dev", ready10())
	d.runs("prod", ready10())
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.p.Status.DryRun.Message).To(Equal(pipelinesv1.DryRunNothingDue))
	d.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
	d.clock.Step(time.Second)
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.api.sent).To(Equal(1))
	d.g.Expect(d.next).To(Equal(dryRunInterval - time.Second))
	d.clock.Step(d.next)
	d.g.Expect(d.reconcile()).To(HaveLen(1))
	d.g.Expect(d.api.sent).To(Equal(2))

	// Another controller that removes the field starts no duel, and no Event is repeated.
	d.p.Status.DryRun = nil
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.api.sent).To(Equal(2))
	d.clock.Step(dryRunInterval)
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.api.sent).To(Equal(3))
}

// A restart records no Event again.
func TestARestartedDryRunContinues(t *testing.T) {
	d := newDry(t)
	d.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
	d.runs("prod", ready10())
	d.g.Expect(d.reconcile()).To(HaveLen(1))
	d.start()
	d.r.DryRun, d.r.Client = true, d.api
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.next).To(Equal(leastHold), "nothing is observed yet")
	d.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
	d.runs("prod", ready10())
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.api.sent).To(Equal(1))
}

// A hub that promotes owns the whole status.
func TestTheHubRemovesWhatADryRunWrote(t *testing.T) {
	s := newScene(t)
	s.p.Status.DryRun = &pipelinesv1.DryRunStatus{Message: "Dry run"}
	s.runs("dev", ready10())
	s.reconcile()
	s.g.Expect(s.p.Status.DryRun).To(BeNil())
}

func TestADryRunSaysWhyNothingIsPromoted(t *testing.T) {
	d := newDry(t)
	d.p.Spec.Suspend = true
	d.p.Spec.Environments[1].Targets[0].ClusterRef = &pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Name: "nowhere"}
	d.runs("dev", index.Observation{Ready: true, Revision: "1.1"})
	d.g.Expect(d.reconcile()).To(BeEmpty())
	d.g.Expect(d.p.Status.DryRun.Message).To(And(HavePrefix("Dry run: no promotion is due; the Pipeline is suspended; "), ContainSubstring("nowhere not found")))
}
