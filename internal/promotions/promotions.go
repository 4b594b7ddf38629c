package promotions

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// OfPipeline returns the Promotions of the Pipeline with a UID, in no particular order.
// The name of the Pipeline gives the namespace, and is used in errors. Errors are those
// of the reader, wrapped.
func OfPipeline(ctx context.Context, reader client.Reader, pipeline types.NamespacedName, uid types.UID) ([]capstanv1.Promotion, error) {
	var list capstanv1.PromotionList
	err := reader.List(ctx, &list, client.InNamespace(pipeline.Namespace), client.MatchingLabels{capstanv1.PipelineUIDLabel: string(uid)})
	if err != nil {
		return nil, fmt.Errorf("listing the Promotions of Pipeline %s: %w", pipeline, err)
	}
	return list.Items, nil
}
