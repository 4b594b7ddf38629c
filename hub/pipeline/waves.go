package pipeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/truncate"
)

// inStages returns the Pipeline with the stages of its waves in place of the environments that have waves. p has the clusters
// that its targets select (withSelected).
func (r *Reconciler) inStages(p *pipelinesv1.Pipeline) *pipelinesv1.Pipeline {
	return p.WithStages(func(env *pipelinesv1.Environment, stages []pipelinesv1.StageOf) ([][]pipelinesv1.Target, bool) {
		targets, err := r.divided(p, env, stages)
		if err != nil {
			return asBefore(p, env, stages, targets), true
		}
		return targets, false
	})
}

// asBefore returns the targets of the stages if it is not known to which one each of them belongs: those that the status names stay
// where they are, others are in the stage that divided found. Clusters that are not known yet may be in any stage.
func asBefore(p *pipelinesv1.Pipeline, env *pipelinesv1.Environment, stages []pipelinesv1.StageOf, found [][]pipelinesv1.Target) [][]pipelinesv1.Target {
	targets, placed, observed := make([][]pipelinesv1.Target, len(stages)), map[targetKey]bool{}, false
	for k, s := range stages {
		status := p.Status.Environments[pipelinesv1.StageName(env.Name, s.Name)]
		if status == nil {
			continue
		}
		observed = true
		for _, m := range status.Members() {
			if m.ClusterRef != nil {
				m.Clusters = pipelinesv1.Selected
				targets[k], placed[keyOf(p, &m.Target)] = append(targets[k], m.Target), true
			}
		}
	}
	for k := range found {
		for _, t := range found[k] {
			if !placed[keyOf(p, &t)] {
				targets[k] = append(targets[k], t)
			}
		}
	}
	for i := range env.Targets {
		for k := range targets {
			if selects(&env.Targets[i]) && (!observed || len(targets[k]) > 0) {
				targets[k] = append(targets[k], env.Targets[i])
			}
		}
	}
	return targets
}

// divided returns the targets of each stage of an environment, and why they are not all known.
func (r *Reconciler) divided(p *pipelinesv1.Pipeline, env *pipelinesv1.Environment, stages []pipelinesv1.StageOf) ([][]pipelinesv1.Target, error) {
	selectors, err := waveSelectors(env, "")
	targets := make([][]pipelinesv1.Target, len(stages))
	for i := range env.Targets {
		t := &env.Targets[i]
		if selects(t) {
			err = errors.Join(err, clusters.ErrNotSynced)
			continue
		}
		wave := len(env.Waves) - 1
		ref := reference(p, t)
		if ref != (clusters.Ref{}) && r.invalidTarget(p, env, t) == nil {
			of, unknown := r.Clusters.Labels(ref)
			if unknown != nil && !errors.Is(unknown, clusters.ErrNotFound) {
				err = errors.Join(err, unknown)
			}
			if first := slices.IndexFunc(selectors, func(s labels.Selector) bool { return s.Matches(of) }); first >= 0 {
				wave = first
			}
		}
		k := stageOf(stages, wave, ref)
		targets[k] = append(targets[k], *t)
	}
	return targets, err
}

// stageOf returns the stage of a cluster in a wave: its name determines the batch. The management cluster, which has no
// reference, is in the last one, as manifests without a cluster are.
func stageOf(stages []pipelinesv1.StageOf, wave int, ref clusters.Ref) int {
	first := slices.IndexFunc(stages, func(s pipelinesv1.StageOf) bool { return s.Wave == wave })
	if first < 0 { // There are too many stages: that is reported.
		return len(stages) - 1
	}
	n := 1
	for first+n < len(stages) && stages[first+n].Wave == wave {
		n++
	}
	if ref == (clusters.Ref{}) {
		return first + n - 1
	}
	sum := sha256.Sum256([]byte(memberOf(ref)))
	return first + int(binary.BigEndian.Uint64(sum[:])%uint64(n)) //nolint:gosec // n is at most MaxStages.
}

