package quorum

import (
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/soak"
)

// Target is the observed state of one target of an environment.
type Target struct {
	// Fresh is whether the other fields are current.
	Fresh bool
	// Ready is whether the application is ready at Revision.
	Ready bool
	// Progressing is whether its controller is at work on the application and has not judged it yet.
	Progressing bool
	// Revision that the application was last observed to run; empty for none.
	Revision string
	// Standing of the target; empty for none.
	Standing pipelinesv1.TargetStanding
	// Cluster of a target of a wave, as namespace/name; empty for the management cluster.
	Cluster string
}

// Runs returns whether the target runs a revision now, fresh and ready.
func (t Target) Runs(wanted string) bool {
	return t.Fresh && t.Ready && t.Revision != "" && revision.Same(t.Revision, wanted)
}

// Shows returns whether a target shows a revision, and is ready or its controller is at work.
func (t Target) Shows(wanted string) bool {
	return t.Fresh && (t.Ready || t.Progressing) && t.Revision != "" && revision.Same(t.Revision, wanted)
}

// Fleet are the targets of an environment, and which of them may be left out.
//
// An environment runs a revision if as many targets run it, fresh and ready, as are required: the share of
// Quorum.Ready of those that count, and more than half of all targets, so that no two revisions can both be run.
// Without a quorum, every target counts and must run it.
type Fleet struct {
	Targets []Target
	Quorum  Rules
	// Unknown is set if it is not known which clusters are selected.
	Unknown bool
	// notJudged is how many targets Judged left out. How many may be lost is a share of all.
	notJudged int
}

// Required returns how many targets must run a revision; one more than there are if nothing that the targets
// show can be enough.
func (f Fleet) Required() int {
	all := len(f.Targets)
	if all == 0 || f.Unknown || f.Quorum.wrong != nil || f.number(pipelinesv1.TargetLost) > f.mayBeLost() {
		return all + 1
	}
	return max(f.Quorum.of(f.counted()), all/2+1)
}

// Agree returns the revision that the environment runs now, and true; false if there is none, or there are no
// targets. If the targets name the same content differently, it is the first one's revision.
func (f Fleet) Agree() (string, bool) {
	runs, n := f.Most()
	return runs, n > 0 && n >= f.Required()
}

// Most returns the revision that most of the targets that count run, fresh and ready, and how many do. Of two that
// as many run, it is that of the first target.
func (f Fleet) Most() (runs string, n int) {
	first, counts := map[string]string{}, map[string]int{}
	var order []string
	for _, t := range f.Targets {
		if t.Standing.LeftOut() || !t.Runs(t.Revision) {
			continue
		}
		content := revision.Content(t.Revision)
		if counts[content]++; counts[content] == 1 {
			first[content] = t.Revision
			order = append(order, content)
		}
	}
	for _, content := range order {
		if counts[content] > n {
			runs, n = first[content], counts[content]
		}
	}
	return runs, n
}

// running returns how many targets that count run a revision, fresh and ready.
func (f Fleet) running(revision string) int {
	n := 0
	for _, t := range f.Targets {
		if !t.Standing.LeftOut() && t.Runs(revision) {
			n++
		}
	}
	return n
}

// Shown returns whether as many targets that count as must run a revision show it, ready or at work.
func (f Fleet) Shown(revision string) bool {
	n := 0
	for _, t := range f.Targets {
		if !t.Standing.LeftOut() && t.Shows(revision) {
			n++
		}
	}
	return n > 0 && n >= f.Required()
}

// Observe returns what the targets show of a revision that was promoted to them. elsewhere is the verdict about a
// target that runs another revision.
func (f Fleet) Observe(promoted string, elsewhere soak.Verdict) soak.Verdict {
	var ready, progressing, unobserved int
	for _, t := range f.Targets {
		if t.Standing.LeftOut() {
			continue
		}
		switch t.observe(promoted, elsewhere) {
		case soak.Ready:
			ready++
		case soak.Progressing:
			progressing++
		case soak.Unobserved:
			unobserved++
		case soak.Unready:
		}
	}
	switch required := f.Required(); {
	case required > f.counted(): // Too many are left out.
		return soak.Unobserved
	case ready >= required:
		return soak.Ready
	case ready+progressing >= required:
		return soak.Progressing
	case ready+progressing+unobserved >= required:
		return soak.Unobserved
	}
	return soak.Unready
}

