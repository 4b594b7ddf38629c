package pipeline

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// statusPatch returns a JSON patch that changes a Pipeline's status from before to after, if the
// Pipeline still has the resourceVersion. It contains only what differs: an object by its fields, a list by its
// elements or as a whole, what is shorter. client.MergeFrom would decode both Pipelines completely. Environments that are equal are
// not even encoded: a fleet in waves has many.
//
// The API server refuses the patch (422) if the Pipeline has no status.schemaFleets: it is then served by
// another CRD, and would be stored without the fields that this does not have.
func statusPatch(resourceVersion string, before, after *pipelinesv1.PipelineStatus) ([]byte, error) {
	version, err := json.Marshal(resourceVersion)
	if err != nil {
		return nil, err
	}
	patch := []operation{
		{Op: "test", Path: "/status/schemaFleets", Value: json.RawMessage(`"` + pipelinesv1.StatusSchemaFleets + `"`)},
		{Op: "add", Path: "/metadata/resourceVersion", Value: version},
	}
	b, a := *before, *after
	single := oneByOne(before.Environments) && oneByOne(after.Environments)
	if single {
		b.Environments, a.Environments = nil, nil
	}
	if patch, err = encoded(patch, "/status", b, a); err != nil {
		return nil, err
	}
	if single {
		if patch, err = environmentsDiffer(patch, before.Environments, after.Environments); err != nil {
			return nil, err
		}
	}
	return json.Marshal(patch)
}

// oneByOne returns whether environments are compared one by one. The API server's library does not find a field without a
// name.
func oneByOne(all map[string]*pipelinesv1.EnvironmentStatus) bool {
	_, nameless := all[""]
	return len(all) > 0 && !nameless
}

// environmentsDiffer appends the operations that change some environments to others.
func environmentsDiffer(patch []operation, before, after map[string]*pipelinesv1.EnvironmentStatus) ([]operation, error) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := after[name]; !is {
			patch = append(patch, operation{Op: "remove", Path: environmentPath(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, is := before[name]
		if !is {
			value, err := json.Marshal(after[name])
			if err != nil {
				return nil, err
			}
			patch = append(patch, operation{"add", environmentPath(name), value})
			continue
		}
		if equality.Semantic.DeepEqual(was, after[name]) {
			continue
		}
		var err error
		if patch, err = encoded(patch, environmentPath(name), was, after[name]); err != nil {
			return nil, err
		}
	}
	return patch, nil
}

func environmentPath(name string) string { return "/status/environments/" + escaped.Replace(name) }

// encoded appends the operations that change one object to another.
func encoded(patch []operation, path string, before, after any) ([]operation, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return difference(patch, path, old, now)
}

// escaped writes a name as a part of a path (RFC 6901).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// difference appends the operations that change one value to another. Both are as json.Marshal writes
// them, so that equal values have equal bytes.
func difference(patch []operation, path string, before, after json.RawMessage) ([]operation, error) {
	if bytes.Equal(before, after) {
		return patch, nil
	}
	if before[0] == '[' && after[0] == '[' {
		return elements(patch, path, before, after)
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

// elements appends the operations that change one list to another: those of its elements if both have as many, and that is
// shorter than the list.
func elements(patch []operation, path string, before, after json.RawMessage) ([]operation, error) {
	var old, now []json.RawMessage
	if err := json.Unmarshal(before, &old); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &now); err != nil {
		return nil, err
	}
	whole := operation{"replace", path, after}
	if len(old) != len(now) {
		return append(patch, whole), nil
	}
	var changes []operation
	for i := range now {
		var err error
		if changes, err = difference(changes, path+"/"+strconv.Itoa(i), old[i], now[i]); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, c := range changes {
		size += len(c.Path) + len(c.Value)
	}
	if size >= len(after) {
		return append(patch, whole), nil
	}
	return append(patch, changes...), nil
}