// waveSelectors returns the selectors of the waves of an environment; one that is invalid selects nothing. The error says what
// is invalid in the waves, with the path of the environment.
func waveSelectors(env *pipelinesv1.Environment, path string) ([]labels.Selector, error) {
	var errs []error
	invalid := func(format string, args ...any) { errs = append(errs, fmt.Errorf(path+format, args...)) }
	all := make([]labels.Selector, len(env.Waves))
	total := 0
	for i := range env.Waves {
		w := &env.Waves[i]
		total += max(1, int(w.Batches))
		switch selector, err := metav1.LabelSelectorAsSelector(w.Selector); {
		case err != nil:
			invalid(".waves[%d].selector (wave %q): %w", i, w.Name, err)
			all[i] = labels.Nothing()
		case w.Selector != nil && !selector.Empty():
			all[i] = selector
		case i < len(env.Waves)-1:
			invalid(".waves[%d] (wave %q) has no selector, or an empty one, so that no cluster is left for the waves behind it: set one, or move the wave to the end", i, w.Name)
			all[i] = labels.Nothing()
		default:
			all[i] = labels.Everything()
		}
	}
	if total > pipelinesv1.MaxStages {
		invalid(".waves has %d batches and other waves, and may have %d: use fewer batches", total, pipelinesv1.MaxStages)
	}
	return all, errors.Join(errs...)
}

// waveOf returns what a Promotion keeps about the wave that it is for; nil if its environment has no waves.
func waveOf(p *pipelinesv1.Pipeline, i int) *capstanv1.PromotionWave {
	stage := p.Spec.Environments[i].Stage
	if stage == nil {
		return nil
	}
	wave := &capstanv1.PromotionWave{Environment: stage.Environment, Name: stage.Wave, Last: stage.Last}
	own, others := map[string]bool{}, map[string]bool{}
	for k := range p.Spec.Environments {
		if p.Spec.Environments[k].Base() != stage.Environment {
			continue
		}
		for j := range p.Spec.Environments[k].Targets {
			switch ref := reference(p, &p.Spec.Environments[k].Targets[j]); {
			case ref == (clusters.Ref{}):
			case k == i:
				wave.Clusters, own[ref.Name] = append(wave.Clusters, memberOf(ref)), true
			default:
				others[ref.Name] = true
			}
		}
	}
	slices.Sort(wave.Clusters)
	wave.Clusters = slices.Compact(wave.Clusters)
	for name := range own {
		if others[name] {
			wave.Ambiguous = append(wave.Ambiguous, name)
		}
	}
	slices.Sort(wave.Ambiguous)
	return wave
}

// memberOf returns the name of a cluster in a wave: namespace/name; empty for the management cluster.
func memberOf(ref clusters.Ref) string {
	if ref == (clusters.Ref{}) {
		return ""
	}
	return ref.Namespace + "/" + ref.Name
}

// stagesFrom returns how many environments, from environment i on, are stages of the same one; 0 if it is none.
func stagesFrom(p *pipelinesv1.Pipeline, i int) int {
	n := 0
	for ; i+n < len(p.Spec.Environments); n++ {
		if s := p.Spec.Environments[i+n].Stage; s == nil || n > 0 && s.First {
			break
		}
	}
	return n
}

// stagesOf returns the names of the stages of an environment with waves.
func stagesOf(p *pipelinesv1.Pipeline, environment string) []string {
	var all []string
	for i := range p.Spec.Environments {
		if s := p.Spec.Environments[i].Stage; s != nil && s.Environment == environment {
			all = append(all, p.Spec.Environments[i].Name)
		}
	}
	return all
}

// wholeOf returns how many targets environment i has, with those of all stages of the same environment.
func wholeOf(p *pipelinesv1.Pipeline, i int) int {
	n := 0
	for k := range p.Spec.Environments {
		if p.Spec.Environments[k].Base() == p.Spec.Environments[i].Base() {
			n += len(p.Spec.Environments[k].Targets)
		}
	}
	return n
}

