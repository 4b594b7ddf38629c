package promotions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// formerCRDs are the CustomResourceDefinitions of the version before times were named
// by the Kubernetes API conventions.
var formerCRDs = filepath.Join("testdata", "former-crds")

// formerState is a Promotion at an upgrade: how it came to its state before, and what
// is true after a hub of this version started over it.
type formerState struct {
	pulls bool
	spec  func(*world) *pipelinesv1.Promotion
	// before brings the Promotion to its phase.
	before func(context.Context, Gomega, *world, *hubUnder)
	phase  capstanv1.PromotionPhase
	// between is what users do after the CRDs were upgraded and before the hub was.
	between func(context.Context, Gomega, *world)
	// after checks how the promotion continues.
	after func(context.Context, Gomega, *world, *hubUnder)
}

func byNotification(manual bool) func(*world) *pipelinesv1.Promotion {
	return func(*world) *pipelinesv1.Promotion { return notify(manual) }
}

func byPullRequest(w *world) *pipelinesv1.Promotion { return w.pull(nil) }

func promoted(ctx context.Context, _ Gomega, w *world, h *hubUnder) {
	w.runs("dev", "1.1")
	h.settle(ctx)
}

// rolledOut has the target run the revision, which ends the promotion.
func rolledOut(ctx context.Context, g Gomega, w *world, h *hubUnder) {
	w.runs("prod", "1.1")
	h.settle(ctx)
	w.expectPhase(ctx, g, "prod", capstanv1.PhaseSucceeded)
}

func formerStates() map[string]formerState {
	return map[string]formerState{
		"AwaitingApproval": {
			spec: byNotification(true), before: promoted, phase: capstanv1.PhaseAwaitingApproval,
			between: func(ctx context.Context, g Gomega, w *world) { approve(ctx, g, w, w.newest(ctx, "prod")) },
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
				g.Expect(w.receiver.received()).To(HaveLen(1))
				rolledOut(ctx, g, w, h)
			},
		},
		"Promoting, after a failed attempt": {
			spec: byNotification(false), phase: capstanv1.PhasePromoting,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				w.receiver.fail = 1
				promoted(ctx, g, w, h)
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				g.Expect(w.receiver.received()).To(BeEmpty(), "the backoff is not over")
				w.clock.SetTime(w.newest(ctx, "prod").Status.Attempt.NextAttemptTime.Time)
				h.settle(ctx)
				g.Expect(w.receiver.received()).To(HaveLen(1))
				rolledOut(ctx, g, w, h)
			},
		},
		"Promoting, with an attempt under way": {
			spec: byNotification(false), phase: capstanv1.PhasePromoting,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				w.receiver.fail = 1
				promoted(ctx, g, w, h)
				p := w.newest(ctx, "prod")
				before := p.DeepCopy()
				p.Status.Attempt.Error, p.Status.Attempt.NextAttemptTime = "", metav1.NewMicroTime(w.clock.Now().Add(4*time.Minute))
				g.Expect(w.c.Status().Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				w.clock.Step(4*time.Minute - time.Second)
				h.settle(ctx)
				g.Expect(w.receiver.received()).To(BeEmpty(), "the attempt's deadline is not over")
				w.clock.Step(time.Second)
				h.settle(ctx)
				g.Expect(w.receiver.received()).To(HaveLen(1))
				g.Expect(w.newest(ctx, "prod").Status.Attempt.Number).To(BeEquivalentTo(2))
			},
		},
		"AwaitingMerge": {
			pulls: true, spec: byPullRequest, before: promoted, phase: capstanv1.PhaseAwaitingMerge,
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				g.Expect(w.forge.PullRequests()).To(HaveLen(1), "not opened again")
				w.forge.merge(1)
				h.rest(ctx)
				w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingRollout)
				rolledOut(ctx, g, w, h)
			},
		},
		"AwaitingRollout, approved": {
			spec: byNotification(true), phase: capstanv1.PhaseAwaitingRollout,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				promoted(ctx, g, w, h)
				approve(ctx, g, w, w.newest(ctx, "prod"))
				h.settle(ctx)
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				g.Expect(w.receiver.received()).To(HaveLen(1), "notified before the upgrade, and not again")
				rolledOut(ctx, g, w, h)
			},
		},
		"Succeeded": {
			spec: byNotification(false), phase: capstanv1.PhaseSucceeded,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				w.delivered(ctx, h, "prod", "1.0.9", "1.1", "1.2")
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				g.Expect(w.receiver.received()).To(HaveLen(3))
				w.clock.Step(29 * 24 * time.Hour)
				h.settle(ctx)
				g.Expect(w.into(ctx, "prod")).To(HaveLen(3), "the retention is not over")
				w.clock.Step(2 * 24 * time.Hour)
				h.settle(ctx)
				kept := w.into(ctx, "prod")
				g.Expect(numbers(kept)).To(Equal([]int64{2, 3}), "retention counts from the time at which the promotion finished")
			},
		},
		"Failed": {
			pulls: true, spec: byPullRequest, phase: capstanv1.PhaseFailed,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				w.token(ctx, "expired-token-000")
				promoted(ctx, g, w, h)
				for end := w.clock.Now().Add(time.Hour); w.newest(ctx, "prod").Status.Phase != capstanv1.PhaseFailed && w.clock.Now().Before(end); {
					w.clock.Step(faultStep)
					h.settle(ctx)
				}
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				g.Expect(w.forge.PullRequests()).To(BeEmpty())
				w.token(ctx, providertest.Token)
				h.rest(ctx)
				w.expectPhase(ctx, g, "prod", capstanv1.PhaseAwaitingMerge, "it waited for the Secret")
				g.Expect(w.forge.PullRequests()).To(HaveLen(1))
			},
		},
		"Rejected": {
			pulls: true, spec: byPullRequest, phase: capstanv1.PhaseRejected,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				promoted(ctx, g, w, h)
				w.forge.SetState(1, providertest.Closed)
				h.rest(ctx)
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				h.rest(ctx)
				g.Expect(w.forge.PullRequests()).To(HaveLen(1), "not opened again")
			},
		},
		"Superseded": {
			spec: byNotification(true), phase: capstanv1.PhaseAwaitingApproval,
			before: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				promoted(ctx, g, w, h)
				w.runs("dev", "1.2")
				h.settle(ctx)
				g.Expect(w.into(ctx, "prod")[0].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
			},
			after: func(ctx context.Context, g Gomega, w *world, h *hubUnder) {
				g.Expect(w.into(ctx, "prod")[0].Status.Phase).To(Equal(capstanv1.PhaseSuperseded))
				g.Expect(w.into(ctx, "prod")).To(HaveLen(2))
				g.Expect(w.receiver.received()).To(BeEmpty())
			},
		},
	}
}

