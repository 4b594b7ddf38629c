package promotions_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

// services of the drills: a Git service in the test's hands, and a real Gitea.
var services = map[string]func(*testing.T, *world){
	"forge": func(t *testing.T, w *world) { newForge(t, w, pipelinesv1.Gitea, "staging") },
	"Gitea": func(t *testing.T, w *world) {
		server, robot := startedGitea(t)
		newOnGitea(t, w, server, robot, "staging")
	},
}

// onServices plays a drill on the service that is named; in `make soak` on both.
func onServices(t *testing.T, named string, drill func(*testing.T, func(*testing.T, *world))) {
	t.Helper()
	for name, host := range services {
		if name != named && !soak() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drill(t, host)
		})
	}
}

// beganDrill sets up two Pipelines of one application. Pipeline web promotes by pull request into
// staging, and Pipeline web-notified by notification into prod. Both have promoted 1.1.
func (w *world) beganDrill(ctx context.Context, g Gomega) *hubUnder {
	w.Helper()
	w.began(ctx, w.newPipeline("web", w.pull(nil), "dev", "staging"))
	h := w.began(ctx, w.newPipeline("web-notified", notify(false), "dev", "prod"))
	w.arrives(ctx, g, h, "1.1")
	return h
}

// arrives promotes a revision into both environments, all the way.
func (w *world) arrives(ctx context.Context, g Gomega, h *hubUnder, revision string) {
	w.runs("dev", revision)
	h.rest(ctx)
	open := w.hosted.opened("staging")
	g.Expect(open).To(HaveLen(1), "%s has one pull request\n%s", revision, w.print(ctx))
	w.hosted.merge(open[0])
	w.runs("staging", revision)
	w.runs("prod", revision)
	h.rest(ctx)
	for _, env := range []string{"staging", "prod"} {
		p := w.present(ctx, env)
		g.Expect(p.Spec.Revision).To(Equal(revision))
		g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseSucceeded), "%s into %s\n%s", revision, env, w.print(ctx))
	}
}

// present returns the newest promotion into an environment that the present Pipeline created;
// promotions of a former one of its name stay as the audit trail.
func (w *world) present(ctx context.Context, env string) capstanv1.Promotion {
	w.Helper()
	var newest capstanv1.Promotion
	for _, p := range w.into(ctx, env) {
		if p.Spec.Pipeline.UID == w.pipeline(ctx, p.Spec.Pipeline.Name).UID {
			newest = p
		}
	}
	return newest
}

// notified returns how often each revision was notified.
func (w *world) notified() map[string]int {
	times := map[string]int{}
	for _, e := range w.receiver.received() {
		times[e.Metadata["pipelines.weave.works/version"]]++
	}
	return times
}

// The drill of docs/operations.md, "from a snapshot of etcd": the management cluster is put
// back to a state before two promotions into each environment. The hub continues: nothing is
// promoted twice, and nothing is blocked.
func TestDrillRestoreOfAnEtcdSnapshot(t *testing.T) {
	t.Parallel()
	onServices(t, "Gitea", func(t *testing.T, host func(*testing.T, *world)) {
		g, ctx := NewWithT(t), t.Context()
		data, snapshot := filepath.Join(t.TempDir(), "etcd"), filepath.Join(t.TempDir(), "snapshot")
		plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan"), EtcdData: data})
		g.Expect(err).NotTo(HaveOccurred())
		w := newWorldAt(t, t, plane.Config())
		host(t, w)
		w.beganDrill(ctx, g)

		// The snapshot.
		g.Expect(plane.Stop()).To(Succeed())
		g.Expect(os.CopyFS(snapshot, os.DirFS(data))).To(Succeed())

		// Production continues, with two promotions into each environment.
		h, stop := w.continueAt(t, g, data)
		w.runs("dev", "1.2")
		h.rest(ctx)
		w.runs("prod", "1.2")
		w.runs("dev", "1.3")
		h.rest(ctx)
		g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1, 2, 3}))
		g.Expect(numbers(w.into(ctx, "prod"))).To(Equal([]int64{1, 2, 3}))
		lost := w.opened(g)
		g.Expect(w.notified()).To(Equal(map[string]int{"1.1": 1, "1.2": 1, "1.3": 1}))

		// The cluster is lost. Step 1: the hub is stopped. Step 2: etcd and the API server
		// are started from the snapshot.
		stop()
		h, stop = w.continueAt(t, g, snapshot)
		t.Cleanup(stop)
		g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1}), "the ledger is that of the snapshot")
		// Step 3: what was notified arrives.
		w.runs("prod", "1.3")
		// Step 4: the hub is started.
		h.rest(ctx)
		g.Expect(numbers(w.into(ctx, "staging"))).To(Equal([]int64{1, 2, 4}), "above the lost number 3")
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseAwaitingMerge)
		g.Expect(w.opened(g)).To(Equal(lost), "the pull request is taken over, and none is opened")
		g.Expect(w.notified()).To(Equal(map[string]int{"1.1": 1, "1.2": 1, "1.3": 1}), "nothing is sent twice")

		w.hosted.merge(lost.open)
		w.runs("staging", "1.3")
		h.rest(ctx)
		w.expectPhase(ctx, g, "staging", capstanv1.PhaseSucceeded)
		w.arrives(ctx, g, h, "1.4")
		g.Expect(w.hosted.doubled()).To(BeEmpty())
		g.Expect(w.notified()).To(HaveEach(1))
	})
}

