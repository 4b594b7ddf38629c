package pipeline

import (
	"bytes"
	"encoding/json"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// statusPatch returns a merge patch (RFC 7396) that changes a Pipeline's status from before to
// after, if the Pipeline still has the resourceVersion. It contains only what differs: a list as a
// whole, an object by its fields. client.MergeFrom would decode both Pipelines completely.
func statusPatch(resourceVersion string, before, after *pipelinesv1.PipelineStatus) ([]byte, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	status, err := difference(old, now)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": resourceVersion},
		"status":   status,
	})
}

// difference returns the merge patch from one value to another that differs from it. Both are as
// json.Marshal writes them, so that equal values have equal bytes.
func difference(before, after json.RawMessage) (json.RawMessage, error) {
	if before[0] != '{' || after[0] != '{' {
		return after, nil
	}
	var old, now map[string]json.RawMessage
	if err := json.Unmarshal(before, &old); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &now); err != nil {
		return nil, err
	}
	patch := map[string]json.RawMessage{}
	for name := range old {
		if _, is := now[name]; !is {
			patch[name] = json.RawMessage("null")
		}
	}
	for name, value := range now {
		was, is := old[name]
		if is && bytes.Equal(was, value) {
			continue
		}
		if is {
			var err error
			if value, err = difference(was, value); err != nil {
				return nil, err
			}
		}
		patch[name] = value
	}
	return json.Marshal(patch)
}