// addWhole adds the status of the environments with waves: the sums of their stages.
func addWhole(p *pipelinesv1.Pipeline, all map[string]*pipelinesv1.EnvironmentStatus) {
	for i := 0; i < len(p.Spec.Environments); i++ {
		n := stagesFrom(p, i)
		if n == 0 {
			continue
		}
		name := p.Spec.Environments[i].Base()
		whole := &pipelinesv1.EnvironmentStatus{Fleet: &pipelinesv1.FleetStatus{}}
		if last := p.Status.Environments[name]; last != nil {
			whole.LastPromotion = last.LastPromotion // The numbers continue if the waves are removed.
		}
		var order []string
		waves := map[string][]string{}
		for k := i; k < i+n; k++ {
			fleet := all[p.Spec.Environments[k].Name].Fleet
			whole.Fleet.Targets += fleet.Targets
			whole.Fleet.Required += fleet.Required
			whole.Fleet.Lost += fleet.Lost
			whole.Fleet.Joining += fleet.Joining
			whole.Fleet.Late += fleet.Late
			whole.Fleet.Unready += fleet.Unready
			if whole.Fleet.Revision == "" { // That of the first wave that runs one.
				whole.Fleet.Revision = fleet.Revision
			}
			if revision.Same(fleet.Revision, whole.Fleet.Revision) {
				whole.Fleet.Ready += fleet.Ready
			}
			same := slices.IndexFunc(order, func(one string) bool { return revision.Same(one, fleet.Revision) })
			if same < 0 {
				same, order = len(order), append(order, fleet.Revision)
			}
			waves[order[same]] = append(waves[order[same]], p.Spec.Environments[k].Stage.Wave)
		}
		var parts []string
		for _, one := range order {
			parts = append(parts, cmp.Or(one, "no revision")+": "+strings.Join(waves[one], ", "))
		}
		whole.Fleet.Message = truncate.Bytes(strings.Join(parts, "; "), maxFleetMessage)
		all[name] = whole
		i += n - 1
	}
}

// diverged returns the condition that the waves of an environment run different revisions because some of them were rolled back;
// nil if none does.
func diverged(p *pipelinesv1.Pipeline, seen observations, promotions []capstanv1.Promotion) *metav1.Condition {
	var all []string
	fleets := seen.fleets(p)
	for i := 0; i < len(p.Spec.Environments); i++ {
		n := stagesFrom(p, i)
		if n == 0 {
			continue
		}
		var back, others []string
		var runs, bad string
		for k := i; k < i+n; k++ {
			env := &p.Spec.Environments[k]
			ledger := decision.LedgerOf(decision.LineOf(p), promotions, env.Name, 0)
			if l := ledger.LastBrought(); l != nil && l.Rollback() {
				of := ledger.RolledBack(*l)
				if now, ok := fleets[k].Agree(); ok && of != nil {
					back, runs, bad = append(back, env.Stage.Wave), now, of.Revision
				}
			}
		}
		for k := i; k < i+n && len(back) > 0; k++ {
			if now, ok := fleets[k].Agree(); ok && revision.Same(now, bad) {
				others = append(others, p.Spec.Environments[k].Stage.Wave)
			}
		}
		if len(others) > 0 {
			all = append(all, fmt.Sprintf("environment %q: %s runs %s since %s was rolled back there, and still in %s; create a PromotionRequest with rollback: {} for these, or release another revision",
				p.Spec.Environments[i].Base(), strings.Join(back, ", "), runs, bad, shorten(others)))
		}
		i += n - 1
	}
	if len(all) == 0 {
		return nil
	}
	return &metav1.Condition{Type: pipelinesv1.WavesDivergedCondition, Status: metav1.ConditionTrue, Reason: pipelinesv1.WaveRolledBackReason, Message: shorten(all)}
}

// setOrRemove sets a condition, or removes the one of its kind if there is none.
func setOrRemove(conditions *[]metav1.Condition, kind string, c *metav1.Condition, set func(metav1.Condition)) {
	if c == nil {
		meta.RemoveStatusCondition(conditions, kind)
		return
	}
	set(*c)
}
