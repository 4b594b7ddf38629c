package pipeline

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// statusPatch returns a JSON patch that changes a Pipeline's status from before to after, if the
// Pipeline still has the resourceVersion. It contains only what differs: a list as a whole, an object
// by its fields. client.MergeFrom would decode both Pipelines completely.
//
// The API server refuses the patch (422) if the Pipeline has no status.schemaFleets: it is then served by
// another CRD, and would be stored without the fields that this does not have.
func statusPatch(resourceVersion string, before, after *pipelinesv1.PipelineStatus) ([]byte, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	version, err := json.Marshal(resourceVersion)
	if err != nil {
		return nil, err
	}
	patch := []operation{
		{Op: "test", Path: "/status/schemaFleets", Value: json.RawMessage(`"` + pipelinesv1.StatusSchemaFleets + `"`)},
		{Op: "add", Path: "/metadata/resourceVersion", Value: version},
	}
	if patch, err = difference(patch, "/status", old, now); err != nil {
		return nil, err
	}
	return json.Marshal(patch)
}

// escaped writes a name as a part of a path (RFC 6901).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// difference appends the operations that change one value to another. Both are as json.Marshal writes
// them, so that equal values have equal bytes.
func difference(patch []operation, path string, before, after json.RawMessage) ([]operation, error) {
	if bytes.Equal(before, after) {
		return patch, nil
	}
	if before[0] != '{' || after[0] != '{' {
		return append(patch, operation{"replace", path, after}), nil
	}
	var old, now map[string]json.RawMessage
	if err := json.Unmarshal(before, &old); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &now); err != nil {
		return nil, err
	}
	_, had := old[""]
	if _, has := now[""]; had || has { // The API server's library does not find a field without a name.
		return append(patch, operation{"replace", path, after}), nil
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, is := now[name]; !is {
			patch = append(patch, operation{Op: "remove", Path: path + "/" + escaped.Replace(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		at := path + "/" + escaped.Replace(name)
		was, is := old[name]
		if !is {
			patch = append(patch, operation{"add", at, now[name]})
			continue
		}
		var err error
		if patch, err = difference(patch, at, was, now[name]); err != nil {
			return nil, err
		}
	}
	return patch, nil
}