// A hub of this version starts over objects that the version before stored: nothing is
// done twice, no time is lost, and the objects get the present names.
func TestUpgradeFromFormerNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	plane, err := controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan")})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})

	// The states, with their present names.
	states, worlds := formerStates(), map[string]*world{}
	for name, s := range states {
		w := newWorldAt(t, t, plane.Config())
		worlds[name] = w
		if s.pulls {
			newForge(t, w, pipelinesv1.Gitea, "prod")
		}
		s.before(ctx, g, w, w.began(ctx, w.newPipeline("web", s.spec(w), "dev", "prod")))
		g.Expect(w.newest(ctx, "prod").Status.Phase).To(Equal(s.phase), name)
	}
	present := map[string]stored{}
	for name, w := range worlds {
		present[name] = w.stored(ctx, g)
	}

	// The same, as the version before stored them, under its CRDs.
	probe := worlds["Succeeded"]
	connection := &capstanv1.ClusterConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: probe.ns, Name: "cluster.dev"},
		Spec:       capstanv1.ClusterConnectionSpec{ClusterRef: pipelinesv1.CrossNamespaceClusterReference{Kind: "Cluster", Namespace: probe.ns, Name: "dev"}},
	}
	g.Expect(probe.c.Create(ctx, connection)).To(Succeed())
	install(ctx, g, plane.Config(), probe, connection, formerCRDs, false)
	former := map[string]stored{}
	for name, w := range worlds {
		w.storeFormer(ctx, g, present[name])
		former[name] = w.stored(ctx, g)
		g.Expect(former[name].text()).NotTo(MatchRegexp(`(start|finish|approval|nextAttempt|observed)Time"`))
	}
	replace(ctx, g, probe, connection.DeepCopy(), map[string]any{
		"state": "Ready", "reason": "Connected", "since": "2026-01-01T00:00:00Z", "credentialExpiry": "2027-01-01T00:00:00Z",
	})

	// The upgrade of the CRDs alone loses nothing.
	install(ctx, g, plane.Config(), probe, connection, controlplane.CRDs("capstan")[0], true)
	for name, w := range worlds {
		g.Expect(w.stored(ctx, g).withoutNew()).To(Equal(former[name].withoutNew()), name)
	}
	g.Expect(probe.c.Get(ctx, client.ObjectKeyFromObject(connection), connection)).To(Succeed())
	g.Expect(connection.Status.LastTransitionTime.UTC()).To(Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	g.Expect(connection.Status.CredentialExpiryTime.UTC()).To(Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))

	for name, s := range states {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), worlds[name]
			if s.between != nil {
				s.between(ctx, g, w)
			}
			h := w.hub("upgraded", w.c, nil)
			h.settle(ctx)
			migrated := w.stored(ctx, g)
			g.Expect(migrated.text()).NotTo(MatchRegexp(`"(startedAt|finishedAt|notBefore|observedAt|at)":`), "every object has the present names")
			if s.between == nil {
				g.Expect(migrated.withoutNew()).To(Equal(present[name].withoutNew()), "and the times, approvals and attempts that it had")
			}
			s.after(ctx, g, w, h)
		})
	}
}

