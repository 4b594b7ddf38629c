package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
)

const (
	// maxStops is how many environments of a Pipeline the list shows. With railsPerPage it bounds the height of the
	// page on a phone, where each of them has a line of its own.
	maxStops = 4
	// maxOpenings is how many closed gates a stop names; they are the first ones of the promotion.
	maxOpenings = 2
	// percent is the whole of a bar.
	percent = 100
)

// Rail is a Pipeline in the list: its environments in their order, and what waits between them.
type Rail struct {
	Namespace, Name, Link, App string
	// Mark of the worst environment, or of the Pipeline itself, and Note why.
	Mark Mark
	Note string
	// Stops are the environments that the list shows: all if they are few, else the first, the last and the worst
	// ones between.
	Stops []Stop
	// More is how many environments it does not show.
	More int
}

// Stop is an environment on a rail.
type Stop struct {
	Environment string
	// Mark of its worst target, and the Revision that most of its targets run; empty if none runs one.
	Mark     Mark
	Revision string
	// Note says why that target is not well, and At is when it was observed if that is outdated; else they are zero.
	Note string
	At   time.Time
	// Others is how many other revisions run in it.
	Others int
	// Gap is how many environments between it and the stop before are not shown.
	Gap int
	// First is whether it is the first environment; Same whether it runs the revision of the environment before it,
	// and no other one waits.
	First, Same bool
	// Ready is set if it has several targets.
	Ready *Share
	// Waves says which waves run which revision, and Worst is the name of the worst wave if that is not well; both are
	// empty without waves.
	Waves, Worst string
	// Wait is what a promotion or a newer revision waits for; nil if there is none.
	Wait *Wait
}

// Share is a part of a whole.
type Share struct{ N, Of int }

// Many is whether it is worth a bar.
func (s Share) Many() bool { return s.Of > shownTargets }

// Percent of the whole, from 0 to 100. It is 100 only if nothing is missing, and 0 only if there is nothing.
func (s Share) Percent() int {
	if s.Of <= 0 || s.N <= 0 {
		return 0
	}
	if s.N >= s.Of {
		return percent
	}
	return max(1, s.N*percent/s.Of)
}

// Wait is a promotion into an environment, or a newer revision that is not promoted, and what it waits for.
type Wait struct {
	Mark     Mark
	Revision string
	// Wave that the promotion is into; empty without waves.
	Wave string
	// Text says why it waits; empty if Gates do.
	Text string
	// Gates that are closed, the first ones, and how many more there are.
	Gates     []Gate
	MoreGates int
	// URL of the pull request, and Approve is the address for approving it; empty if there is none, or the viewer cannot.
	URL, Approve string
}

// rail returns a Pipeline as the list shows it. The cells of the row are those of the environments of p, before withWaves.
func (f *Facts) rail(p *pipelinesv1.Pipeline, row Row, history []capstanv1.Promotion, scope Scope) Rail {
	r := Rail{Namespace: row.Namespace, Name: row.Name, Link: row.Link, App: row.App, Mark: row.Mark, Note: row.Note}
	f.decided(p, row.Cells, history, scope)
	cells := withWaves(p, row.Cells)
	shown := notableStops(cells)
	r.More = len(cells) - len(shown)
	before := -1
	for _, i := range shown {
		s := stopOf(cells[i], history)
		s.First, s.Gap = i == 0, i-before-1
		s.Same = i > 0 && s.Wait == nil && s.Revision != "" && s.Others == 0 && revision.Same(s.Revision, runs(cells[i-1]))
		r.Stops = append(r.Stops, s)
		before = i
	}
	return r
}

// notableStops returns the indexes of the cells that a rail shows, in their order.
func notableStops(cells []Cell) []int {
	all := make([]int, len(cells))
	for i := range all {
		all[i] = i
	}
	if len(all) <= maxStops {
		return all
	}
	last := len(all) - 1
	between := all[1:last]
	slices.SortStableFunc(between, func(a, b int) int {
		return cmp.Or(worse(cells[a].Mark().Tone, cells[b].Mark().Tone), cmp.Compare(waits(cells[b]), waits(cells[a])))
	})
	shown := append([]int{0}, between[:maxStops-2]...) // The others are the first and the last.
	shown = append(shown, last)
	slices.Sort(shown)
	return shown
}

