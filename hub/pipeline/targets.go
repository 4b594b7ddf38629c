package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/index"
	"github.com/capstan-hub/capstan/watchers"
)

// observation is the present knowledge about one target.
type observation struct {
	target quorum.Target
	obs    index.Observation
	// known is set if this process has observed the target at all.
	known bool
	// unready is the reason why the target makes Ready False; empty if it does not.
	unready string
	// err is the message why the target, or its revision, could not be read, and reason the
	// same in one word. reason is that of the application if it was read and is not ready.
	err, reason string
	// clusterFault is set if the cluster is why the target could not be read.
	clusterFault bool
	// standing of the target, and since when it has it.
	standing pipelinesv1.TargetStanding
	since    time.Time
	// early is set while this process could not observe the target yet: after a start, or
	// when the target was just declared. It does not mean a change of the target.
	early bool
}

// observations by environment, in the order of the spec.
type observations [][]observation

// fleets of a Pipeline, as the decision reads them.
func (s observations) fleets(p *pipelinesv1.Pipeline) []quorum.Fleet {
	all := make([]quorum.Fleet, len(s))
	for i := range s {
		all[i] = s.fleet(p, i)
	}
	return all
}

// fleet returns the targets of environment i of a Pipeline.
func (s observations) fleet(p *pipelinesv1.Pipeline, i int) quorum.Fleet {
	f := quorum.Fleet{Targets: make([]quorum.Target, len(s[i])), Quorum: quorum.For(p, i)}
	for j := range s[i] {
		f.Targets[j] = s[i][j].target
		f.Targets[j].Standing = s[i][j].standing
	}
	env := &p.Spec.Environments[i]
	f.Unknown = env.Stage != nil && env.Stage.Unknown || slices.ContainsFunc(env.Targets, func(t pipelinesv1.Target) bool { return selects(&t) })
	if env.Stage != nil {
		for j := range env.Targets {
			f.Targets[j].Cluster = memberOf(reference(p, &env.Targets[j]))
		}
	}
	return f
}

// clusterFault returns whether the first target that is not readable is so because of its
// cluster.
func (s observations) clusterFault() bool {
	for i := range s {
		for _, o := range s[i] {
			if o.unready == pipelinesv1.TargetNotReadableReason && !o.early && !o.standing.LeftOut() {
				return o.clusterFault
			}
		}
	}
	return false
}

// place is where the application of a target is: an object, or why it is not known.
type place struct {
	object index.Object
	err    error
}

// places are those of all targets, by environment, with the demand for them.
type places struct {
	// pipeline has the clusters that the Pipeline selects, in their stages.
	pipeline *pipelinesv1.Pipeline
	all      [][]place
	use      index.Use
	demands  []watchers.Demand
	// problems of the Pipeline's spec. If one concerns all of it, nothing is watched.
	problems []problem
}

// locate finds the applications of the Pipeline's targets, in the clusters that they name or select.
func (r *Reconciler) locate(spec *pipelinesv1.Pipeline) places {
	p := r.inStages(r.withSelected(spec))
	kind, kindErr := appKind(p)
	found := r.problems(spec, p)
	blocked := concernsAll(found)

	count := 0
	for i := range p.Spec.Environments {
		count += len(p.Spec.Environments[i].Targets)
	}
	use := index.Use{Refs: make([]string, 0, count), Objects: make([]index.Object, 0, count), Promoted: make([]bool, 0, count)}
	demands := make([]watchers.Demand, 0, count)
	all := make([][]place, len(p.Spec.Environments))
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		of := &spec.Spec.Environments[spec.Find(env.Base())]
		all[i] = make([]place, len(env.Targets))
		for j := range env.Targets {
			t := &env.Targets[j]
			ref := reference(p, t)
			var name multicluster.ClusterName
			err := r.invalidTarget(p, of, t)
			if selects(t) && err == nil {
				_, err = r.selected(p, t)
			} else if err == nil {
				use.Refs = append(use.Refs, string(ref.ClusterName()))
				name, err = r.resolve(ref)
			}
			if err != nil || blocked || kindErr != nil {
				all[i][j].err = err
				continue
			}
			o := index.Object{
				Cluster:   string(name),
				Kind:      index.Kind{Group: kind.Group, Kind: kind.Kind},
				Namespace: t.Namespace,
				Name:      p.Spec.AppRef.Name,
			}
			all[i][j].object = o
			use.Objects = append(use.Objects, o)
			use.Promoted = append(use.Promoted, i > 0 && p.PromotionFor(env) != nil)
			demands = append(demands, watchers.Demand{Cluster: name, Kind: kind, Namespace: t.Namespace, Name: p.Spec.AppRef.Name})
		}
	}
	use.Refs = append(append(use.Refs, selectionRefs(spec)...), aliasRefs(spec)...)
	return places{pipeline: p, all: all, use: use, demands: demands, problems: found}
}

// demand passes the Pipeline's demand to the index and the watchers.
func (r *Reconciler) demand(p *pipelinesv1.Pipeline) places {
	at := r.locate(p)
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	r.wake(r.Index.SetPipeline(key, at.use))
	r.Watchers.SetDemand(owner(key), at.demands)
	return at
}

