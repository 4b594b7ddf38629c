package collectors

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers all collectors with a registry, or none of them when one cannot be
// registered. undo removes them. With a nil registry it registers nothing and returns no
// error. Errors are those of the registry, such as prometheus.AlreadyRegisteredError.
func Register(r prometheus.Registerer, all ...prometheus.Collector) (undo func(), err error) {
	var done []prometheus.Collector
	undo = func() {
		for _, c := range done {
			r.Unregister(c)
		}
	}
	if r == nil {
		return undo, nil
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			undo()
			return func() {}, fmt.Errorf("registering metrics: %w", err)
		}
		done = append(done, c)
	}
	return undo, nil
}