// continueAt starts a control plane from a directory of etcd's data, and a hub at it.
func (w *world) continueAt(t *testing.T, g Gomega, data string) (h *hubUnder, stop func()) {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{EtcdData: data})
	g.Expect(err).NotTo(HaveOccurred())
	w.c, err = client.NewWithWatch(plane.Config(), client.Options{Scheme: hub.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return w.hub("restored", w.c, nil), func() { g.Expect(plane.Stop()).To(Succeed()) }
}

// The drill of docs/operations.md, "from a copy of the objects": all objects are created
// again as Velero does it by default, with new UIDs and without status.
func TestDrillRestoreOfObjects(t *testing.T) {
	t.Parallel()
	onServices(t, "forge", func(t *testing.T, host func(*testing.T, *world)) {
		g, ctx, w := NewWithT(t), t.Context(), newWorld(t, t)
		host(t, w)
		h := w.beganDrill(ctx, g)
		w.runs("dev", "1.2")
		h.rest(ctx)
		lost := w.opened(g)
		g.Expect(w.notified()).To(Equal(map[string]int{"1.1": 1, "1.2": 1}))

		// Step 1: the hub is stopped. Step 2: the objects are created again.
		w.recreate(ctx, g)
		// Step 3: what was notified arrives.
		w.runs("prod", "1.2")
		// Step 4: the hub is started.
		h = w.hub("restored", w.c, nil)
		h.settle(ctx) // The index receives the demand again.
		for env, revision := range map[string]string{"dev": "1.2", "staging": "1.1", "prod": "1.2"} {
			w.runs(env, revision)
		}
		h.rest(ctx)
		g.Expect(w.opened(g)).To(Equal(lost), "the pull request is taken over, and none is opened\n%s", w.print(ctx))
		g.Expect(w.notified()).To(Equal(map[string]int{"1.1": 1, "1.2": 1}), "nothing is sent twice")

		w.hosted.merge(lost.open)
		w.runs("staging", "1.2")
		h.rest(ctx)
		w.arrives(ctx, g, h, "1.3")
		g.Expect(w.hosted.doubled()).To(BeEmpty())
		g.Expect(w.notified()).To(HaveEach(1))
	})
}

// recreate deletes the objects of the world and creates them again.
func (w *world) recreate(ctx context.Context, g Gomega) {
	var pipelines pipelinesv1.PipelineList
	var promotions capstanv1.PromotionList
	var secrets corev1.SecretList
	var all []client.Object
	for _, list := range []client.ObjectList{&pipelines, &promotions, &secrets} {
		g.Expect(w.c.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
	}
	for i := range pipelines.Items {
		pipelines.Items[i].Status = pipelinesv1.PipelineStatus{}
		all = append(all, &pipelines.Items[i])
	}
	for i := range promotions.Items {
		promotions.Items[i].Status = capstanv1.PromotionStatus{}
		all = append(all, &promotions.Items[i])
	}
	for i := range secrets.Items {
		all = append(all, &secrets.Items[i])
	}
	for _, o := range all {
		g.Expect(w.c.Delete(ctx, o)).To(Succeed())
	}
	for _, o := range all {
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetGeneration(0)
		o.SetCreationTimestamp(metav1.Time{})
		o.SetManagedFields(nil)
		g.Expect(w.c.Create(ctx, o)).To(Succeed())
	}
}
