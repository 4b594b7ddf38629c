package instancestate

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

// get reads an object of a cluster from memory; nil when it is not there.
func get(ctx context.Context, from client.Reader, kind schema.GroupKind, at client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind.WithVersion(anyVersion))
	if from.Get(ctx, at, u) != nil {
		return nil
	}
	return u
}

// placeOf the instances of a Cluster: the region of its AWSCluster or control plane, and
// the account of the role that Cluster API Provider AWS assumes for it. The account is
// not known where none is assumed.
func placeOf(ctx context.Context, from client.Reader, namespace, name string) owner.Place {
	cluster := get(ctx, from, clusterKind, client.ObjectKey{Namespace: namespace, Name: name})
	if cluster == nil {
		return owner.Place{}
	}
	for _, ref := range []string{"controlPlaneRef", "infrastructureRef"} {
		group := text(cluster, "spec", ref, "apiGroup")
		if group == "" {
			group, _, _ = strings.Cut(text(cluster, "spec", ref, "apiVersion"), "/")
		}
		kind := schema.GroupKind{Group: group, Kind: text(cluster, "spec", ref, "kind")}
		if kind != awsCluster && kind != awsManagedPlane && kind != rosaControlPlane {
			continue
		}
		in := text(cluster, "spec", ref, "namespace")
		if in == "" {
			in = namespace
		}
		if by := get(ctx, from, kind, client.ObjectKey{Namespace: in, Name: text(cluster, "spec", ref, "name")}); by != nil && text(by, "spec", "region") != "" {
			return owner.Place{Region: text(by, "spec", "region"), Account: accountOf(ctx, from, by)}
		}
	}
	return owner.Place{}
}

// accountOf the role of an identityRef.
func accountOf(ctx context.Context, from client.Reader, by *unstructured.Unstructured) string {
	if text(by, "spec", "identityRef", "kind") != awsRoleIdentity.Kind {
		return ""
	}
	identity := get(ctx, from, awsRoleIdentity, client.ObjectKey{Name: text(by, "spec", "identityRef", "name")})
	if identity == nil {
		return ""
	}
	return accountInARN(text(identity, "spec", "roleARN"))
}

// accountInARN is the account of an ARN; empty when it is none.
func accountInARN(arn string) string {
	if parts := strings.SplitN(arn, ":", 6); len(parts) == 6 {
		return parts[4]
	}
	return ""
}

// paused is whether an object or its Cluster is.
func paused(ctx context.Context, from client.Reader, namespace, cluster string, annotations map[string]string) bool {
	if _, set := annotations[pausedAnnotation]; set {
		return true
	}
	u := get(ctx, from, clusterKind, client.ObjectKey{Namespace: namespace, Name: cluster})
	if u == nil {
		return false
	}
	is, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
	return is
}
