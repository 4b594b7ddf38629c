package cloudformation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// revertDrift is the deployment mode of a drift-aware change set.
const revertDrift = "REVERT_DRIFT"

// Drift statuses of a resource.
const (
	driftModified = "MODIFIED"
	driftDeleted  = "DELETED"
)

// drift of a resource: its live state differs from the properties that the stack applied last.
type drift struct {
	// missing means that the resource does not exist; then there are no live properties.
	missing bool
	// live has the same names as the applied properties; differing are the names with another
	// value.
	live      map[string]any
	differing []string
}

// drift reads the live state of the stack's resources. It returns those that have drifted, by
// logical id. As in AWS, a property that the template does not have cannot drift.
func (r *run) drift() (map[string]drift, error) {
	found := map[string]drift{}
	for _, logical := range slices.Sorted(maps.Keys(r.worker.resources)) {
		res := r.worker.resources[logical]
		live, err := kinds[res.kind].read(r.ctx, r.worker, res.physical, res.properties)
		if notFound(err) {
			found[logical] = drift{missing: true, differing: slices.Sorted(maps.Keys(res.properties))}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the live state of resource %s cannot be read: %s", logical, reason(err))
		}
		d := drift{live: map[string]any{}}
		for _, name := range slices.Sorted(maps.Keys(res.properties)) {
			d.live[name] = res.properties[name]
			if !equal(canonical(live[name]), canonical(res.properties[name])) {
				d.live[name] = live[name]
				d.differing = append(d.differing, name)
			}
		}
		if len(d.differing) > 0 {
			found[logical] = d
		}
	}
	return found, nil
}

// add adds the details of a drift to a change. A missing resource is replaced by a new one.
func (c *change) add(d drift) {
	c.drift = driftModified
	if d.missing {
		c.drift, c.replacement = driftDeleted, always
	}
	for _, name := range d.differing {
		if !slices.ContainsFunc(c.details, func(had detail) bool { return had.property == name }) {
			recreation := "Never"
			if kinds[c.kind].properties[name] {
				recreation = "Always"
			}
			c.details = append(c.details, detail{name, recreation, "Static", "NoModification"})
		}
	}
	slices.SortFunc(c.details, func(a, b detail) int { return cmp.Compare(a.property, b.property) })
}

// canonical returns a value in one form: services return documents and numbers as texts, and
// the elements of lists in their own order.
func canonical(v any) any {
	if s, is := v.(string); is {
		var document map[string]any
		if !strings.HasPrefix(strings.TrimSpace(s), "{") || json.Unmarshal([]byte(s), &document) != nil {
			return s
		}
		return canonical(document)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // Values of a template can be encoded.
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return string(raw)
	}
	switch plain := plain.(type) {
	case map[string]any:
		for key, inner := range plain {
			plain[key] = canonical(inner)
		}
		return plain
	case []any:
		for i := range plain {
			plain[i] = canonical(plain[i])
		}
		slices.SortFunc(plain, func(a, b any) int { return cmp.Compare(text(a), text(b)) })
		return plain
	case string:
		return canonical(plain)
	}
	return string(raw)
}
