package capa

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Role is the IAM role that CAPA assumes for a cluster.
type Role struct {
	ARN, ExternalID, SessionName string
	// Source is the role with which this one is assumed, by spec.sourceIdentityRef of its
	// identity; nil for the identity of the process. CAPA uses the credentials of an
	// AWSClusterStaticIdentity for a source of that kind, which only CAPA may read: Source is nil then.
	Source *Role
}

// maxChain is the maximum number of identities in a chain of spec.sourceIdentityRef. CAPA has no limit, and fails for a
// chain that returns to an earlier identity.
const maxChain = 8

// RoleOf returns the role of the AWSClusterRoleIdentity that spec.identityRef of an
// AWSCluster or control plane names. It returns no role when the object is nil, and when it
// names no AWSClusterRoleIdentity.
//
// CAPA assumes the role with the identity that spec.sourceIdentityRef names, and so on. Each
// identity of that chain must exist and allow the namespace of the object. Otherwise RoleOf
// returns no role, and refused says which identity is the reason, and what to do.
//
// Errors: those of the reader, except Absent.
func RoleOf(ctx context.Context, c client.Reader, of *unstructured.Unstructured) (role Role, refused string, err error) {
	if of == nil || Text(of, "spec", "identityRef", "kind") != AWSClusterRoleIdentity.Kind {
		return Role{}, "", nil
	}
	var chain []Role
	for kind, name := AWSClusterRoleIdentity, Text(of, "spec", "identityRef", "name"); name != ""; {
		if len(chain) == maxChain {
			return Role{}, fmt.Sprintf("%s %s has a chain of spec.sourceIdentityRef that is longer than %d, or returns to itself: shorten it",
				AWSClusterRoleIdentity.Kind, Text(of, "spec", "identityRef", "name"), maxChain), nil
		}
		identity, err := Present(Get(ctx, c, kind.WithVersion(Version), client.ObjectKey{Name: name}))
		switch {
		case err != nil:
			return Role{}, "", err
		case identity == nil:
			return Role{}, fmt.Sprintf("%s %s does not exist: create it, or correct the reference to it", kind.Kind, name), nil
		case !allows(identity, of.GetNamespace()):
			return Role{}, fmt.Sprintf("%s %s does not allow namespace %s: add it to spec.allowedNamespaces.list (the hub does not evaluate a selector)",
				kind.Kind, name, of.GetNamespace()), nil
		case kind != AWSClusterRoleIdentity: // It has no role, and no source.
			return chained(chain), "", nil
		}
		chain = append(chain, Role{
			ARN:         Text(identity, "spec", "roleARN"),
			ExternalID:  Text(identity, "spec", "externalID"),
			SessionName: Text(identity, "spec", "sessionName"),
		})
		source := Text(identity, "spec", "sourceIdentityRef", "kind")
		at := slices.IndexFunc(identityKinds, func(k schema.GroupKind) bool { return k.Kind == source })
		name = Text(identity, "spec", "sourceIdentityRef", "name")
		if at < 0 && (source != "" || name != "") {
			return Role{}, fmt.Sprintf("spec.sourceIdentityRef of %s %s has the unknown kind %q: set it to one of %s, %s and %s", kind.Kind, identity.GetName(), source,
				identityKinds[0].Kind, identityKinds[1].Kind, identityKinds[2].Kind), nil
		}
		if name != "" {
			kind = identityKinds[at]
		}
	}
	return chained(chain), "", nil
}

// identityKinds are the kinds of identities of CAPA.
var identityKinds = []schema.GroupKind{AWSClusterRoleIdentity, AWSClusterControllerIdentity, AWSClusterStaticIdentity}

// Identity reports whether a kind is one of an identity. These are cluster-scoped.
func Identity(kind schema.GroupKind) bool { return slices.Contains(identityKinds, kind) }

// chained returns the first role of a chain, each with the next one as its source; none for an empty chain.
func chained(chain []Role) Role {
	if len(chain) == 0 {
		return Role{}
	}
	for i := len(chain) - 1; i > 0; i-- {
		chain[i-1].Source = &chain[i]
	}
	return chain[0]
}

// allows reports whether spec.allowedNamespaces of an identity allows a namespace. The rule
// is CAPA's (isClusterPermittedToUsePrincipal): a missing field allows none, an empty
// object allows all, a list allows its members and an empty list none.
//
// A selector allows none here: it depends on the labels of Namespaces, which their owners may
// change, and which the annotator alone may not read. So this rule never allows more than CAPA.
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
