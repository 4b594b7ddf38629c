package catalogue

import (
	"cmp"
	"slices"
	"time"

	"github.com/capstan-hub/capstan/internal/truncate"
)

// mostStates is how many regions, and failing roles of regions, a State has: users name both.
// mostRole and mostMessage bound their texts, in bytes; an ARN of a role of IAM is shorter.
const mostStates, mostRole, mostMessage = 100, 640, 1024

// State is what users may know of a catalogue: which regions it has, and why calls fail. It has no
// credentials, and no external id of a role. Two States of a catalogue are equal unless a listing
// succeeded, a type was looked up, or a failure began, ended or became another one.
type State struct {
	// Regions that were queried, by name: the most recently queried ones.
	Regions []RegionState `json:"regions"`
}

// RegionState is the state of one region.
type RegionState struct {
	Name string `json:"name"`
	// Listed is when EC2 last listed the region's types; zero if it never did.
	Listed time.Time `json:"listed,omitzero"`
	// Types is the number of instance types whose capacity is known.
	Types int `json:"types"`
	// Failing are the calls that fail now, by role.
	Failing []FailureState `json:"failing,omitempty"`
}

// FailureState is why calls fail.
type FailureState struct {
	// Role is the ARN of the role; empty for the hub's own identity. All is set if every role fails.
	Role string `json:"role,omitempty"`
	All  bool   `json:"all,omitempty"`
	// Since is when they began to fail.
	Since time.Time `json:"since"`
	// Class is a value of the label result of the metrics, and Message what to fix.
	Class   string `json:"class"`
	Message string `json:"message"`
}

// State returns the present state.
func (c *EC2) State() State {
	return stateOf(c.snapshot(c.clock.Now()))
}

func stateOf(all map[string]regionSnapshot) State {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(all[b].asked.Truncate(time.Hour).Compare(all[a].asked.Truncate(time.Hour)), cmp.Compare(a, b))
	})
	names = names[:min(len(names), mostStates)]
	left := mostStates - len(names)
	s := State{Regions: make([]RegionState, 0, len(names))}
	for _, name := range names {
		r := all[name]
		failing := failuresOf(r)
		failing = failing[:min(len(failing), left)]
		left -= len(failing)
		slices.SortFunc(failing, func(a, b FailureState) int { return cmp.Compare(a.Role, b.Role) })
		s.Regions = append(s.Regions, RegionState{Name: name, Listed: r.listed.UTC().Truncate(time.Second), Types: r.known, Failing: failing})
	}
	slices.SortFunc(s.Regions, func(a, b RegionState) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// failuresOf returns the failures of a region, one for each ARN, the latest first.
func failuresOf(r regionSnapshot) []FailureState {
	byRole := map[string]FailureState{}
	for whom, f := range r.failing {
		s := FailureState{
			Role: truncate.Bytes(whom.role.ARN, mostRole), All: whom.everyone, Since: f.since.UTC().Truncate(time.Second),
			Class: results[f.err.Class], Message: truncate.Bytes(f.err.Error(), mostMessage),
		}
		key := s.Role
		if s.All {
			key = "*"
		}
		// Two roles of one ARN differ in an external id, which is not shown.
		if known, has := byRole[key]; !has || s.Since.Before(known.Since) || s.Since.Equal(known.Since) && s.Message < known.Message {
			byRole[key] = s
		}
	}
	var failing []FailureState
	for _, f := range byRole {
		failing = append(failing, f)
	}
	slices.SortFunc(failing, func(a, b FailureState) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Role, b.Role), cmp.Compare(a.Message, b.Message))
	})
	return failing
}
