package capa

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RegionAnnotation names the AWS region. It is used where neither the infrastructure nor
// the control plane of a cluster names one. The object's own annotation comes before that
// of its Cluster.
const RegionAnnotation = "capa.infrastructure.cluster.x-k8s.io/region"

// Place is where the instances of a cluster are.
type Place struct {
	// Region of AWS; empty when nothing names it.
	Region string
	// NamedBy is the AWSCluster or control plane that names the region; nil when an
	// annotation does, or nothing.
	NamedBy *unstructured.Unstructured
	// IdentityOf is the object whose spec.identityRef counts (RoleOf): NamedBy, else the
	// first AWSCluster or control plane that exists; nil when there is none.
	IdentityOf *unstructured.Unstructured
}

// PlaceOf finds the region and the identity of a Cluster. The region is the first of:
//
//  1. spec.region of the AWSCluster or control plane at spec.infrastructureRef,
//  2. spec.region of the AWSCluster or control plane at spec.controlPlaneRef,
//  3. own, which is RegionAnnotation of the object itself (a node group or a machine),
//  4. RegionAnnotation of the Cluster.
//
// A nil Cluster leaves own. Errors: those of the reader, except Absent.
func PlaceOf(ctx context.Context, c client.Reader, cluster *unstructured.Unstructured, own string) (Place, error) {
	if cluster == nil {
		return Place{Region: own}, nil
	}
	var p Place
	for _, field := range []string{"infrastructureRef", "controlPlaneRef"} {
		o, err := behind(ctx, c, cluster, field)
		if err != nil {
			return Place{}, err
		}
		if o == nil {
			continue
		}
		if region := Text(o, "spec", "region"); region != "" {
			return Place{Region: region, NamedBy: o, IdentityOf: o}, nil
		}
		if p.IdentityOf == nil {
			p.IdentityOf = o
		}
	}
	p.Region = own
	if p.Region == "" {
		p.Region = cluster.GetAnnotations()[RegionAnnotation]
	}
	return p, nil
}

// behind returns the AWSCluster or control plane at a reference of a Cluster; nil when there
// is none. A reference into another namespace counts as none: Cluster API refuses it, and
// it would give the cluster the identity of another tenant.
func behind(ctx context.Context, c client.Reader, cluster *unstructured.Unstructured, field string) (*unstructured.Unstructured, error) {
	ref, found := ReferenceAt(cluster, "spec", field)
	if !found || ref.Namespace != cluster.GetNamespace() {
		return nil, nil
	}
	switch ref.GroupKind {
	case AWSCluster, AWSManagedControlPlane, ROSAControlPlane:
		return Present(Get(ctx, c, ref.WithVersion(Version), ref.ObjectKey))
	}
	return nil, nil
}
