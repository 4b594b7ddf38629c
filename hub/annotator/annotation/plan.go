package annotation

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// Change is a change of an object's annotations.
type Change struct {
	// Set are the annotations to write, and Remove those to remove.
	Set    map[string]string
	Remove []string
	// Kept are the keys, of annotations and of labels, with a value of a user that differs
	// from the computed one; sorted.
	Kept []string
	// Malformed are values of users that autoscalers cannot read; sorted.
	Malformed []Malformed
}

// Empty reports whether there is nothing to write.
func (c Change) Empty() bool { return len(c.Set) == 0 && len(c.Remove) == 0 }

// Plan returns the change after which an object's annotations describe the Node. A second Plan
// after this change is empty.
func Plan(current map[string]string, node Node, families []Family) Change {
	r := parseRecord(current[Applied])
	managed := map[string]string{}
	for _, key := range managedKeys {
		if v, ok := current[key]; ok {
			managed[key] = v
		}
	}
	after, kept := merge(managed, node.values(families), r.Values, r.lost, func(key string, known bool) bool {
		return !known && legacy(key)
	})
	set := parseLabels(current[Labels])
	labels, keptLabels := merge(set.labels, node.Labels, r.Labels, r.lost, func(key string, _ bool) bool { return key == LabelArch })
	set.labels = labels
	if text := set.String(); text != "" {
		after[Labels] = text
	}
	if text := r.String(); text != "" {
		after[Applied] = text
	}

	c := Change{Set: map[string]string{}, Kept: append(kept, keptLabels...)}
	for key, value := range after {
		if is, present := current[key]; !present || is != value {
			c.Set[key] = value
		}
	}
	for _, key := range append([]string{Labels, Applied}, managedKeys...) {
		if _, present := current[key]; present {
			if _, stays := after[key]; !stays {
				c.Remove = append(c.Remove, key)
			}
		}
	}
	slices.Sort(c.Remove)
	slices.Sort(c.Kept)
	c.Malformed = malformed(after, r.Values, set.odd)
	return c
}

// managedKeys are the keys of Node.values.
var managedKeys = []string{CPU, Memory, GPUType, GPUCount, EphemeralDisk, MaxPods, LegacyVCPU, LegacyMemoryMb, LegacyGPU}

func legacy(key string) bool {
	switch key {
	case LegacyVCPU, LegacyMemoryMb, LegacyGPU:
		return true
	}
	return false
}

// Keys returns the keys of the annotations that the change sets or removes; sorted.
func (c Change) Keys() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(c.Set)), c.Remove)))
}

// Fingerprint returns a hash, which is equal for equal changes.
func (c Change) Fingerprint() string {
	h := fnv.New128a()
	for _, key := range c.Keys() {
		fmt.Fprintf(h, "%q=%q;", key, c.Set[key])
	}
	return string(h.Sum(nil))
}

// Apply returns the annotations after the change.
func (c Change) Apply(current map[string]string) map[string]string {
	out := maps.Clone(current)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, c.Set)
	for _, key := range c.Remove {
		delete(out, key)
	}
	return out
}

// MergePatch returns a JSON merge patch of the metadata only. The labels are one string that is
// read, changed and written. The resourceVersion makes the patch fail if another client has
// changed the object in between.
func (c Change) MergePatch(resourceVersion string) ([]byte, error) {
	annotations := make(map[string]*string, len(c.Set)+len(c.Remove))
	for key, value := range c.Set {
		annotations[key] = &value
	}
	for _, key := range c.Remove {
		annotations[key] = nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": resourceVersion, "annotations": annotations}})
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	return raw, nil
}
