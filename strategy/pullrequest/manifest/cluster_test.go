package manifest

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// ofClusters is the marker of prod in some clusters.
func ofClusters(clusters ...string) Marker {
	m := prod
	m.Selects = func(cluster string) bool {
		for _, one := range clusters {
			if one == cluster {
				return true
			}
		}
		return false
	}
	return m
}

// Markers with a cluster: only those that are selected are edited; without a selection, all are.
func TestClusters(t *testing.T) {
	content := strings.NewReplacer("$EU", `# {"$promotion": "apps:podinfo:prod", "cluster": "eu"}`, "$US", `# {"cluster": "fleet/us", "$promotion": "apps:podinfo:prod"}`,
		"$NONE", `# {"$promotion": "apps:podinfo:prod"}`).Replace("a: 6.0.0 $EU\n---\nb: 6.0.0 $US\n---\nc: 6.0.0 $NONE\n---\nd: '# 6.0.0 $EU'\n")
	for name, tc := range map[string]struct {
		marker   Marker
		edited   []string
		clusters [][]string
	}{
		"all":          {prod, []string{"a", "b", "c"}, [][]string{{"eu"}, {"fleet/us"}, {""}}},
		"one":          {ofClusters("eu"), []string{"a"}, [][]string{{"eu"}}},
		"with another": {ofClusters("fleet/us", "none"), []string{"b"}, [][]string{{"fleet/us"}}},
		"without":      {ofClusters(""), []string{"c"}, [][]string{{""}}},
		"two":          {ofClusters("eu", ""), []string{"a", "c"}, [][]string{{"eu"}, {""}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			want := content
			for _, key := range tc.edited {
				want = strings.Replace(want, key+": 6.0.0", key+": "+newVersion, 1)
			}
			edited, changes, err := Edit([]byte(content), tc.marker, newVersion)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(edited)).To(Equal(want))
			var clusters [][]string
			for _, c := range changes {
				clusters = append(clusters, c.Clusters)
			}
			g.Expect(clusters).To(Equal(tc.clusters))
		})
	}
	g := NewWithT(t)
	g.Expect(Mentions([]byte(content), ofClusters("asia"))).To(BeFalse())
	_, _, err := Edit([]byte(content), ofClusters("asia"), newVersion)
	g.Expect(err).To(MatchError(ErrNoMarker))
}

// A value with the markers of two clusters belongs to both: it is edited if both are selected.
func TestOneValueOfTwoClusters(t *testing.T) {
	g := NewWithT(t)
	content := []byte("# {\"$promotion\": \"apps:podinfo:prod\", \"cluster\": \"eu\"}\na: 6.0.0 # {\"$promotion\": \"apps:podinfo:prod\", \"cluster\": \"us\"}\n")
	edited, changes, err := Edit(content, ofClusters("eu", "us"), newVersion)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(edited)).To(ContainSubstring("a: " + newVersion + " #"))
	g.Expect(changes).To(HaveExactElements(HaveField("Clusters", []string{"eu", "us"})))
	for _, one := range []string{"eu", "us"} {
		_, _, err = Edit(content, ofClusters(one), newVersion)
		g.Expect(err).To(MatchError(ErrTwoMarkers))
	}
}
