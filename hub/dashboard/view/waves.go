package view

import (
	"slices"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Waves are the stages of an environment with waves, in order, each as a cell whose Environment is the name of the wave.
type Waves []Cell

// fewWaves is how many waves a cell shows at once whatever their state is.
const fewWaves = 3

// First returns the waves that a cell shows at once: those with a promotion, or with a target that is not as it should be; all if
// there are few.
func (w Waves) First() Waves {
	if len(w) <= fewWaves {
		return w
	}
	return slices.DeleteFunc(slices.Clone(w), func(c Cell) bool { return !c.notable() })
}

// Rest returns the others.
func (w Waves) Rest() Waves {
	if len(w) <= fewWaves {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w), func(c Cell) bool { return c.notable() })
}

// notable returns whether a wave has a promotion under way, or one that failed, or a target that is not well.
func (c Cell) notable() bool {
	return c.Move != nil || c.Held != nil || slices.ContainsFunc(c.Targets, func(t Target) bool { return t.Mark.Tone < Good })
}

// Lead is the cell's first target; its mark is the worst one of a fleet.
func (c Cell) Lead() *Target {
	if len(c.Targets) == 0 {
		return nil
	}
	return &c.Targets[0]
}

// withWaves returns the cells of a Pipeline with one cell for each environment with waves, in place of those of its stages. cells
// are in the order of the environments.
func withWaves(p *pipelinesv1.Pipeline, cells []Cell) []Cell {
	var all []Cell
	for i, c := range cells {
		stage := p.Spec.Environments[i].Stage
		if stage == nil {
			all = append(all, c)
			continue
		}
		if stage.First {
			whole := Cell{Environment: stage.Environment, Newer: c.Newer, All: c.All}
			if status := p.Status.Environments[stage.Environment]; status != nil && status.Fleet != nil {
				whole.Fleet = &Members{FleetStatus: *status.Fleet}
			}
			all = append(all, whole)
		}
		whole := &all[len(all)-1]
		whole.Targets = append(whole.Targets, c.Targets...)
		slices.SortStableFunc(whole.Targets, func(a, b Target) int { return worse(a.Mark.Tone, b.Mark.Tone) })
		if whole.Fleet != nil && c.Fleet != nil {
			whole.Fleet.Unlisted += c.Fleet.Unlisted
			whole.Fleet.InLine += c.Fleet.InLine
		}
		c.Environment = stage.Wave
		whole.Waves = append(whole.Waves, c)
	}
	return all
}
