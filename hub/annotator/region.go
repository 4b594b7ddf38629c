package annotator

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/watchers"
)

// RegionAnnotation on a node group or on its Cluster names the AWS region. It is used if neither
// the infrastructure nor the control plane names one.
const RegionAnnotation = capa.RegionAnnotation

// ErrRegionUnknown is returned if no object names the region. The requirements fix its text.
var ErrRegionUnknown error = &sentence{words: "unable to determine AWS region from AWSCluster or annotation"}

// ResolveRegion returns the AWS region of a MachineDeployment (or another node group) from its
// cluster's AWSCluster, AWSManagedControlPlane or ROSAControlPlane. If these do not exist or
// name no region, it uses the annotation on the group or on its Cluster.
// Errors: ErrRegionUnknown, and the reader's: a temporary error does not count as absence,
// because that could result in the values of another region.
func ResolveRegion(ctx context.Context, c client.Reader, machineDeployment *unstructured.Unstructured) (string, error) {
	cluster, err := clusterOf(ctx, c, machineDeployment)
	if err != nil {
		return "", err
	}
	where, err := placeOf(ctx, c, machineDeployment, cluster)
	return where.Region, err
}

// clusterOf returns the Cluster of a node group; nil when there is none.
func clusterOf(ctx context.Context, c client.Reader, group *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name := capa.Text(group, "spec", "clusterName")
	if name == "" {
		return nil, nil
	}
	return capa.Present(capa.Get(ctx, c, capa.Cluster.WithVersion(group.GroupVersionKind().Version), client.ObjectKey{Namespace: group.GetNamespace(), Name: name}))
}

// placeOf is ResolveRegion for a Cluster that was read; nil for none. With ErrRegionUnknown
// the place has no region.
func placeOf(ctx context.Context, c client.Reader, group, cluster *unstructured.Unstructured) (capa.Place, error) {
	where, err := capa.PlaceOf(ctx, c, cluster, group.GetAnnotations()[RegionAnnotation])
	if err == nil && where.Region == "" {
		err = ErrRegionUnknown
	}
	return where, err
}

// roleOf returns the IAM role that Cluster API Provider AWS assumes for a cluster. It
// returns none, which is the identity of the process, if no role applies (capa.RoleOf) or
// the role cannot be read. An error says that the identities are still being listed.
func roleOf(ctx context.Context, c client.Reader, where capa.Place) (awsconfig.Role, error) {
	role, _, err := capa.RoleOf(ctx, c, where.IdentityOf)
	if syncing(err) {
		return awsconfig.Role{}, err
	}
	return toAssume(role), nil
}

// toAssume returns the role to assume for a role of CAPA, with those by which it is assumed.
func toAssume(role capa.Role) awsconfig.Role {
	r := awsconfig.Role{ARN: role.ARN, ExternalID: role.ExternalID, SessionName: role.SessionName}
	if role.Source != nil {
		r = r.Through(toAssume(*role.Source))
	}
	return r
}

// syncing reports whether an error says that a kind is still being listed.
func syncing(err error) bool {
	var unsynced *watchers.NotSyncedError
	return errors.As(err, &unsynced) && unsynced.Message == ""
}
