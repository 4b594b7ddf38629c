package promotions_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// pipelineCRD is the file of the CRD of Pipelines in a directory of CRDs.
const pipelineCRD = "pipelines.weave.works_pipelines.yaml"

// planeOfItsOwn starts an API server whose CRDs a test replaces.
func planeOfItsOwn(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan")})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return plane
}

// apply applies a CRD of Pipelines, and waits until the API server serves it.
func (w *world) apply(ctx context.Context, g Gomega, at *rest.Config, file string, withGates bool) {
	w.Helper()
	_, err := envtest.InstallCRDs(at, envtest.CRDInstallOptions{Paths: []string{file}, ErrorIfPathMissing: true})
	g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	g.EventuallyWithOffset(1, func() bool { return w.pipeline(ctx, "web").ServedInFull() }, 30*time.Second, 50*time.Millisecond).Should(Equal(withGates))
}

// A CRD without gates hides them: that of another product, or an older one. Nothing is promoted then,
// and nothing is written, so that the gates are there again when the hub's CRD is.
func TestG43AndG50AnotherCRD(t *testing.T) {
	t.Parallel()
	ctx, plane := t.Context(), planeOfItsOwn(t)
	present, former := filepath.Join(controlplane.CRDs("capstan")[0], pipelineCRD), filepath.Join(formerCRDs, pipelineCRD)

	t.Run("G43: while a promotion waits", func(t *testing.T) {
		g, w := NewWithT(t), newWorldAt(t, t, plane.Config())
		p := w.newPipeline("web", notify(false), "dev", "prod")
		p.Spec.Gates = frozen()
		h := w.began(ctx, p)
		w.runs("dev", "1.1")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
		version, promoted := w.pipeline(ctx, "web").ResourceVersion, w.newest(ctx, "prod").ResourceVersion

		w.apply(ctx, g, plane.Config(), former, false)
		g.Expect(w.pipeline(ctx, "web").Spec.Gates).To(BeNil(), "they are hidden")
		w.runs("dev", "1.2")
		h.live(ctx, time.Hour, 10*time.Minute)
		next := w.hub("next", w.c, nil)
		next.live(ctx, time.Hour, 10*time.Minute)
		g.Expect(w.receiver.received()).To(BeEmpty())
		g.Expect(w.pipeline(ctx, "web").ResourceVersion).To(Equal(version))
		g.Expect(w.newest(ctx, "prod").ResourceVersion).To(Equal(promoted))

		w.apply(ctx, g, plane.Config(), present, true)
		g.Expect(w.pipeline(ctx, "web").Spec.Gates).To(Equal(frozen()))
		next.settle(ctx)
		g.Expect(w.newest(ctx, "prod").Spec.Revision).To(Equal("1.2"))
		g.Expect(w.newest(ctx, "prod").Status.Reason).To(Equal(gate.ReasonFrozen))
	})

	// The hub has read the Pipeline with its gates when the CRD is replaced. Its write is refused.
	t.Run("G50: between a read and a write", func(t *testing.T) {
		g, w := NewWithT(t), newWorldAt(t, t, plane.Config())
		p := w.newPipeline("web", notify(false), "dev", "prod")
		p.Spec.Gates = frozen()
		h := w.began(ctx, p)
		version := w.pipeline(ctx, "web").ResourceVersion
		w.runs("dev", "1.1")
		swapped := false
		late := w.hub("late", beforeWrite{w.c, func() {
			if !swapped {
				swapped = true
				w.apply(ctx, g, plane.Config(), former, false)
			}
		}}, nil)
		late.pass(ctx)
		g.Expect(swapped).To(BeTrue())
		g.Expect(w.pipeline(ctx, "web").ResourceVersion).To(Equal(version))
		w.apply(ctx, g, plane.Config(), present, true)
		g.Expect(w.pipeline(ctx, "web").Spec.Gates).To(Equal(frozen()), "no write of the hub has lost them")
		h.settle(ctx)
		w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingGates)
	})

	// The CRD is replaced after the hub has looked at the gates and before it pushes.
	t.Run("G50: between a read and a push", func(t *testing.T) {
		g, w := NewWithT(t), newWorldAt(t, t, plane.Config())
		newForge(t, w, pipelinesv1.GitHub, "staging")
		h := w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "staging"))
		w.hosted.once(http.MethodGet, "/pulls", func() { w.apply(ctx, g, plane.Config(), former, false) })
		w.runs("dev", "1.1")
		h.settle(ctx)
		g.Expect(w.forge.Branches()).To(HaveLen(1), "no push")
		held := w.newest(ctx, "staging")
		g.Expect(held.Status.Phase).To(Equal(capstanv1.PhasePromoting))
		w.apply(ctx, g, plane.Config(), present, true)
		h.rest(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
		g.Expect(w.forge.PullRequests()).To(HaveLen(1))
	})
}