func (t Target) observe(promoted string, elsewhere soak.Verdict) soak.Verdict {
	switch {
	case !t.Fresh:
		return soak.Unobserved
	case t.Runs(promoted):
		return soak.Ready
	case t.Revision != "" && !revision.Same(t.Revision, promoted) && elsewhere == soak.Unobserved:
		return soak.Unobserved
	case t.Progressing:
		return soak.Progressing
	}
	return soak.Unready
}

// number returns how many targets have a standing.
func (f Fleet) number(standing pipelinesv1.TargetStanding) int {
	n := 0
	for _, t := range f.Targets {
		if t.Standing == standing {
			n++
		}
	}
	return n
}

// mayBeLost returns how many targets may be lost.
func (f Fleet) mayBeLost() int { return f.Quorum.MayBeLost(len(f.Targets) + f.notJudged) }

// counted returns how many targets are not left out.
func (f Fleet) counted() int {
	return len(f.Targets) - f.number(pipelinesv1.TargetLost) - f.number(pipelinesv1.TargetJoining)
}

// Judged returns the fleet without the targets that joined too late to be judged in a promotion into a wave; nil for none. Those
// that are left out stay: they say how many must run a revision.
func (f Fleet) Judged(wave *capstanv1.PromotionWave) Fleet {
	all := f.Targets
	f.Targets = slices.DeleteFunc(slices.Clone(all), func(t Target) bool { return t.joined(wave) })
	f.notJudged += len(all) - len(f.Targets)
	return f
}

// Judged returns whether what a target shows is judged in a promotion into a wave, nil for none: it is neither left out nor
// joined too late.
func (t Target) Judged(wave *capstanv1.PromotionWave) bool {
	return !t.Standing.LeftOut() && !t.joined(wave)
}

// joined returns whether a target joined too late to be judged: it is late, or the promotion is not for its cluster.
func (t Target) joined(wave *capstanv1.PromotionWave) bool {
	return t.Standing == pipelinesv1.TargetLate || !t.in(wave)
}

// in returns whether a promotion into a wave is for the cluster of a target. Any is without a wave, and so are the management
// cluster and a target that the status only counts.
func (t Target) in(wave *capstanv1.PromotionWave) bool {
	if wave == nil || t.Cluster == "" {
		return true
	}
	_, member := slices.BinarySearch(wave.Clusters, t.Cluster)
	return member
}

// Elsewhere returns whether a target that counts runs another revision, or none, ready or not: one of those that a promotion into a
// wave is for, nil for all. One that cannot be observed does not. One that the status only counts does, if it may.
func (f Fleet) Elsewhere(wanted string, wave *capstanv1.PromotionWave) bool {
	return slices.ContainsFunc(f.Targets, func(t Target) bool {
		known := t.Fresh || t.Cluster == "" && t.Standing == pipelinesv1.TargetLate
		return known && t.in(wave) && !t.Standing.LeftOut() && !revision.Same(t.Revision, wanted)
	})
}

// Lacking returns the standing because of which so many targets are left out that the others cannot be enough; empty if they can.
func (f Fleet) Lacking() pipelinesv1.TargetStanding {
	lost, joining := f.number(pipelinesv1.TargetLost), f.number(pipelinesv1.TargetJoining)
	switch {
	case lost+joining == 0 || f.Required() <= f.counted():
		return ""
	case lost > f.mayBeLost() || joining == 0:
		return pipelinesv1.TargetLost
	}
	return pipelinesv1.TargetJoining
}

// Unobserved returns how many targets cannot be observed and are not lost.
func (f Fleet) Unobserved() int {
	n := 0
	for _, t := range f.Targets {
		if !t.Fresh && t.Standing != pipelinesv1.TargetLost {
			n++
		}
	}
	return n
}

