package view

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// byLabel is the prefix of a group by a label: "label:tier".
	byLabel = "label:"
	// maxLabels is how many labels are offered for grouping, those of most clusters first.
	maxLabels = 12
)

// Values of Query.Sort and Query.Group for clusters.
const (
	sortName, sortVersion, sortApps, sortNodes, sortCredential, sortSince = "name", "version", "applications", "nodes", "credential", "since"
	groupState, groupWhy, groupNamespace                                  = "state", "reason", "namespace"
)

var clusterSorts = []Option{
	{"", "worst first"}, {sortName, "name"}, {sortVersion, "version"}, {sortApps, "applications not ready"}, {sortNodes, "nodes missing"},
	{sortCredential, "credential that expires first"}, {sortSince, "newest state"},
}

var clusterTabs = []Option{{"", "All"}, {tabUnwell, "Need attention"}}

// sortClusters sorts by group, then by the order of the Query, then by name, in which they are.
func sortClusters(rows []ClusterRow, q Query) {
	slices.SortStableFunc(rows, func(a, b ClusterRow) int {
		if q.Group != "" {
			if by := compareGroups(a, b, q.Group); by != 0 {
				return by
			}
		}
		switch q.Sort {
		case sortName:
			return 0
		case sortVersion:
			return cmp.Compare(a.Version, b.Version)
		case sortApps:
			return cmp.Compare(b.Apps.Total-b.Apps.Ready, a.Apps.Total-a.Apps.Ready)
		case sortNodes:
			return cmp.Compare(b.Nodes.Desired-b.Nodes.Ready, a.Nodes.Desired-a.Nodes.Ready)
		case sortCredential:
			if a.Expiry.IsZero() != b.Expiry.IsZero() {
				return cmp.Compare(boolean(a.Expiry.IsZero()), boolean(b.Expiry.IsZero()))
			}
			return a.Expiry.Compare(b.Expiry)
		case sortSince:
			return b.Since.Compare(a.Since)
		}
		return worse(a.Mark.Tone, b.Mark.Tone)
	})
}

// compareGroups orders groups by state worst first, and others by name.
func compareGroups(a, b ClusterRow, group string) int {
	if group == groupState {
		return cmp.Or(worse(a.Mark.Tone, b.Mark.Tone), cmp.Compare(a.Mark.Word, b.Mark.Word))
	}
	return cmp.Compare(a.group(group), b.group(group))
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}

// group returns the name of the group that a cluster is in.
func (r ClusterRow) group(by string) string {
	switch by {
	case groupState:
		return r.Mark.Word
	case groupWhy:
		return cmp.Or(r.Reason, "no reason")
	case groupNamespace:
		return cmp.Or(r.Cluster.Namespace, "management cluster")
	}
	if label, is := strings.CutPrefix(by, byLabel); is {
		if value, has := r.labels[label]; has {
			return label + " = " + value
		}
		return "without label " + label
	}
	return ""
}

// groupings returns what clusters can be grouped by: their labels are those of the visible objects. Labels of Kubernetes'
// own tools are the same for all.
func (f *Facts) groupings(scope Scope) []Option {
	all := []Option{{"", "nothing"}, {groupState, "state"}, {groupWhy, "reason"}, {groupNamespace, "namespace"}}
	counts := map[string]int{}
	for i := range f.Objects {
		if o := &f.Objects[i]; scope.SeesObject(o.Cluster) {
			for label := range o.Labels {
				counts[label]++
			}
		}
	}
	labels := make([]string, 0, len(counts))
	for label := range counts {
		labels = append(labels, label)
	}
	slices.SortFunc(labels, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	labels = labels[:min(len(labels), maxLabels)]
	slices.Sort(labels)
	for _, label := range labels {
		all = append(all, Option{byLabel + label, "label " + label})
	}
	return all
}
