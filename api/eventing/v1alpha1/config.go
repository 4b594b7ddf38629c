package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// NewConfig returns a spec.config with one item for each key, sorted by key. It returns
// an error that names the key when its value cannot be encoded as JSON.
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
