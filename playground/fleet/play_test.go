package fleet

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/playground/leaks"
)

func good(context.Context, *stage) error { return nil }

func TestEveryStepIsPlayedAndShown(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	outcomes := playAll(t.Context(), &out, []step{
		{name: "first", does: "this", expects: "that", within: time.Minute, play: good},
		{name: "second", within: time.Minute, play: func(ctx context.Context, s *stage) error {
			return s.await(ctx, "something", func(context.Context) error { return nil })
		}},
	})
	g.Expect(verdict(outcomes)).To(Succeed())
	summary(&out, outcomes)
	g.Expect(out.String()).To(And(
		ContainSubstring("1/2  first\n      does:    this\n      expects: that\n"),
		MatchRegexp(`  ✓   something  \(\d+\.\ds\)\n`),
		MatchRegexp(`Summary\n  ✓ 1  first   \d+\.\ds`),
		MatchRegexp(`\n  ✓ 2  second  \d+\.\ds`),
	))
}

func TestAFailedStepIsNamedAndEndsTheStory(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	outcomes := playAll(t.Context(), &out, []step{
		{name: "first", within: time.Minute, play: good},
		{name: "second", within: 50 * time.Millisecond, play: func(ctx context.Context, s *stage) error {
			return s.await(ctx, "prod runs 1.1.0", func(context.Context) error { return errors.New("it runs 1.0.0") })
		}},
		{name: "third", within: time.Minute, play: good},
	})
	err := verdict(outcomes)
	g.Expect(err).To(MatchError(And(
		ContainSubstring("second: prod runs 1.1.0: waited"),
		ContainSubstring("it runs 1.0.0 (context deadline exceeded)"))))
	summary(&out, outcomes)
	g.Expect(out.String()).To(And(
		ContainSubstring("✓ 1  first"), ContainSubstring("✗ 2  second"), ContainSubstring("– 3  third"), ContainSubstring("not played")))
}

func TestPollTellsTheLastThingItKnew(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := poll(ctx, func(ctx context.Context) error {
		if calls++; calls == 1 {
			return errors.New("not yet")
		}
		cancel()
		return ctx.Err()
	})
	g.Expect(err).To(MatchError(And(ContainSubstring("not yet"), ContainSubstring("context canceled"))))
}

func TestTeardownGoesBackwardsAndEndsParts(t *testing.T) {
	defer leaks.VerifyNone(t)
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second) // The machine may be busy.
	ctx, broken := context.WithCancelCause(t.Context())
	var down teardown
	var order []string
	down.add(func() error { order = append(order, "plane"); return nil })
	parts := &parts{broken: broken, down: &down}
	parts.start("hub", func(ctx context.Context) error {
		<-ctx.Done()
		order = append(order, "hub")
		return nil
	})
	g.Expect(down.all()).To(Succeed())
	g.Expect(order).To(Equal([]string{"hub", "plane"}))
	g.Expect(ctx.Err()).NotTo(HaveOccurred(), "what was stopped did not break")

	parts.start("hub", func(context.Context) error { return errors.New("lost its lease") })
	g.Eventually(ctx.Done()).Should(BeClosed())
	g.Expect(context.Cause(ctx)).To(MatchError(ContainSubstring("hub ended by itself: lost its lease")))
	g.Expect(down.all()).To(MatchError(ContainSubstring("lost its lease")))
}

func TestFilesAreRemovedAndOnlyThose(t *testing.T) {
	g := NewWithT(t)
	made := filepath.Join(t.TempDir(), "made")
	var down teardown
	f, err := newFiles(made, &down)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.kubeconfig("dev", []byte("x"))).To(Succeed())
	g.Expect(filepath.Join(made, "dev.kubeconfig")).To(BeARegularFile())
	g.Expect(down.all()).To(Succeed())
	g.Expect(made).NotTo(BeADirectory())

	found := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(found, "mine"), nil, 0o600)).To(Succeed())
	f, err = newFiles(found, &down)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.kubeconfig("dev", []byte("x"))).To(Succeed())
	g.Expect(down.all()).To(Succeed())
	left, err := os.ReadDir(found)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(1))
}

func TestLedgerIsPrinted(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	printLedger(&out, []capstanv1.Promotion{{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-prod-1", UID: "uid"},
		Spec:       capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: "shop"}, Environment: "prod", Revision: "1.1.0"},
		Status: capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, Reason: "RolledOut", Approval: &capstanv1.ApprovalRecord{By: "alice"},
		},
	}}, func(id string) int {
		g.Expect(id).To(Equal("uid.0"))
		return 1
	})
	g.Expect(out.String()).To(MatchRegexp(`shop\s+prod\s+1\.1\.0\s+Succeeded\s+RolledOut\s+alice\s+1\s+uid\.0`))
}

func TestPipelinesOfTheStory(t *testing.T) {
	g := NewWithT(t)
	s, b := pipelineShop(), pipelineBilling(pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{}})
	g.Expect(s.Spec.Environments).To(HaveLen(3))
	g.Expect(s.Spec.Environments[2].Targets[0].ClusterRef.Kind).To(Equal(pipelinesv1.ClusterKindGitopsCluster))
	g.Expect(s.PromotionFor(&s.Spec.Environments[2]).Manual).To(BeFalse())
	g.Expect(b.PromotionFor(&b.Spec.Environments[1]).Manual).To(BeFalse())
	g.Expect(b.PromotionFor(&b.Spec.Environments[2]).Manual).To(BeTrue())
}

// Users need the addresses of the dashboard and of the promotion hook.
func TestTheAddressesArePrinted(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	f := &Fleet{out: &out, files: &files{dir: t.TempDir()}, hub: addresses{hook: "http://127.0.0.1:1/", dashboard: "http://127.0.0.1:2/"}}
	f.PrintAccess()
	g.Expect(out.String()).To(And(ContainSubstring("HOOK in the docs): http://127.0.0.1:1/"), ContainSubstring("dashboard, for this machine only: http://127.0.0.1:2/")))
}
