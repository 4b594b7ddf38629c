// Package hubname names the objects of one of several hubs of a management cluster.
//
// Purpose: the Lease of a hub and the ConfigMap of its catalogue are in one namespace with those of the others. Contract:
// pure; the objects of a hub without a name of its own have no suffix. Locking: none.
package hubname

// Default is the name of a hub that has none of its own.
const Default = "capstan"

// Of returns the name of an object of a hub: base, and "-" and the name of the hub if it has one of its own.
func Of(base, hub string) string {
	if hub == Default {
		return base
	}
	return base + "-" + hub
}
