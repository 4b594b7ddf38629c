package annotator

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// roleOf is the IAM role that Cluster API Provider AWS assumes for a cluster, by the
// identityRef of what names its region; the process' own identity where there is none,
// or the AWSClusterRoleIdentity may not be used in the namespace or cannot be read.
// Which namespaces a selector of labels means is not asked: it would take the right to
// read Namespaces. An error says that the identities are still being listed.
func roleOf(ctx context.Context, c client.Reader, by *unstructured.Unstructured) (awsconfig.Role, error) {
	if by == nil || text(by, "spec", "identityRef", "kind") != awsRoleIdentity.Kind {
		return awsconfig.Role{}, nil
	}
	identity, err := get(ctx, c, awsRoleIdentity.WithVersion(capaVersion), client.ObjectKey{Name: text(by, "spec", "identityRef", "name")})
	if syncing(err) {
		return awsconfig.Role{}, err
	}
	if err != nil || !allowed(identity, by.GetNamespace()) {
		return awsconfig.Role{}, nil
	}
	return awsconfig.Role{
		ARN:         text(identity, "spec", "roleARN"),
		ExternalID:  text(identity, "spec", "externalID"),
		SessionName: text(identity, "spec", "sessionName"),
	}, nil
}

// allowed is CAPA's rule: without allowedNamespaces none is, with an empty one all are,
// and with an empty list in it none.
func allowed(identity *unstructured.Unstructured, namespace string) bool {
	m, found, err := unstructured.NestedMap(identity.Object, "spec", "allowedNamespaces")
	if err != nil || !found || m == nil {
		return false
	}
	list, _, _ := unstructured.NestedStringSlice(m, "list")
	selector, _, _ := unstructured.NestedMap(m, "selector")
	if list == nil && len(selector) == 0 {
		return true
	}
	return slices.Contains(list, namespace)
}