// Unready returns how many targets without a standing can be observed and are not ready, and whose controllers are not at work.
func (f Fleet) Unready() int {
	n := 0
	for _, t := range f.Targets {
		if t.Standing == "" && t.Fresh && !t.Ready && !t.Progressing {
			n++
		}
	}
	return n
}

// Fresh returns whether enough targets can be observed to promote to the environment. One that joins is one of them: the hub
// is not cut off from it.
func (f Fleet) Fresh() bool {
	observed := len(f.Targets) - f.Unobserved() - f.number(pipelinesv1.TargetLost)
	return observed >= f.Required() || len(f.Targets) == 0
}

// Observed returns whether enough of the targets that count can be observed to judge what they show: as many as must run a
// revision, or all that count if these are fewer.
func (f Fleet) Observed() bool {
	observed, required := 0, f.Required()
	for _, t := range f.Targets {
		if t.Fresh && !t.Standing.LeftOut() {
			observed++
		}
	}
	return required <= len(f.Targets) && observed >= min(required, f.counted())
}

// Revisions returns the distinct revisions of the targets, in their order; an
// empty string stands for a target that runs none. Of revisions with the same content it
// returns the first.
func (f Fleet) Revisions() []string {
	var revisions []string
	seen := map[string]bool{}
	for _, t := range f.Targets {
		if content := revision.Content(t.Revision); !seen[content] {
			seen[content] = true
			revisions = append(revisions, t.Revision)
		}
	}
	return revisions
}

// FleetsOf returns the targets of all environments of a Pipeline as its status shows them.
func FleetsOf(p *pipelinesv1.Pipeline) []Fleet {
	all := make([]Fleet, len(p.Spec.Environments))
	for i := range all {
		all[i] = FleetOf(p, i)
	}
	return all
}

// FleetOf returns the targets of environment i of a Pipeline as its status shows them: one for each target of the
// spec, in its order, or, if they are a fleet, those that the status lists, and then those that it only counts.
//
// A target that the status neither shows nor counts among those that are ready, or are not, is not fresh.
func FleetOf(p *pipelinesv1.Pipeline, i int) Fleet {
	env := &p.Spec.Environments[i]
	status := p.Status.Environments[env.Name]
	f := Fleet{Targets: make([]Target, len(env.Targets)), Quorum: For(p, i)}
	switch {
	case status == nil:
		return f
	case !env.IsFleet():
		for j := range f.Targets[:min(len(f.Targets), len(status.Targets))] {
			f.Targets[j] = targetOf(&status.Targets[j])
		}
		return f
	case status.Fleet == nil: // It was no fleet before.
		f.Unknown = true
		return f
	}
	f.Targets = make([]Target, len(status.Targets), max(int(status.Fleet.Targets), len(status.Targets)))
	for j := range status.Targets {
		f.Targets[j] = targetOf(&status.Targets[j])
		if ref := status.Targets[j].ClusterAppRef.ClusterRef; ref != nil && env.Stage != nil {
			f.Targets[j].Cluster = ref.Namespace + "/" + ref.Name
		}
	}
	fleet, listed := status.Fleet, f
	add := func(n, listed int, t Target) {
		for ; n > listed && len(f.Targets) < cap(f.Targets); n-- {
			f.Targets = append(f.Targets, t)
		}
	}
	add(int(fleet.Ready), listed.running(fleet.Revision), Target{Fresh: true, Ready: true, Revision: fleet.Revision})
	add(int(fleet.Lost), listed.number(pipelinesv1.TargetLost), Target{Standing: pipelinesv1.TargetLost})
	add(int(fleet.Joining), listed.number(pipelinesv1.TargetJoining), Target{Standing: pipelinesv1.TargetJoining})
	add(int(fleet.Late), listed.number(pipelinesv1.TargetLate), Target{Standing: pipelinesv1.TargetLate})
	add(int(fleet.Unready), listed.Unready(), Target{Fresh: true})
	f.Targets = f.Targets[:cap(f.Targets)]
	f.Unknown = fleet.Required > fleet.Targets
	return f
}

func targetOf(s *pipelinesv1.TargetStatus) Target {
	return Target{Fresh: s.Fresh(), Ready: s.Ready, Progressing: s.Progressing, Revision: s.Revision, Standing: s.Standing}
}
