package message

import (
	"maps"
	"slices"
)

// EventTypes returns the detail-types that Decode reads, by their source in EventBridge;
// sorted.
func EventTypes() map[string][]string {
	types := make(map[string][]string, len(readers))
	for source, read := range readers {
		types[source] = slices.Sorted(maps.Keys(read))
	}
	return types
}

// Service and category of the AWS Health events that Decode reads.
const (
	HealthService  = "EC2"
	HealthCategory = "scheduledChange"
)
