package watchers

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-hub/capstan/clusters"
)

// The metrics of the management cluster, whose kinds the hub itself needs. They are read when
// they are collected.
var (
	descObjects = prometheus.NewDesc("capstan_management_objects",
		"Objects of a kind of the management cluster that are in memory.", []string{"kind"}, nil)
	descObjectsMax = prometheus.NewDesc("capstan_management_objects_limit",
		"Objects of one kind of the management cluster that may be in memory: --"+MaxLocalObjectsFlag+".", nil, nil)
	descUnreadable = prometheus.NewDesc("capstan_management_kind_unreadable",
		"1 for a kind of the management cluster that is needed and cannot be read, by reason: nothing that depends on it happens meanwhile. A kind that is not installed is not counted.", []string{"kind", "reason"}, nil)
)

// local collects the metrics of the management cluster.
type local struct{ watcher *Watcher }

var _ prometheus.Collector = local{}

// Describe implements prometheus.Collector.
func (local) Describe(into chan<- *prometheus.Desc) {
	into <- descObjects
	into <- descObjectsMax
	into <- descUnreadable
}

// Collect implements prometheus.Collector.
func (l local) Collect(into chan<- prometheus.Metric) {
	into <- prometheus.MustNewConstMetric(descObjectsMax, prometheus.GaugeValue, float64(l.watcher.shared.options.MaxLocalObjects))
	for _, m := range l.metrics() {
		into <- m
	}
}

func (l local) metrics() []prometheus.Metric {
	shared := l.watcher.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	c := l.watcher.lockedState.clusters[clusters.LocalName]
	if c == nil {
		return nil
	}
	var all []prometheus.Metric
	for kind, k := range c.lockedState.keepers {
		objects := int64(0)
		found, err := l.watcher.informersLocked(clusters.LocalName, kind, "")
		for _, i := range found {
			objects += i.objects.Load()
		}
		all = append(all, prometheus.MustNewConstMetric(descObjects, prometheus.GaugeValue, float64(objects), kind.String()))
		if err == nil {
			continue
		}
		// While it is listed again, the reason of the last list stays.
		reason := cmp.Or(err.Reason, k.subject.lockedState.problem.reason)
		if reason != "" && reason != ReasonNotInstalled {
			all = append(all, prometheus.MustNewConstMetric(descUnreadable, prometheus.GaugeValue, 1, kind.String(), reason))
		}
	}
	return all
}