// A CRD of an earlier Capstan keeps the gates and hides selectors and waves: the environment would be one in the management cluster.
func TestG43WithoutFleets(t *testing.T) {
	t.Parallel()
	ctx, g := t.Context(), NewWithT(t)
	plane := planeOfItsOwn(t)
	present := filepath.Join(controlplane.CRDs("capstan")[0], pipelineCRD)
	w := newWorldAt(t, t, plane.Config())
	for i, c := range []string{"eu-0", "eu-1", "eu-2"} {
		w.label(c, ring(i))
	}
	p := w.newPipeline("web", notify(false), "dev", "prod")
	p.Spec.Environments[1].Targets, p.Spec.Environments[1].Waves = prodTargets(), rings()
	g.Expect(w.c.Create(ctx, p)).To(Succeed())
	h := w.hub("hub", w.c, nil)
	h.settle(ctx)
	for _, c := range []string{"dev", "eu-0", "eu-1", "eu-2"} {
		w.runs(c, "1.0")
	}
	h.settle(ctx)
	version := w.pipeline(ctx, "web").ResourceVersion

	w.apply(ctx, g, plane.Config(), withoutFleets(t, present), false)
	hidden := w.pipeline(ctx, "web")
	g.Expect(hidden.Status.Schema).To(Equal(pipelinesv1.StatusSchema), "it keeps gates")
	g.Expect(hidden.Spec.Environments[1]).To(And(HaveField("Waves", BeEmpty()), HaveField("Targets", HaveExactElements(HaveField("Clusters", BeNil())))))
	w.runs("dev", "1.1")
	h.live(ctx, time.Hour, 10*time.Minute)
	next := w.hub("next", w.c, nil)
	next.live(ctx, time.Hour, 10*time.Minute)
	g.Expect(w.promotions(ctx)).To(BeEmpty())
	g.Expect(w.receiver.received()).To(BeEmpty())
	g.Expect(w.pipeline(ctx, "web").ResourceVersion).To(Equal(version))

	w.apply(ctx, g, plane.Config(), present, true)
	g.Expect(w.pipeline(ctx, "web").Spec.Environments[1].Waves).To(Equal(rings()))
	next.live(ctx, time.Minute, 10*time.Second)
	g.Expect(w.promotions(ctx)).To(BeEmpty(), "nothing is observed yet: the clusters were not watched")
	for _, c := range []string{"eu-0", "eu-1", "eu-2"} {
		w.runs(c, "1.0")
	}
	next.live(ctx, time.Minute, 10*time.Second)
	w.expectPhase(ctx, g, "prod/canary", capstanv1.PhaseAwaitingRollout)
	g.Expect(w.into(ctx, "prod")).To(BeEmpty())
}

// withoutFleets writes a CRD of Pipelines without the fields of fleets, and returns the file.
func withoutFleets(t *testing.T, file string) string {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	g.Expect(yaml.Unmarshal(text, &crd)).To(Succeed())
	properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	delete(properties["status"].Properties, "schemaFleets")
	environment := properties["spec"].Properties["environments"].Items.Schema
	delete(environment.Properties, "waves")
	delete(environment.Properties, "quorum")
	delete(environment.Properties["targets"].Items.Schema.Properties, "clusters")
	text, err = yaml.Marshal(crd)
	g.Expect(err).NotTo(HaveOccurred())
	earlier := filepath.Join(t.TempDir(), pipelineCRD)
	g.Expect(os.WriteFile(earlier, text, 0o600)).To(Succeed())
	return earlier
}

// beforeWrite calls do before each write of a status.
type beforeWrite struct {
	client.Client
	do func()
}

func (b beforeWrite) Status() client.SubResourceWriter {
	return statusBeforeWrite{b.Client.Status(), b.do}
}

type statusBeforeWrite struct {
	client.SubResourceWriter
	do func()
}

func (b statusBeforeWrite) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	b.do()
	return b.SubResourceWriter.Patch(ctx, o, patch, options...)
}