// waits is 1 if a newer revision or a promotion waits, else 0.
func waits(c Cell) int {
	if c.Move != nil || c.Held != nil || c.Newer != "" {
		return 1
	}
	return 0
}

// runs returns the revision that most targets of a cell run: the first one if several do.
func runs(c Cell) string {
	if c.Fleet != nil {
		return c.Fleet.Revision
	}
	most, _ := mostRun(c.Targets)
	return most
}

// mostRun returns the revision that most of the targets run, and how many other ones run.
func mostRun(targets []Target) (most string, others int) {
	var order []string
	count := map[string]int{}
	for _, t := range targets {
		if t.Revision == "" {
			continue
		}
		at := slices.IndexFunc(order, func(one string) bool { return revision.Same(one, t.Revision) })
		if at < 0 {
			at, order = len(order), append(order, t.Revision)
		}
		count[order[at]]++
	}
	if len(order) == 0 {
		return "", 0
	}
	return slices.MaxFunc(order, func(a, b string) int { return cmp.Compare(count[a], count[b]) }), len(order) - 1
}

func stopOf(c Cell, history []capstanv1.Promotion) Stop {
	worst := worstTarget(c.Targets)
	s := Stop{Environment: c.Environment, Mark: worst.Mark, Revision: runs(c), Wait: waitOf(c, history)}
	if worst.Mark.Tone < Good {
		s.Note = worst.Note
	}
	if worst.Mark.Tone == Stale {
		s.At = worst.At
	}
	switch {
	case c.Fleet != nil:
		s.Ready = &Share{N: int(c.Fleet.Ready), Of: int(c.Fleet.Targets)}
	case len(c.Targets) > 1:
		_, s.Others = mostRun(c.Targets)
		s.Ready = &Share{Of: len(c.Targets)}
		for _, t := range c.Targets {
			if t.Mark.Tone == Good {
				s.Ready.N++
			}
		}
	}
	if len(c.Waves) > 0 {
		s.Waves = c.Waves.Progress()
		wave := slices.MinFunc(c.Waves, func(a, b Cell) int {
			return worse(worstTarget(a.Targets).Mark.Tone, worstTarget(b.Targets).Mark.Tone)
		})
		if worst.Mark.Tone < Good {
			s.Worst = wave.Environment
		}
	}
	return s
}

// worstTarget returns the worst target.
func worstTarget(targets []Target) Target {
	if len(targets) == 0 {
		return Target{Mark: Mark{Idle, "Nothing runs"}}
	}
	return slices.MinFunc(targets, func(a, b Target) int { return worse(a.Mark.Tone, b.Mark.Tone) })
}

// waitOf returns what waits for an environment. Of its waves it is the worst promotion.
func waitOf(c Cell, history []capstanv1.Promotion) *Wait {
	var worst *Wait
	for _, wave := range c.Waves {
		if wave.Move == nil {
			continue
		}
		if w := moveWait(wave.Move, history); worst == nil || worse(w.Mark.Tone, worst.Mark.Tone) < 0 {
			worst, w.Wave = w, wave.Environment
		}
	}
	switch {
	case worst != nil:
		return worst
	case c.Move != nil:
		return moveWait(c.Move, history)
	case c.Held != nil:
		return &Wait{Mark: c.Held.Mark, Revision: c.Newer, Text: fmt.Sprintf("until %s agrees on another revision", c.Held.Source)}
	case c.Newer != "" && c.Due:
		return &Wait{Mark: Mark{Busy, "Ready to promote"}, Revision: c.Newer}
	case c.Newer != "" && c.Next != "":
		return &Wait{Mark: Mark{Idle, "Newer"}, Revision: c.Newer, Text: c.Next}
	}
	return nil
}

// moveWait returns what a promotion waits for: its closed gates if the viewer may see them, else its message.
func moveWait(m *Move, history []capstanv1.Promotion) *Wait {
	w := &Wait{Mark: m.Mark, Revision: m.Revision, Text: m.Message, URL: m.URL, Approve: m.Approve}
	var closed []Gate
	for i := range history {
		if history[i].Name == m.name {
			closed = slices.DeleteFunc(gatesOf(&history[i]), func(g Gate) bool { return g.Mark.Tone == Good })
		}
	}
	if len(closed) > 0 {
		w.Text = ""
		w.Gates, w.MoreGates = closed[:min(len(closed), maxOpenings)], max(0, len(closed)-maxOpenings)
	}
	return w
}
