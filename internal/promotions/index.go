package promotions

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
)

// Fields of the cache's indexes.
const (
	// PipelineField is the name of the Pipeline.
	PipelineField = "spec.pipeline.name"
	// UnsettledField is the name of the Pipeline of a Promotion that is not settled.
	UnsettledField = "unsettled"
	// OpenField is OpenValue for the Promotions that metrics count: those under way, and
	// those with the condition Stalled.
	OpenField = "open"
	OpenValue = "true"
)

// AddIndexes adds the indexes to a cache, before it starts.
func AddIndexes(ctx context.Context, cache client.FieldIndexer) error {
	for field, values := range map[string]client.IndexerFunc{PipelineField: pipelineName, UnsettledField: unsettled, OpenField: open} {
		if err := cache.IndexField(ctx, &capstanv1.Promotion{}, field, values); err != nil {
			return fmt.Errorf("indexing Promotions by %s: %w", field, err)
		}
	}
	return nil
}

func pipelineName(o client.Object) []string {
	if pipeline, ok := PipelineOf(o); ok && pipeline.Name != "" {
		return []string{pipeline.Name}
	}
	return nil
}

func unsettled(o client.Object) []string {
	if p, ok := o.(*capstanv1.Promotion); ok && !Settled(p) {
		return pipelineName(p)
	}
	return nil
}

func open(o client.Object) []string {
	// A packed one is settled.
	if p, ok := o.(*capstanv1.Promotion); ok && (!p.Status.Phase.Finished() || meta.IsStatusConditionTrue(p.Status.Conditions, capstanv1.StalledCondition)) {
		return []string{OpenValue}
	}
	return nil
}

// indexed is a reader of a cache that has the indexes.
type indexed interface{ hasPromotionIndexes() }

type indexedReader struct{ client.Reader }

func (indexedReader) hasPromotionIndexes() {}

type indexedClient struct{ client.Client }

func (indexedClient) hasPromotionIndexes() {}

// IndexedReader returns a reader whose lists use the indexes. The reader is that of a cache
// with AddIndexes: an API server refuses such a list.
func IndexedReader(cache client.Reader) client.Reader { return indexedReader{cache} }

// IndexedClient is IndexedReader for a client that reads from the cache.
func IndexedClient(cached client.Client) client.Client { return indexedClient{cached} }
