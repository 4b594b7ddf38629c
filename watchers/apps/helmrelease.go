package apps

import (
	"cmp"
	"slices"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/index"
)

// Older versions of HelmRelease. Their packages of helm-controller's API are deprecated and
// will be removed, but clusters with an old helm-controller still serve the versions.
const (
	v2beta2 = "v2beta2"
	v2beta1 = "v2beta1"
)

// Statuses of a release in a helmv2.Snapshot (Helm's release.Status; the constants of helmv2
// are not exported).
const (
	statusDeployed   = "deployed"
	statusSuperseded = "superseded"
)

// helmRelease reads a HelmRelease of any version. v2beta1 has lastAppliedRevision. v2beta2
// had it too at first; since helm-controller 1.0 it has only history. v2 has only history.
func helmRelease(u *unstructured.Unstructured) index.Observation {
	_, version, _ := strings.Cut(u.GetAPIVersion(), "/")
	if version == v2beta1 || (version == v2beta2 && text(u.Object, "status", "lastAppliedRevision") != "") {
		return applied(u, true)
	}
	o := health(u, true)
	history := snapshots(u.Object)
	if len(history) == 0 {
		return withRevision(o, "status.history is empty")
	}
	if newest := history[0]; newest.Status != statusDeployed && o.Ready {
		o.Ready, o.Message = false, clean("has a newest release that is "+newest.Status+", not "+statusDeployed)
	}
	// The running release is the newest that is deployed. While the newest release is a
	// failed upgrade, it is the one before, which Helm may have marked as superseded.
	runs := slices.IndexFunc(history, func(s helmv2.Snapshot) bool { return s.Status == statusDeployed })
	if runs < 0 {
		runs = slices.IndexFunc(history, func(s helmv2.Snapshot) bool { return s.Status == statusSuperseded })
	}
	if runs >= 0 {
		o.Revision, o.Digest = normalise(history[runs].ChartVersion, history[runs].OCIDigest)
		o.Revision = shared(o.Revision)
	}
	return withRevision(o, "no release in status.history is "+statusDeployed)
}

// snapshots returns status.history with the fields of each Snapshot that are read: Version,
// Status, ChartVersion and OCIDigest. A field of another type counts as empty. The newest is
// first: helm-controller writes this order, but another writer may not.
func snapshots(object map[string]any) []helmv2.Snapshot {
	field, _, _ := unstructured.NestedFieldNoCopy(object, "status", "history")
	history, _ := field.([]any)
	all := make([]helmv2.Snapshot, 0, len(history))
	for _, entry := range history {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		version, _, _ := unstructured.NestedInt64(fields, "version")
		all = append(all, helmv2.Snapshot{
			Version: int(version), Status: text(fields, "status"),
			ChartVersion: text(fields, "chartVersion"), OCIDigest: text(fields, "ociDigest"),
		})
	}
	slices.SortStableFunc(all, func(a, b helmv2.Snapshot) int { return cmp.Compare(b.Version, a.Version) })
	return all
}

// shortDigest is how many characters of an OCI artifact's digest helm-controller appends to
// the version of its chart.
const shortDigest = 12

// normalise splits the digest from a chart version: 6.6.1+0cc9a8446c95 becomes 6.6.1. The
// chart's own build metadata stays: it is part of the version.
func normalise(version, ociDigest string) (revision, digest string) {
	base, suffix, found := strings.Cut(version, "+")
	// A digest is <algorithm>:<hex>, for some sources with <tag>@ before it.
	hex := ociDigest[strings.LastIndexByte(ociDigest, ':')+1:]
	if found && base != "" && len(suffix) == shortDigest && isHex(suffix) && strings.HasPrefix(hex, suffix) {
		return clean(base), strings.Clone(suffix)
	}
	return clean(version), ""
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
