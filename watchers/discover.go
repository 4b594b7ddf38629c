package watchers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/capstan-hub/capstan/clusters"
)

// discover finds the served version and resource of the kind; the version that a manifest
// names does not matter. It makes two small reads, each with the timeout. A RESTMapper would
// read and keep every group of the cluster. Core kinds, which have another path, are never
// watched.
func discover(ctx context.Context, timeout time.Duration, connection *clusters.Connection, kind Kind) (resource, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(connection.Config(), connection.HTTPClient())
	if err != nil {
		return resource{}, fmt.Errorf("making a discovery client: %w", err)
	}
	gk := kind.GroupKind
	group := &metav1.APIGroup{}
	err = fetch(ctx, timeout, client.RESTClient().Get().AbsPath("/apis/"+gk.Group), group)
	if apierrors.IsNotFound(err) {
		return resource{}, errNotInstalled
	} else if err != nil {
		return resource{}, fmt.Errorf("reading /apis/%s: %w", gk.Group, err)
	}
	served := func(version string) bool {
		return slices.ContainsFunc(group.Versions, func(g metav1.GroupVersionForDiscovery) bool { return g.Version == version })
	}
	if len(kind.Versions) > 0 && !slices.ContainsFunc(kind.Versions, served) {
		return resource{}, errNotServed
	}
	for _, version := range preferred(kind, group) {
		if !served(version) || len(version) > maxLabel {
			continue
		}
		list := &metav1.APIResourceList{}
		err := fetch(ctx, timeout, client.RESTClient().Get().AbsPath("/apis/"+gk.Group+"/"+version), list)
		if err != nil {
			return resource{}, fmt.Errorf("reading /apis/%s/%s: %w", gk.Group, version, err)
		}
		for _, r := range list.APIResources {
			if r.Kind == gk.Kind && !strings.Contains(r.Name, "/") && len(r.Name) <= maxLabel {
				return resource{schema.GroupVersionResource{Group: gk.Group, Version: version, Resource: r.Name}, r.Namespaced}, nil
			}
		}
	}
	return resource{}, errNotInstalled
}

// preferred returns the versions in which the kind is searched, in order: those of the
// Kind, or the server's.
func preferred(kind Kind, group *metav1.APIGroup) []string {
	if len(kind.Versions) > 0 {
		return kind.Versions
	}
	versions := []string{group.PreferredVersion.Version}
	for _, v := range group.Versions {
		if v.Version != group.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions
}
