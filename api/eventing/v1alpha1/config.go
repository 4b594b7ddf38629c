package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// NewConfig is a spec.config with one item per key, in the order of their names. The
// error names the key whose value has no JSON.
func NewConfig(values map[string]any) ([]ConfigEntry, error) {
	entries := make([]ConfigEntry, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		raw, err := json.Marshal(values[key])
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
		entries = append(entries, ConfigEntry{key: {Raw: raw}})
	}
	return entries, nil
}
