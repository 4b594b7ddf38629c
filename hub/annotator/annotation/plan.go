package annotation

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// Change is what is to be done to an object's annotations.
type Change struct {
	// Set are the annotations to be written, and Remove those to go.
	Set    map[string]string
	Remove []string
	// Kept are the keys, of annotations and of labels, where somebody's own value
	// stands in place of ours; sorted.
	Kept []string
	// Malformed are values that are not ours and that autoscalers cannot read; sorted.
	Malformed []Malformed
}

// Empty is whether there is nothing to write.
func (c Change) Empty() bool { return len(c.Set) == 0 && len(c.Remove) == 0 }

// Plan says what makes an object's annotations tell of the Node. Applied to its own
// outcome it is empty.
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

// managedKeys are those that a Node may have a value for, but the labels'.
var managedKeys = []string{CPU, Memory, GPUType, GPUCount, EphemeralDisk, MaxPods, LegacyVCPU, LegacyMemoryMb, LegacyGPU}

func legacy(key string) bool {
	switch key {
	case LegacyVCPU, LegacyMemoryMb, LegacyGPU:
		return true
	}
	return false
}

// Keys of the annotations that it changes; sorted.
func (c Change) Keys() []string {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(c.Set)), c.Remove)))
}

// Fingerprint is the same for the same change.
func (c Change) Fingerprint() string {
	h := fnv.New128a()
	for _, key := range c.Keys() {
		fmt.Fprintf(h, "%q=%q;", key, c.Set[key])
	}
	return string(h.Sum(nil))
}

// Apply is what becomes of annotations.
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

// MergePatch is the JSON merge patch of the metadata alone. The labels are a string
// that is read and written, so that a change by somebody else in between must make it
// fail: hence the resourceVersion.
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
