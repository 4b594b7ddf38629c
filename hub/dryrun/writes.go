package dryrun

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// write is a kind of requests that change objects.
type write struct {
	resource    schema.GroupResource
	subresource string
}

// pipelineStatus is the write whose body is read.
var pipelineStatus = write{resource: schema.GroupResource{Group: "pipelines.weave.works", Resource: "pipelines"}, subresource: "status"}

// writes are the requests that pass, by their methods. Those of resources without a subresource belong to the hub's own
// objects; a review stores nothing.
var writes = map[write][]string{
	pipelineStatus: {http.MethodPatch},
	{resource: schema.GroupResource{Group: "capstan.dev", Resource: "clusterconnections"}}:                        {http.MethodPost, http.MethodPatch, http.MethodDelete},
	{resource: schema.GroupResource{Group: "capstan.dev", Resource: "clusterconnections"}, subresource: "status"}: {http.MethodPatch},
	{resource: schema.GroupResource{Group: "events.k8s.io", Resource: "events"}}:                                  {http.MethodPost, http.MethodPatch},
	{resource: schema.GroupResource{Resource: "events"}}:                                                          {http.MethodPost, http.MethodPatch},
	{resource: schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}}:                            {http.MethodPost, http.MethodPut, http.MethodDelete},
	{resource: schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}}:                    {http.MethodPost},
	{resource: schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}}:             {http.MethodPost},
}

// allowed returns whether a request passes. prefix is the path of the server's URL, in front of the API's path.
func allowed(prefix string, r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead:
		return r.Header.Get("Upgrade") == "" // exec, attach and port-forward may be GET requests.
	}
	if r.URL.Path != r.URL.EscapedPath() {
		return false // No name needs escapes, and servers interpret them differently.
	}
	w, named, ok := parse(strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(prefix, "/")))
	if !ok || !slices.Contains(writes[w], r.Method) || named == (r.Method == http.MethodPost) {
		return false
	}
	return w != pipelineStatus || onlyDryRun(r)
}

// parse returns what a path of the API writes to, and whether it names an object: /api/VERSION or /apis/GROUP/VERSION, then
// namespaces/NAMESPACE for objects with one, and RESOURCE, NAME and SUBRESOURCE.
func parse(path string) (w write, named, ok bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		w.resource.Group, parts = parts[1], parts[3:]
	default:
		return write{}, false, false
	}
	if slices.Contains(parts, "") {
		return write{}, false, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) > 3 {
		return write{}, false, false
	}
	w.resource.Resource = parts[0]
	if len(parts) == 3 {
		w.subresource = parts[2]
	}
	return w, len(parts) > 1, true
}

const dryRunPath = "/status/dryRun"

// onlyDryRun returns whether a patch of the status of a Pipeline is a JSON patch that changes only status.dryRun. It may
// test anything, and set the resourceVersion that it was made of.
func onlyDryRun(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != string(types.JSONPatchType) || r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		return false
	}
	var operations []struct{ Op, Path string }
	if err := json.Unmarshal(raw, &operations); err != nil {
		return false
	}
	for _, o := range operations {
		own := o.Path == dryRunPath || strings.HasPrefix(o.Path, dryRunPath+"/")
		switch {
		case o.Op == "test", o.Op == "add" && o.Path == "/metadata/resourceVersion":
		case own && (o.Op == "add" || o.Op == "replace" || o.Op == "remove"):
		default:
			return false
		}
	}
	return true
}
