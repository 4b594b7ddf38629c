package annotator

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/watchers"
)

// RegionAnnotation on a node group or on its Cluster names the region of AWS, where
// neither infrastructure nor control plane does.
const RegionAnnotation = "capa.infrastructure.cluster.x-k8s.io/region"

// ErrRegionUnknown says that nothing names the region.
var ErrRegionUnknown error = &sentence{words: "unable to determine AWS region from AWSCluster or annotation"}

// ResolveRegion gets the AWS region of a MachineDeployment (or another node group) from
// its cluster's AWSCluster, AWSManagedControlPlane or ROSAControlPlane, and falls back
// to the annotation on it or on its Cluster where those are missing or name none.
// Errors: ErrRegionUnknown, and the reader's: a passing one is not taken for absence,
// which might end in another region's figures.
func ResolveRegion(ctx context.Context, c client.Reader, machineDeployment *unstructured.Unstructured) (string, error) {
	cluster, err := clusterOf(ctx, c, machineDeployment)
	if err != nil {
		return "", err
	}
	where, err := regionOf(ctx, c, machineDeployment, cluster)
	return where.region, err
}

// place is where instances are, and what names it.
type place struct {
	region string
	// by is the infrastructure or control plane that names the region; nil for an
	// annotation.
	by *unstructured.Unstructured
}

// clusterOf is the Cluster of a node group; nil when there is none.
func clusterOf(ctx context.Context, c client.Reader, group *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name := text(group, "spec", "clusterName")
	if name == "" {
		return nil, nil
	}
	return present(get(ctx, c, clusterKind.WithVersion(group.GroupVersionKind().Version), client.ObjectKey{Namespace: group.GetNamespace(), Name: name}))
}

// regionOf is ResolveRegion for a Cluster that was read; nil for none.
func regionOf(ctx context.Context, c client.Reader, group, cluster *unstructured.Unstructured) (place, error) {
	if cluster != nil {
		for _, at := range []struct {
			field string
			kinds []schema.GroupKind
		}{
			{"infrastructureRef", []schema.GroupKind{awsCluster}},
			{"controlPlaneRef", []schema.GroupKind{awsManagedPlane, rosaPlane}},
		} {
			ref, _ := referenceAt(cluster, "spec", at.field)
			for _, kind := range at.kinds {
				if ref.GroupKind != kind {
					continue
				}
				o, err := present(get(ctx, c, kind.WithVersion(capaVersion), ref.ObjectKey))
				if err != nil {
					return place{}, err
				}
				if o != nil && text(o, "spec", "region") != "" {
					return place{text(o, "spec", "region"), o}, nil
				}
			}
		}
	}
	for _, o := range []*unstructured.Unstructured{group, cluster} {
		if o != nil && o.GetAnnotations()[RegionAnnotation] != "" {
			return place{region: o.GetAnnotations()[RegionAnnotation]}, nil
		}
	}
	return place{}, ErrRegionUnknown
}

// present makes nil of an object that is not there, or whose kind is not installed.
func present(u *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if absent(err) {
		return nil, nil
	}
	return u, err
}

func absent(err error) bool {
	var unsynced *watchers.NotSyncedError
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || errors.As(err, &unsynced) && unsynced.Reason == watchers.ReasonNotInstalled
}

// syncing is whether an error says that what was asked for is still being listed.
func syncing(err error) bool {
	var unsynced *watchers.NotSyncedError
	return errors.As(err, &unsynced) && unsynced.Message == ""
}
