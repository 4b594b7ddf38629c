package clusters

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/internal/capa"
)

// patched are the resources that the hub writes to in self-managed clusters: annotations of
// capacity, labels of instance state, and the annotation of a Machine that requests its
// remediation. It writes nothing else to a workload cluster.
var patched = map[schema.GroupResource]bool{
	capa.Resource(capa.MachineDeployment):     true,
	capa.Resource(capa.MachineSet):            true,
	capa.Resource(capa.MachinePool):           true,
	capa.Resource(capa.Machine):               true,
	capa.Resource(capa.AWSMachine):            true,
	capa.Resource(capa.AWSMachinePool):        true,
	capa.Resource(capa.AWSManagedMachinePool): true,
	capa.Resource(capa.ROSAMachinePool):       true,
}

// patchable are the fields of metadata that a patch may have. The first two are preconditions.
var patchable = map[string]bool{"uid": true, "resourceVersion": true, "labels": true, "annotations": true}

// mayPatch reports whether a PATCH may be sent: a merge patch of labels and annotations of one
// object of those kinds, without a subresource. prefix is the path of the server's URL, in front
// of the API's path.
func mayPatch(prefix string, r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != string(types.MergePatchType) {
		return false
	}
	if r.URL.Path != r.URL.EscapedPath() {
		return false // No object name needs escapes, and servers interpret them differently.
	}
	path, below := strings.CutPrefix(r.URL.Path, strings.TrimSuffix(prefix, "/"))
	// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME
	parts := strings.Split(path, "/")
	return below && len(parts) == 8 && parts[0] == "" && parts[1] == "apis" && parts[4] == "namespaces" &&
		parts[5] != "" && parts[7] != "" && patched[schema.GroupResource{Group: parts[2], Resource: parts[6]}] && ofMetadata(r)
}

// ofMetadata reports whether the body of a merge patch changes labels and annotations only. A body
// that cannot be read twice counts as one that does not.
func ofMetadata(r *http.Request) bool {
	if r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	defer func() { _ = body.Close() }() // It is in memory.
	var patch map[string]map[string]json.RawMessage
	if err := json.NewDecoder(body).Decode(&patch); err != nil || len(patch) != 1 {
		return false
	}
	for field := range patch["metadata"] {
		if !patchable[field] {
			return false
		}
	}
	return len(patch["metadata"]) > 0
}
