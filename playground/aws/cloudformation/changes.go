package cloudformation

import (
	"encoding/json"
	"maps"
	"slices"
)

// Actions of changes, and values of their Replacement.
const (
	addAction    = "Add"
	modifyAction = "Modify"
	removeAction = "Remove"

	always      = "True"
	never       = "False"
	conditional = "Conditional"
)

// change of a resource.
type change struct {
	action, logical, physical, kind string
	replacement                     string
	// drift status of the resource; empty without drift.
	drift   string
	details []detail
}

// detail of a change: a property that differs or has drifted, or that refers to a replaced resource.
type detail struct{ property, recreation, evaluation, source string }

// changesOf returns the changes from a stack to a template, in the order of their execution:
// removed resources are last. Resources that have drifted are changed, too.
func changesOf(st *stack, t *template, tags map[string]string, drifted map[string]drift) []change {
	var all []change
	replaced := map[string]bool{}
	for _, logical := range t.order {
		d := t.resources[logical]
		had := st.resources[logical]
		if had == nil {
			all = append(all, change{action: addAction, logical: logical, kind: d.kind})
			continue
		}
		c := change{action: modifyAction, logical: logical, physical: had.physical, kind: d.kind, replacement: never}
		old := withTags(st.template.resources[logical], st.tags)
		now := withTags(d, tags)
		names := slices.Collect(maps.Keys(old))
		for name := range now {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			c.compare(name, old[name], now[name], replaced, t)
		}
		if d, has := drifted[logical]; has {
			c.add(d)
		}
		replaced[logical] = c.replacement == always
		if len(c.details) > 0 {
			all = append(all, c)
		}
	}
	for _, logical := range slices.Sorted(maps.Keys(st.resources)) {
		if _, has := t.resources[logical]; !has {
			r := st.resources[logical]
			all = append(all, change{action: removeAction, logical: logical, physical: r.physical, kind: r.kind})
		}
	}
	return all
}

// compare adds the detail of a property, if it changes.
func (c *change) compare(name string, old, now any, replaced map[string]bool, t *template) {
	recreation := "Never"
	if kinds[c.kind].properties[name] {
		recreation = "Always"
	}
	if !equal(old, now) {
		c.details = append(c.details, detail{name, recreation, "Static", "DirectModification"})
		if recreation == "Always" {
			c.replacement = always
		}
		return
	}
	all, err := references(now, t)
	if err != nil || !slices.ContainsFunc(all, func(other string) bool { return replaced[other] }) {
		return
	}
	c.details = append(c.details, detail{name, recreation, "Dynamic", "ResourceReference"})
	if recreation == "Always" && c.replacement != always {
		c.replacement = conditional
	}
}

// withTags returns the properties of a definition, with the tags of its stack.
func withTags(d definition, tags map[string]string) map[string]any {
	if !kinds[d.kind].tagged || len(tags) == 0 {
		return d.properties
	}
	p := maps.Clone(d.properties)
	own, _ := p[tagsKey].([]any)
	merged := slices.Clone(own)
	for _, t := range listOf(tags) {
		merged = append(merged, map[string]any{"Key": t.Key, "Value": t.Value})
	}
	p[tagsKey] = merged
	return p
}

// equal compares values of templates.
func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// outputsDiffer reports whether the outputs of two templates differ.
func outputsDiffer(a, b *template) bool {
	return !maps.EqualFunc(a.outputs, b.outputs, func(x, y output) bool { return x.description == y.description && equal(x.value, y.value) })
}
