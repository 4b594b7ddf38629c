package promotions

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// OfPipeline returns the Promotions of the Pipeline with a UID, in no particular order.
// The name of the Pipeline gives the namespace, and is used in errors. Errors are those
// of the reader, wrapped.
func OfPipeline(ctx context.Context, reader client.Reader, pipeline types.NamespacedName, uid types.UID) ([]capstanv1.Promotion, error) {
	return list(ctx, reader, PipelineField, pipeline, client.MatchingLabels{capstanv1.PipelineUIDLabel: string(uid)})
}

// UnsettledOfPipeline is OfPipeline without settled Promotions. A cache with AddIndexes does not
// copy these, which are most.
func UnsettledOfPipeline(ctx context.Context, reader client.Reader, pipeline types.NamespacedName, uid types.UID) ([]capstanv1.Promotion, error) {
	all, err := list(ctx, reader, UnsettledField, pipeline, client.MatchingLabels{capstanv1.PipelineUIDLabel: string(uid)})
	return slices.DeleteFunc(all, func(p capstanv1.Promotion) bool { return Settled(&p) }), err
}

// OfName returns the Promotions of the Pipeline, and of former Pipelines, with a name, in no
// particular order.
func OfName(ctx context.Context, reader client.Reader, pipeline types.NamespacedName, options ...client.ListOption) ([]capstanv1.Promotion, error) {
	all, err := list(ctx, reader, PipelineField, pipeline, append(options, client.MatchingLabels{capstanv1.PipelineLabel: Slug(pipeline.Name, MaxLabel)})...)
	// Two names may have the same slug.
	return slices.DeleteFunc(all, func(p capstanv1.Promotion) bool { return p.Spec.Pipeline.Name != pipeline.Name }), err
}

// list lists Promotions of a Pipeline. field is the index that a cache uses.
func list(ctx context.Context, reader client.Reader, field string, pipeline types.NamespacedName, options ...client.ListOption) ([]capstanv1.Promotion, error) {
	options = append(options, client.InNamespace(pipeline.Namespace))
	if _, ok := reader.(indexed); ok {
		options = append(options, client.MatchingFields{field: pipeline.Name})
	}
	var found capstanv1.PromotionList
	if err := reader.List(ctx, &found, options...); err != nil {
		return nil, fmt.Errorf("listing the Promotions of Pipeline %s: %w", pipeline, err)
	}
	return found.Items, nil
}
