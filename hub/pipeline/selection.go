package pipeline

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
)

// withSelected returns the Pipeline with the clusters that its targets select, each as a target of its own, and with each
// target of a fleet once. A target whose selector is invalid, or whose clusters are not known yet, stays as it is, and so do
// the targets that the status names.
//
// It is the Pipeline itself if it has no fleets.
func (r *Reconciler) withSelected(p *pipelinesv1.Pipeline) *pipelinesv1.Pipeline {
	return p.WithTargets(func(env *pipelinesv1.Environment) ([]pipelinesv1.Target, bool) {
		if !env.IsFleet() {
			return nil, false
		}
		var all []pipelinesv1.Target
		known := map[targetKey]bool{}
		add := func(t pipelinesv1.Target) {
			key := keyOf(p, &t)
			if ref := reference(p, &t); ref.Kind == pipelinesv1.ClusterKindGitopsCluster && r.invalidTarget(p, env, &t) == nil { // It may be a Cluster that is selected, too.
				if name, err := r.resolve(ref); err == nil {
					key.cluster = string(name)
				}
			}
			if !known[key] {
				known[key] = true
				all = append(all, t)
			}
		}
		for i := range env.Targets {
			t := &env.Targets[i]
			if t.Clusters == nil {
				add(*t)
				continue
			}
			selected, err := r.selected(p, t)
			for _, ref := range selected {
				add(pipelinesv1.Target{Namespace: t.Namespace, Clusters: pipelinesv1.Selected, ClusterRef: &pipelinesv1.CrossNamespaceClusterReference{
					Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name,
				}})
			}
			if err == nil {
				continue
			}
			for _, m := range p.Status.Environments[env.Name].Members() {
				if m.ClusterRef != nil {
					m.Clusters = pipelinesv1.Selected
					add(m.Target)
				}
			}
			all = append(all, *t)
		}
		return all, true
	})
}

// targetKey identifies a target of a fleet.
type targetKey struct{ cluster, namespace string }

func keyOf(p *pipelinesv1.Pipeline, t *pipelinesv1.Target) targetKey {
	return targetKey{string(reference(p, t).ClusterName()), t.Namespace}
}

// selects returns whether a target of withSelected still selects clusters.
func selects(t *pipelinesv1.Target) bool {
	return t.Clusters != nil && t.Clusters != pipelinesv1.Selected
}

// selectionRefs returns what stands for the clusters that a Pipeline selects, for the index: the Pipeline is woken when
// one of their objects changes.
func selectionRefs(p *pipelinesv1.Pipeline) []string {
	var all []string
	for i := range p.Spec.Environments {
		for j := range p.Spec.Environments[i].Targets {
			if t := &p.Spec.Environments[i].Targets[j]; t.Clusters != nil {
				ref := string(clusters.SelectionRef(selection(p, t.Clusters)).ClusterName())
				if !slices.Contains(all, ref) {
					all = append(all, ref)
				}
			}
		}
	}
	return all
}

// aliasRefs returns the GitopsClusters that the targets of fleets name, for the index. Such a target is left out while
// another is of the same cluster; the Pipeline is woken when the GitopsCluster leads to another one.
func aliasRefs(p *pipelinesv1.Pipeline) []string {
	var all []string
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		if !env.IsFleet() {
			continue
		}
		for j := range env.Targets {
			if ref := reference(p, &env.Targets[j]); ref.Kind == pipelinesv1.ClusterKindGitopsCluster {
				all = append(all, string(ref.ClusterName()))
			}
		}
	}
	return all
}

// selected returns the clusters that a target selects.
func (r *Reconciler) selected(p *pipelinesv1.Pipeline, t *pipelinesv1.Target) ([]clusters.Ref, error) {
	selector, err := r.selector(p, t)
	if err != nil {
		return nil, err
	}
	kind, namespace := selection(p, t.Clusters)
	return r.Clusters.Select(kind, namespace, selector)
}

// selection returns the kind and the namespace of the clusters that a selector is about.
func selection(p *pipelinesv1.Pipeline, s *pipelinesv1.ClusterSelector) (kind, namespace string) {
	kind, namespace = s.Kind, s.Namespace
	if kind == "" {
		kind = pipelinesv1.ClusterKindCluster
	}
	if namespace == "" {
		namespace = p.Namespace
	}
	return kind, namespace
}

// selector returns the selector of a target, or what is invalid in it.
func (r *Reconciler) selector(p *pipelinesv1.Pipeline, t *pipelinesv1.Target) (labels.Selector, error) {
	invalid := func(format string, args ...any) (labels.Selector, error) {
		return nil, fmt.Errorf(format, args...)
	}
	kind, namespace := selection(p, t.Clusters)
	switch {
	case t.ClusterRef != nil:
		return invalid("it has both clusterRef and clusters; remove one of them")
	case !pipelinesv1.IsClusterKind(kind):
		return invalid("clusters.kind %q is not %s", kind, pipelinesv1.ClusterKindNames())
	case namespace != pipelinesv1.AllNamespaces && len(validation.IsDNS1123Label(namespace)) > 0:
		return invalid("clusters.namespace %q is neither the name of a namespace nor %q", namespace, pipelinesv1.AllNamespaces)
	case r.NoCrossNamespaceRefs && namespace != p.Namespace:
		return invalid("clusters.namespace is %q, but --no-cross-namespace-refs allows only clusters of the Pipeline's own namespace %s; remove it, or move the Pipeline", namespace, p.Namespace)
	}
	selector, err := metav1.LabelSelectorAsSelector(&t.Clusters.Selector)
	if err != nil {
		return invalid("clusters.selector: %w", err)
	}
	return selector, nil
}
