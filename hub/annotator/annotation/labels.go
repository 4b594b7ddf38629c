package annotation

import (
	"slices"
	"strings"
)

// labelSet is the parsed value of a labels annotation.
type labelSet struct {
	labels map[string]string
	// odd are tokens that are not labels. Autoscalers skip them. A user set them, so they
	// stay.
	odd []string
}

// parseLabels parses "k=v,k2=v2". A value may contain "=". Spaces around a label are removed,
// because autoscalers would read them as a part of it. If a label occurs twice, the last value
// is used.
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

// String returns the sorted labels, so that equal sets are equal strings.
func (s labelSet) String() string {
	tokens := slices.Clone(s.odd)
	for k, v := range s.labels {
		tokens = append(tokens, k+"="+v)
	}
	slices.Sort(tokens)
	return strings.Join(tokens, ",")
}
