package promotions

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

func TestACacheIsReadByItsIndex(t *testing.T) {
	g := NewWithT(t)
	reader := &lister{}
	key := types.NamespacedName{Namespace: "shop", Name: "Web"}
	_, err := OfPipeline(t.Context(), IndexedReader(reader), key, "the-uid")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reader.asked.FieldSelector.String()).To(Equal("spec.pipeline.name=Web"))
	g.Expect(reader.asked.LabelSelector.String()).To(Equal("capstan.dev/pipeline-uid=the-uid"))

	reader = &lister{}
	all, err := OfName(t.Context(), reader, key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(BeEmpty(), "the label is a slug: the one with it is of another Pipeline")
	g.Expect(reader.asked.LabelSelector.String()).To(Equal("capstan.dev/pipeline=web"))
}

// named is a reader of objects by name.
type named struct {
	client.Reader
	pipeline *pipelinesv1.Pipeline
	exists   map[string]bool
	err      error
	reads    int
}

func (n *named) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n.reads++
	if n.err != nil {
		return n.err
	}
	missing := apierrors.NewNotFound(capstanv1.GroupVersion.WithResource("promotions").GroupResource(), key.Name)
	if p, ok := o.(*pipelinesv1.Pipeline); ok {
		if n.pipeline == nil {
			return missing
		}
		n.pipeline.DeepCopyInto(p)
		return nil
	}
	if !n.exists[key.Name] {
		return missing
	}
	return nil
}

// Two or three reads show whether a higher number exists, however many Promotions there are.
func TestOutranked(t *testing.T) {
	p := &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
		Spec:       capstanv1.PromotionSpec{Pipeline: capstanv1.PipelineReference{Name: "web", UID: "one"}, Environment: "prod", Number: 7},
	}
	pipeline := func(uid types.UID, mark int64) *pipelinesv1.Pipeline {
		return &pipelinesv1.Pipeline{
			ObjectMeta: metav1.ObjectMeta{UID: uid},
			Status:     pipelinesv1.PipelineStatus{Environments: map[string]*pipelinesv1.EnvironmentStatus{"prod": {LastPromotion: mark}}},
		}
	}
	for name, tc := range map[string]struct {
		reader named
		want   bool
		reads  int
	}{
		"the newest":                         {named{pipeline: pipeline("one", 7)}, false, 2},
		"the next exists":                    {named{pipeline: pipeline("one", 7), exists: map[string]bool{Name("web", "one", "prod", 8): true}}, true, 2},
		"the next of another environment":    {named{pipeline: pipeline("one", 7), exists: map[string]bool{Name("web", "one", "qa", 8): true}}, false, 2},
		"the next existed":                   {named{pipeline: pipeline("one", 9)}, true, 1},
		"a re-created Pipeline has the next": {named{pipeline: pipeline("two", 7), exists: map[string]bool{Name("web", "two", "prod", 8): true}}, true, 3},
		"no Pipeline, and the next exists":   {named{exists: map[string]bool{Name("web", "one", "prod", 8): true}}, true, 2},
		"no Pipeline":                        {named{}, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := Outranked(t.Context(), &tc.reader, p)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
			g.Expect(tc.reader.reads).To(Equal(tc.reads))
		})
	}
	broken := &named{err: errors.New("no answer")}
	_, err := Outranked(t.Context(), broken, p)
	NewWithT(t).Expect(errors.Is(err, broken.err)).To(BeTrue(), "an unknown answer is no permission to act")
}

func settled(number int64) *capstanv1.Promotion {
	at := metav1.NewTime(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	return &capstanv1.Promotion{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: Name("web", "one", "prod", number), Generation: 1,
			Labels:        map[string]string{capstanv1.PipelineUIDLabel: "one", capstanv1.EnvironmentLabel: "prod"},
			Annotations:   map[string]string{lastApplied: "{}", "capstan.dev/told": "{}"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "capstan"}},
		},
		Spec: capstanv1.PromotionSpec{
			Pipeline: capstanv1.PipelineReference{Name: "web", UID: "one"}, Environment: "prod", Number: number, Revision: "1.0",
			Strategy: pipelinesv1.Strategy{PullRequest: &pipelinesv1.PullRequestPromotion{URL: "https://git.example/fleet"}},
			From:     &capstanv1.PromotionBase{Revisions: []string{"0.9"}, Targets: []string{"web"}},
		},
		Status: capstanv1.PromotionStatus{
			Phase: capstanv1.PhaseSucceeded, Reason: "RolledOut", Message: "done", ObservedGeneration: 1, StartTime: &at, FinishTime: &at, Withdrawn: true,
			URL: "https://git.example/1", PullRequest: &capstanv1.PullRequestStatus{Number: 1},
			Attempt:    &capstanv1.Attempt{Number: 2, Holder: "hub"},
			Conditions: []metav1.Condition{{Type: capstanv1.ReadyCondition}},
		},
	}
}

func TestSettled(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*capstanv1.Promotion)
		want   bool
	}{
		"its pull request is closed":   {func(*capstanv1.Promotion) {}, true},
		"its pull request may be open": {func(p *capstanv1.Promotion) { p.Status.Withdrawn = false }, false},
		"superseded before an attempt": {func(p *capstanv1.Promotion) {
			p.Status.Withdrawn, p.Status.Attempt, p.Status.PullRequest, p.Status.Phase = false, nil, nil, capstanv1.PhaseSuperseded
		}, true},
		"superseded after a retry": {func(p *capstanv1.Promotion) {
			p.Status.Withdrawn, p.Status.Attempt, p.Status.PullRequest, p.Status.Retry = false, nil, nil, 1
		}, false},
		"a notification":          {func(p *capstanv1.Promotion) { p.Spec.Strategy.PullRequest, p.Status.Withdrawn = nil, false }, true},
		"a retry is not read":     {func(p *capstanv1.Promotion) { p.Generation = 2 }, false},
		"it may start again":      {func(p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhaseFailed }, false},
		"it may still arrive":     {func(p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhaseRejected }, false},
		"under way":               {func(p *capstanv1.Promotion) { p.Status.Phase = capstanv1.PhasePromoting }, false},
		"of the former names":     {func(p *capstanv1.Promotion) { p.Status.FormerFinishedAt = p.Status.FinishTime }, false}, //nolint:staticcheck // That is the case.
		"an end without a time":   {func(p *capstanv1.Promotion) { p.Status.FinishTime = nil }, false},
		"it is being deleted now": {func(p *capstanv1.Promotion) { p.DeletionTimestamp = p.Status.FinishTime }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := settled(1)
			tc.change(p)
			NewWithT(t).Expect(Settled(p)).To(Equal(tc.want))
		})
	}
}
