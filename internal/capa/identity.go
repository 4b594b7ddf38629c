package capa

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Role is the IAM role that CAPA assumes for a cluster.
type Role struct{ ARN, ExternalID, SessionName string }

// RoleOf returns the role of the AWSClusterRoleIdentity that spec.identityRef of an
// AWSCluster or control plane names. It returns no role when the object is nil, when it
// names no AWSClusterRoleIdentity, and when the identity does not exist or does not allow
// the namespace of the object. Errors: those of the reader, except Absent.
func RoleOf(ctx context.Context, c client.Reader, of *unstructured.Unstructured) (Role, error) {
	if of == nil || Text(of, "spec", "identityRef", "kind") != AWSClusterRoleIdentity.Kind {
		return Role{}, nil
	}
	identity, err := Present(Get(ctx, c, AWSClusterRoleIdentity.WithVersion(Version), client.ObjectKey{Name: Text(of, "spec", "identityRef", "name")}))
	if err != nil || identity == nil || !allows(identity, of.GetNamespace()) {
		return Role{}, err
	}
	return Role{
		ARN:         Text(identity, "spec", "roleARN"),
		ExternalID:  Text(identity, "spec", "externalID"),
		SessionName: Text(identity, "spec", "sessionName"),
	}, nil
}

// allows reports whether spec.allowedNamespaces of an identity allows a namespace. The rule
// is CAPA's (isClusterPermittedToUsePrincipal): a missing field allows none, an empty
// object allows all, a list allows its members and an empty list none.
//
// A selector allows none here: its evaluation needs the right to read all Namespaces, which
// the hub does not have. So this rule never allows more than CAPA.
func allows(identity *unstructured.Unstructured, namespace string) bool {
	allowed, found, err := unstructured.NestedMap(identity.Object, "spec", "allowedNamespaces")
	if err != nil || !found || allowed == nil {
		return false
	}
	list, _, err := unstructured.NestedStringSlice(allowed, "list")
	if err != nil && allowed["list"] != nil {
		return false
	}
	selector, _, err := unstructured.NestedMap(allowed, "selector")
	if err != nil && allowed["selector"] != nil {
		return false
	}
	if list == nil && len(selector) == 0 {
		return true
	}
	return slices.Contains(list, namespace)
}
