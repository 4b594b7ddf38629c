package clusters

import (
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-hub/capstan/internal/capa"
)

// patched are the resources that the hub writes to in self-managed clusters: annotations of
// capacity and labels of instance state. It writes nothing else to a workload cluster.
var patched = map[schema.GroupResource]bool{
	capa.Resource(capa.MachineDeployment): true,
	capa.Resource(capa.MachineSet):        true,
	capa.Resource(capa.MachinePool):       true,
	capa.Resource(capa.AWSMachine):        true,
	capa.Resource(capa.AWSMachinePool):    true,
}

// mayPatch reports whether a PATCH may be sent: a merge patch of one object of those kinds,
// without a subresource. prefix is the path of the server's URL, in front of the API's path.
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
		parts[5] != "" && parts[7] != "" && patched[schema.GroupResource{Group: parts[2], Resource: parts[6]}]
}