// stored are the statuses of a world's objects as the API server has them, by kind
// and name.
type stored map[string]map[string]any

// withoutNew leaves out what the version before did not store.
func (s stored) withoutNew() stored {
	known := stored{}
	for name, status := range s {
		known[name] = maps.Clone(status)
		delete(known[name], "carriedOutTime")
		delete(known[name], "failure")
		delete(known[name], "schema") // Defaults of the CRD.
		delete(known[name], "schemaFleets")
	}
	return known
}

func (s stored) text() string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (w *world) objects(ctx context.Context, g Gomega) []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, kind := range []string{pipelinesv1.PipelineKind, capstanv1.PromotionKind} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(capstanv1.GroupVersion.WithKind(kind))
		if kind == pipelinesv1.PipelineKind {
			list.SetGroupVersionKind(pipelinesv1.GroupVersion.WithKind(kind))
		}
		g.Expect(w.c.List(ctx, list, client.InNamespace(w.ns))).To(Succeed())
		all = append(all, list.Items...)
	}
	return all
}

func (w *world) stored(ctx context.Context, g Gomega) stored {
	statuses := stored{}
	for _, o := range w.objects(ctx, g) {
		status, _, err := unstructured.NestedMap(o.Object, "status")
		g.Expect(err).NotTo(HaveOccurred())
		statuses[o.GetKind()+" "+o.GetName()] = status
	}
	return statuses
}

// storeFormer writes the statuses under the names of the version before.
func (w *world) storeFormer(ctx context.Context, g Gomega, present stored) {
	for _, o := range w.objects(ctx, g) {
		status := (&unstructured.Unstructured{Object: present[o.GetKind()+" "+o.GetName()]}).DeepCopy().Object
		if o.GetKind() == capstanv1.PromotionKind {
			formerPromotion(status)
		} else {
			formerPipeline(status)
		}
		replace(ctx, g, w, &o, status)
	}
}

func replace(ctx context.Context, g Gomega, w *world, o client.Object, status map[string]any) {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.c.Status().Patch(ctx, o, client.RawPatch(types.JSONPatchType, patch))).To(Succeed())
}

func formerPromotion(status map[string]any) {
	delete(status, "observedGeneration")
	rename(status, "startTime", "startedAt")
	rename(status, "finishTime", "finishedAt")
	rename(status["approval"], "approvalTime", "at")
	rename(status["attempt"], "startTime", "at")
	rename(status["attempt"], "nextAttemptTime", "notBefore")
}

func formerPipeline(status map[string]any) {
	environments, _ := status["environments"].(map[string]any)
	for _, e := range environments {
		targets, _ := e.(map[string]any)["targets"].([]any)
		for _, target := range targets {
			rename(target, "observedTime", "observedAt")
		}
	}
}

func rename(in any, from, to string) {
	fields, _ := in.(map[string]any)
	if value, ok := fields[from]; ok {
		delete(fields, from)
		fields[to] = value
	}
}

// install replaces the CRDs, and waits until the API server serves objects by each of them.
func install(ctx context.Context, g *WithT, config *rest.Config, w *world, c *capstanv1.ClusterConnection, path string, knowsPresentNames bool) {
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true})
	g.Expect(err).NotTo(HaveOccurred())
	serves := func(o client.Object, patch string, present string) func() error {
		return func() error {
			probe := &unstructured.Unstructured{}
			probe.SetNamespace(o.GetNamespace())
			probe.SetName(o.GetName())
			kinds, _, err := w.c.Scheme().ObjectKinds(o)
			if err != nil {
				return err
			}
			probe.SetGroupVersionKind(kinds[0])
			if err := w.c.Status().Patch(ctx, probe, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll); err != nil {
				return err
			}
			status, _ := probe.Object["status"].(map[string]any)
			if text := (stored{"": status}).text(); knowsPresentNames != strings.Contains(text, `"`+present+`":`) {
				return fmt.Errorf("the API server does not serve the CRDs of %s yet: %s", path, text)
			}
			return nil
		}
	}
	p := w.newest(ctx, "prod")
	g.Eventually(serves(&p, `{"status":{"startTime":"2026-01-01T00:00:00Z"}}`, "startTime")).Should(Succeed())
	g.Eventually(serves(w.pipeline(ctx, "web"),
		`{"status":{"environments":{"probe":{"targets":[{"clusterAppRef":{"apiVersion":"v1","kind":"K","name":"n"},"ready":true,"observedTime":"2026-01-01T00:00:00Z"}]}}}}`,
		"observedTime")).Should(Succeed())
	g.Eventually(serves(c, `{"status":{"lastTransitionTime":"2026-01-01T00:00:00Z"}}`, "lastTransitionTime")).Should(Succeed())
}