// observe passes the Pipeline's demand on, and reads the observations of its targets from the index. It returns
// the Pipeline with the clusters that it selects, in their stages, and the problems of its spec.
func (r *Reconciler) observe(p *pipelinesv1.Pipeline) (*pipelinesv1.Pipeline, observations, []problem) {
	at := r.demand(p)
	blocked := concernsAll(at.problems)
	seen := make(observations, len(at.all))
	for i := range at.all {
		seen[i] = make([]observation, len(at.all[i]))
		for j, target := range at.all[i] {
			switch {
			case target.err != nil:
				seen[i][j] = unresolved(target.err)
			case blocked:
				seen[i][j] = observation{err: "not watched: the Pipeline's spec is invalid", unready: pipelinesv1.InvalidSpecReason, reason: pipelinesv1.InvalidSpecReason}
			default:
				seen[i][j] = r.read(target.object)
			}
		}
	}
	r.confirm(at.pipeline, at.all, seen)
	return at.pipeline, seen, at.problems
}

// reference of a target; the zero Ref means the management cluster.
func reference(p *pipelinesv1.Pipeline, t *pipelinesv1.Target) clusters.Ref {
	if t.ClusterRef == nil {
		return clusters.Ref{}
	}
	ref := clusters.Ref{Kind: t.ClusterRef.Kind, Namespace: t.ClusterRef.Namespace, Name: t.ClusterRef.Name}
	if ref.Namespace == "" {
		ref.Namespace = p.Namespace
	}
	return ref
}

func (r *Reconciler) resolve(ref clusters.Ref) (multicluster.ClusterName, error) {
	if ref == (clusters.Ref{}) {
		return "", nil
	}
	return r.Clusters.Resolve(ref)
}

// unresolved is the observation of a target whose cluster could not be resolved.
func unresolved(err error) observation {
	s := observation{err: err.Error(), clusterFault: true}
	switch {
	case errors.Is(err, clusters.ErrNotFound):
		s.unready = pipelinesv1.TargetClusterNotFoundReason
	case errors.Is(err, clusters.ErrNotReady):
		s.unready = pipelinesv1.TargetClusterNotReadyReason
	case errors.Is(err, errInvalidTarget):
		s.unready = pipelinesv1.InvalidSpecReason
	default:
		s.unready = pipelinesv1.TargetNotReadableReason
	}
	s.reason = s.unready
	return s
}

// read reads the observation of an object from the index.
func (r *Reconciler) read(o index.Object) observation {
	obs, known, freshness := r.Index.Last(o)
	return observed(o, obs, known, freshness)
}

// observed is the observation of what the index has of an object.
func observed(o index.Object, obs index.Observation, known bool, freshness index.Freshness) observation {
	s := observation{obs: obs, known: known}
	s.target = quorum.Target{Fresh: known && freshness.Fresh, Revision: obs.Revision}
	s.target.Ready = s.target.Fresh && obs.Found && obs.Ready
	s.target.Progressing = s.target.Fresh && obs.Found && obs.Progressing
	s.early = isEarly(obs, known, freshness)
	switch {
	case !freshness.Fresh:
		s.unready, s.err, s.reason = pipelinesv1.TargetNotReadableReason, freshness.Message, freshness.Reason
		if s.err == "" {
			s.err = "not observed yet"
		}
		s.clusterFault = ofCluster(freshness.Reason)
	case !known:
		s.unready, s.err = pipelinesv1.TargetNotReadableReason, "not observed yet"
	case !obs.Found:
		s.unready, s.reason = pipelinesv1.TargetNotReadableReason, reasonAppNotFound
		s.err = fmt.Sprintf("%s %s/%s not found in %s: create it, or correct spec.appRef or the target's namespace", o.Kind.Kind, o.Namespace, o.Name, clusterText(o.Cluster))
	case !obs.Ready && obs.Reason == index.ReasonNoRevision:
		s.reason, s.err = index.ReasonNoRevision, fmt.Sprintf("%s %s/%s in %s %s", o.Kind.Kind, o.Namespace, o.Name, clusterText(o.Cluster), obs.Message)
	case !obs.Ready:
		s.reason = obs.Reason
	}
	return s
}

// isEarly returns whether this process could not observe an application yet, or not well enough to act on it.
func isEarly(_ index.Observation, known bool, freshness index.Freshness) bool {
	switch freshness.Reason {
	case index.NotWatched, watchers.ReasonConnecting, watchers.ReasonNotSynced, watchers.ReasonConfirming:
		return true
	}
	return freshness.Fresh && !known
}

// reasonAppNotFound is the reason of a target whose application does not exist.
const reasonAppNotFound = "AppNotFound"

// ofCluster returns whether a target cannot be read because of its cluster, and not because
// of its kind or object.
func ofCluster(reason string) bool {
	switch reason {
	case watchers.ReasonConnecting, watchers.ReasonUnreachable, watchers.ReasonAuthFailed, watchers.ReasonRemoved, watchers.ReasonSilent:
		return true
	}
	return false
}

// why returns why a target is not ready, as the end of a sentence that begins with its name.
func (s observation) why() string {
	switch {
	case s.err != "":
		return ": " + s.err
	case s.obs.Reason == "":
		return " " + s.obs.Message
	}
	return ": " + s.obs.Why()
}

// clusterText returns the name of a cluster in a message.
func clusterText(name string) string {
	if name == index.LocalCluster {
		return "the management cluster"
	}
	return name
}
