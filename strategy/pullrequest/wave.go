package pullrequest

import (
	"slices"
	"strings"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/manifest"
)

// members are the clusters of a wave, and whether Git has markers for them. The zero value is that of an environment
// without waves, to which all markers belong.
type members struct {
	wave *capstanv1.PromotionWave
	// marked has the clusters of the markers that were found, as the markers name them; an empty one for those without.
	marked map[string]bool
}

func membersOf(p *capstanv1.Promotion) members {
	return members{wave: p.Spec.Wave, marked: map[string]bool{}}
}

// selects returns which markers belong to the wave; nil if all do.
func (m members) selects() func(cluster string) bool {
	if m.wave == nil {
		return nil
	}
	names := make(map[string]bool, 2*len(m.wave.Clusters))
	for _, cluster := range m.wave.Clusters {
		names[cluster], names[bare(cluster)] = true, true
	}
	names[""] = m.wave.Last
	return func(cluster string) bool { return names[cluster] }
}

// bare returns the name of a cluster without its namespace: a marker may have either.
func bare(cluster string) string { return cluster[strings.LastIndexByte(cluster, '/')+1:] }

// note notes the markers of a file.
func (m members) note(changes []manifest.Change) {
	for _, change := range changes {
		for _, cluster := range change.Clusters {
			m.marked[cluster] = true
		}
	}
}

// complete returns an error if a cluster of the wave has no marker. Without one, a roll-out would wait for it, and a marker
// without a cluster would give the revision to the clusters of all waves. So would a marker whose name clusters of several
// waves have.
func (m members) complete(a *act, marker manifest.Marker) error {
	if m.wave == nil {
		return nil
	}
	if i := slices.IndexFunc(m.wave.Ambiguous, func(name string) bool { return m.marked[name] }); i >= 0 {
		name := m.wave.Ambiguous[i]
		own := m.wave.Clusters[slices.IndexFunc(m.wave.Clusters, func(cluster string) bool { return bare(cluster) == name })]
		return fail(ReasonWaveNotSeparable, "wave %s of environment %s cannot be promoted by itself: a marker on branch %s of %s has the cluster %s, and another wave has a cluster with this name, too. "+
			"Write namespace/name in the marker: # {\"$promotion\": \"%s\", \"cluster\": \"%s\"}",
			m.wave.Name, oneLine(m.wave.Environment), a.spec.BaseBranch, a.provider.Repository(), oneLine(name), oneLine(marker.String()), oneLine(own))
	}
	missing := slices.DeleteFunc(slices.Clone(m.wave.Clusters), func(cluster string) bool {
		return m.marked[cluster] || m.marked[bare(cluster)] || m.marked[""]
	})
	if len(missing) == 0 {
		return nil
	}
	return fail(ReasonWaveNotSeparable, "wave %s of environment %s cannot be promoted by itself: no YAML file on branch %s of %s has a marker for %s. "+
		"Give each cluster a manifest of its own with the comment # {\"$promotion\": \"%s\", \"cluster\": \"%s\"} behind the version",
		m.wave.Name, oneLine(m.wave.Environment), a.spec.BaseBranch, a.provider.Repository(), strings.Join(shown(missing, oneLine), ", "), oneLine(marker.String()), m.shortest(missing[0]))
}

// shortest returns the shortest name of a cluster that only this wave has.
func (m members) shortest(cluster string) string {
	if name := bare(cluster); !slices.Contains(m.wave.Ambiguous, name) {
		return name
	}
	return cluster
}
