package promotions

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// lister answers with one Promotion, or fails, and keeps what it was asked for.
type lister struct {
	client.Reader
	asked client.ListOptions
	err   error
}

func (l *lister) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	l.asked.ApplyOptions(options)
	into.(*capstanv1.PromotionList).Items = []capstanv1.Promotion{{Spec: capstanv1.PromotionSpec{Number: 7}}}
	return l.err
}

func TestOfPipeline(t *testing.T) {
	g := NewWithT(t)
	reader := &lister{}
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	all, err := OfPipeline(t.Context(), reader, key, "the-uid")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(1))
	g.Expect(reader.asked.Namespace).To(Equal("shop"))
	g.Expect(reader.asked.LabelSelector.String()).To(Equal("capstan.dev/pipeline-uid=the-uid"))
	g.Expect(reader.asked.FieldSelector).To(BeNil(), "the API server has no index for it")

	reader.err = errors.New("no answer")
	_, err = OfPipeline(t.Context(), reader, key, "the-uid")
	g.Expect(err).To(MatchError(And(ContainSubstring("Pipeline shop/web"), ContainSubstring("no answer"))))
	g.Expect(errors.Is(err, reader.err)).To(BeTrue())
}
