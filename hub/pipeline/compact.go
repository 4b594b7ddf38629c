package pipeline

import (
	"slices"
	"unique"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// Compact makes a Pipeline small that a cache is about to keep; its value stays the same. Decoded
// from JSON, a target takes 680 bytes in spec and status, most of them texts that other targets and
// Pipelines have, too: names of clusters, namespaces, kinds and revisions. Compact keeps one copy of
// each in a Pipeline, and in those that arrive at about the same time, as at a start. The status
// shares the reference to the cluster with the spec, if it is the same. Then a target takes 320
// bytes. Objects of a cache are not modified, so nothing shows that they share memory.
func Compact(p *pipelinesv1.Pipeline) {
	shareApp(&p.Spec.AppRef)
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		env.Targets = slices.Clone(env.Targets) // Without the room that the decoder left.
		for n := range env.Targets {
			target := &env.Targets[n]
			share(&target.Namespace)
			shareRef(target.ClusterRef)
		}
		status := p.Status.Environments[env.Name]
		if status == nil {
			continue
		}
		if status.Fleet != nil {
			for _, of := range status.Fleet.Members {
				for n := range of.Clusters {
					share(&of.Clusters[n])
				}
			}
		}
		status.Targets = slices.Clone(status.Targets)
		for n := range status.Targets {
			shown := &status.Targets[n]
			shareApp(&shown.ClusterAppRef.LocalAppReference)
			for _, text := range []*string{&shown.Revision, &shown.Error, &shown.Reason, &shown.Message} {
				share(text)
			}
			ref := shown.ClusterAppRef.ClusterRef
			shareRef(ref)
			if n >= len(env.Targets) {
				continue
			}
			if of := env.Targets[n].ClusterRef; of != nil && ref != nil && *of == *ref {
				shown.ClusterAppRef.ClusterRef = of
			}
		}
	}
}

func shareApp(a *pipelinesv1.LocalAppReference) {
	share(&a.APIVersion)
	share(&a.Kind)
	share(&a.Name)
}

func shareRef(r *pipelinesv1.CrossNamespaceClusterReference) {
	if r == nil {
		return
	}
	share(&r.APIVersion)
	share(&r.Kind)
	share(&r.Namespace)
	share(&r.Name)
}

// share replaces a text by the copy of it that was made last, if it is still in use.
func share(text *string) {
	if *text != "" {
		*text = unique.Make(*text).Value()
	}
}
