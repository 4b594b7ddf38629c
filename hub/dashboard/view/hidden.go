package view

import "strings"

// maxHiddenNames is how many namespaces a Hidden lists; it counts the others.
const maxHiddenNames = 3

// NeedApprove is the permission to approve promotions, as text for users.
const NeedApprove = "approve and patch promotions.capstan.dev"

// part of a Scope: a kind of object, in the plural, the permission to see it, and where the viewer has the permission.
type part struct {
	what, need string
	in         Namespaces
}

func (s Scope) clusters() part   { return part{"clusters", NeedClusters, s.Clusters} }
func (s Scope) pipelines() part  { return part{"Pipelines", NeedPipelines, s.Pipelines} }
func (s Scope) promotions() part { return part{"promotions", NeedPromotions, s.Promotions} }
func (s Scope) events() part     { return part{"Events", NeedEvents, s.Events} }
func (s Scope) backends() part   { return part{"event backends", NeedBackends, s.Backends} }
func (s Scope) nodeGroups() part { return part{"node groups", NeedNodeGroups, s.NodeGroups} }
func (s Scope) instances() part  { return part{"machines and pools", NeedInstances, s.Instances} }
func (s Scope) managedPools() part {
	return part{"managed machine pools", NeedManagedPools, s.ManagedPools}
}

// parts returns all kinds of objects of a Scope.
func (s Scope) parts() []part {
	return []part{s.clusters(), s.pipelines(), s.promotions(), s.nodeGroups(), s.instances(), s.backends(), s.events()}
}

// Hidden says which objects are counted and listed for a viewer without all rights. It does not say whether there are others.
type Hidden struct {
	Limits []Limit
}

// Limit of some kinds of objects.
type Limit struct {
	// What are the kinds, in the plural: "clusters, Pipelines".
	What string
	// In are the first namespaces that the viewer sees, and More is the number of the others.
	In   []string
	More int
	// Needs are the missing permissions when the viewer sees no namespace.
	Needs []string
}

// hidden returns the block, if there is one, that says which of the given parts of a Scope the viewer does not see completely.
// Pages add it to a list above their counts.
func hidden(list string, parts ...part) []Block {
	h := hiddenOf(parts...)
	if len(h.Limits) == 0 {
		return nil
	}
	return []Block{{ID: list + "-hidden", List: list, Template: "hidden", Data: h}}
}

func hiddenOf(parts ...part) Hidden {
	var h Hidden
	at := map[string]int{} // the limit of equal namespaces
	for _, p := range parts {
		if p.in.All {
			continue
		}
		key := strings.Join(p.in.Names, ",")
		i, known := at[key]
		if !known {
			i = len(h.Limits)
			at[key] = i
			n := min(len(p.in.Names), maxHiddenNames)
			h.Limits = append(h.Limits, Limit{What: p.what, In: p.in.Names[:n], More: len(p.in.Names) - n})
		} else {
			h.Limits[i].What += ", " + p.what
		}
		if p.in.Empty() {
			h.Limits[i].Needs = append(h.Limits[i].Needs, p.need)
		}
	}
	return h
}
