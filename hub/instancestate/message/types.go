package message

import (
	"maps"
	"slices"
)

// EventTypes are the detail-types that are read, by their source in EventBridge; sorted.
func EventTypes() map[string][]string {
	types := make(map[string][]string, len(readers))
	for source, read := range readers {
		types[source] = slices.Sorted(maps.Keys(read))
	}
	return types
}

// Of AWS Health, the events that are read are of this service and category.
const (
	HealthService  = "EC2"
	HealthCategory = "scheduledChange"
)
