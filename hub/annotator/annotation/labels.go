package annotation

import (
	"slices"
	"strings"
)

// labelSet is a labels annotation, taken apart.
type labelSet struct {
	labels map[string]string
	// odd are tokens that are no label. Autoscalers skip them; they are somebody's, so
	// they stay.
	odd []string
}

// parseLabels reads "k=v,k2=v2". A value may hold "="; blanks around a label, which
// autoscalers would take for a part of it, go; of a label that stands twice the last
// counts.
func parseLabels(s string) labelSet {
	set := labelSet{labels: map[string]string{}}
	for token := range strings.SplitSeq(s, ",") {
		token = strings.TrimSpace(token)
		key, value, ok := strings.Cut(token, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case token == "":
		case !ok || key == "":
			if !slices.Contains(set.odd, token) {
				set.odd = append(set.odd, token)
			}
		default:
			set.labels[key] = value
		}
	}
	return set
}

// String is sorted, so that equal sets are equal strings.
func (s labelSet) String() string {
	tokens := slices.Clone(s.odd)
	for k, v := range s.labels {
		tokens = append(tokens, k+"="+v)
	}
	slices.Sort(tokens)
	return strings.Join(tokens, ",")
}
