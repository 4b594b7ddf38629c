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

// homonyms answers with Promotions of two Pipelines whose names have the same label value.
type homonyms struct {
	lister
}

func (h *homonyms) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	err := h.lister.List(ctx, into, options...)
	into.(*capstanv1.PromotionList).Items = []capstanv1.Promotion{
		{Spec: capstanv1.PromotionSpec{Number: 1, Pipeline: capstanv1.PipelineReference{Name: "shop.web", UID: "a"}}},
		{Spec: capstanv1.PromotionSpec{Number: 2, Pipeline: capstanv1.PipelineReference{Name: "shop-web", UID: "b"}}},
		{Spec: capstanv1.PromotionSpec{Number: 3, Pipeline: capstanv1.PipelineReference{Name: "shop.web", UID: "c"}}},
	}
	return err
}

func TestOfName(t *testing.T) {
	g := NewWithT(t)
	reader := &homonyms{}
	key := types.NamespacedName{Namespace: "shop", Name: "shop.web"}
	all, err := OfName(t.Context(), reader, key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(2), "also that of a former Pipeline; none of the other name")
	g.Expect(all[0].Spec.Number).To(Equal(int64(1)))
	g.Expect(all[1].Spec.Number).To(Equal(int64(3)))
	g.Expect(reader.asked.Namespace).To(Equal("shop"))
	g.Expect(reader.asked.LabelSelector.String()).To(Equal("capstan.dev/pipeline=shop-web"))

	reader.err = errors.New("no answer")
	_, err = OfName(t.Context(), reader, key)
	g.Expect(err).To(MatchError(And(ContainSubstring("shop/shop.web"), ContainSubstring("no answer"))))
}
