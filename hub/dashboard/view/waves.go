package view

import (
	"fmt"
	"slices"
	"strings"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

// Waves are the stages of an environment with waves, in order, each as a cell whose Environment is the name of the wave.
type Waves []Cell

// shownWaves is how many waves a cell shows at once.
const shownWaves = 3

// First returns the waves that a cell shows: those with a promotion, or with a target that is not as it should be, worst first; all
// if there are few. The worst one and one that is under way are always among them.
func (w Waves) First() Waves {
	if len(w) <= shownWaves {
		return w
	}
	first := w.Notable()
	slices.SortStableFunc(first, func(a, b Cell) int { return worse(a.Mark().Tone, b.Mark().Tone) })
	if len(first) > shownWaves {
		if i := slices.IndexFunc(first, Cell.underWay); i >= shownWaves {
			first[shownWaves-1] = first[i]
		}
		first = first[:shownWaves]
	}
	return first
}

// Notable returns the waves with a promotion, or with a target that is not as it should be.
func (w Waves) Notable() Waves {
	return slices.DeleteFunc(slices.Clone(w), func(c Cell) bool { return !c.Notable() })
}

// Unshown is how many of the waves with a promotion or a problem First leaves out.
func (w Waves) Unshown() int { return max(0, len(w.Notable())-shownWaves) }

// Progress says how many waves run which revision, beginning with that of the first wave. A wave runs a revision if as many of its
// targets as must run it, ready.
func (w Waves) Progress() string {
	var order []string
	running := map[string]int{}
	for _, c := range w {
		f := c.Fleet
		if f == nil || f.Revision == "" || f.Ready < f.Required {
			continue
		}
		same := slices.IndexFunc(order, func(one string) bool { return revision.Same(one, f.Revision) })
		if same < 0 {
			same, order = len(order), append(order, f.Revision)
		}
		running[order[same]]++
	}
	if len(order) == 0 {
		return fmt.Sprintf("None of the %d waves runs a revision completely", len(w))
	}
	texts := []string{fmt.Sprintf("%d of %d waves run %s", running[order[0]], len(w), order[0])}
	for _, one := range order[1:] {
		texts = append(texts, fmt.Sprintf("%d run %s", running[one], one))
	}
	return strings.Join(texts, ", ")
}

// Notable returns whether a wave has a promotion under way, or one that failed, or a target that is not well.
func (c Cell) Notable() bool {
	return c.Move != nil || c.Held != nil || c.Mark().Tone < Good
}

func (c Cell) underWay() bool {
	return c.Move != nil && (c.Move.Mark.Tone == Asking || c.Move.Mark.Tone == Busy)
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
			whole := Cell{Environment: stage.Environment, Newer: c.Newer, Due: c.Due, Next: c.Next, Held: c.Held, All: c.All}
			if status := p.Status.Environments[stage.Environment]; status != nil && status.Fleet != nil {
				whole.Fleet = &Members{FleetStatus: *status.Fleet} // Its waves have the numbers of unlisted targets.
				whole.Fleet.Message = ""                           // Progress says which waves run which revision.
			}
			all = append(all, whole)
		}
		whole := &all[len(all)-1]
		whole.Targets = append(whole.Targets, c.Targets...)
		c.Environment = stage.Wave
		whole.Waves = append(whole.Waves, c)
		if stage.Last {
			slices.SortStableFunc(whole.Targets, func(a, b Target) int { return worse(a.Mark.Tone, b.Mark.Tone) })
		}
	}
	return all
}

// stages returns the waves with the names that their environments have in Promotions.
func (c Cell) stages() []Cell {
	all := slices.Clone(c.Waves)
	for i := range all {
		all[i].Environment = pipelinesv1.StageName(c.Environment, all[i].Environment)
	}
	return all
}
