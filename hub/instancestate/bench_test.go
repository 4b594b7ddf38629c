package instancestate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patchers send the bare patches: as many as there are workers.
	patchers = 16
	// atLeast is the part of the bare rate that labels have to reach.
	atLeast = 0.8
)

// parallel does something n times, so many at once as there are patchers.
func parallel(n int, do func(int)) {
	var group sync.WaitGroup
	for p := range patchers {
		group.Go(func() {
			for i := p; i < n; i += patchers {
				do(i)
			}
		})
	}
	group.Wait()
}

// herd makes n AWSMachines at once.
func (w *world) herd(n int) {
	w.Helper()
	parallel(n, func(i int) {
		if err := w.Create(w.Context(), w.machine(fmt.Sprintf("m-%d", i), instanceID(i))); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(func() {
		_ = w.DeleteAllOf(w.context(), w.machine("m", ""), client.InNamespace(w.namespace))
	})
}

// bare is the rate of the least patches of n AWSMachines, in patches a second, by the
// client that labels are written by.
func (w *world) bare(n int) float64 {
	w.Helper()
	config := w.plane.get(w).Config()
	config.QPS = -1
	c, err := metadata.NewForConfig(config)
	w.g.Expect(err).NotTo(HaveOccurred())
	resource := c.Resource(schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "awsmachines"}).Namespace(w.namespace)
	begin := time.Now()
	parallel(n, func(i int) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bare":"%d"}}}`, begin.UnixNano())
		if _, err := resource.Patch(w.Context(), fmt.Sprintf("m-%d", i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.Error(err)
		}
	})
	return float64(n) / time.Since(begin).Seconds()
}

// mix of messages over n machines: a third of Health, of spot and of changes of state.
func mix(messages, machines int) []string {
	bodies := make([]string, messages)
	for i := range bodies {
		id, round := instanceID((i/3*7919)%machines), i/machines
		switch i % 3 {
		case 0:
			bodies[i] = health(10+round, id)
		case 1:
			bodies[i] = spot(id, 10+round)
		default:
			bodies[i] = stateChange(id, "running", round)
		}
	}
	return bodies
}

func (w *world) rate(messages, machines int) (bare, labels float64) {
	w.Helper()
	w.g.SetDefaultEventuallyTimeout(10 * time.Minute)
	w.usual()
	w.herd(machines)
	w.events()
	bare = w.bare(machines)
	r := w.start()
	w.awaitsConditions("events").Should(HaveKeyWithValue("eventingReady", "true"))
	patched := w.patches.Load()
	begin := time.Now()
	w.send("events", mix(messages, machines)...)
	w.awaitsEmpty("events")
	took := time.Since(begin).Seconds()
	patched = w.patches.Load() - patched
	r.stop()
	w.Logf("%d messages in %.1f s (%.0f/s): %d patches, %.0f/s; bare %.0f/s", messages, took, float64(messages)/took, patched, float64(patched)/took, bare)
	return bare, float64(messages) / took
}

// Messages over 5,000 machines, beside the rate at which the same client patches the
// same machines bare.
func BenchmarkLabels(b *testing.B) {
	const machines = 5000
	for _, messages := range []int{100, 1000, 5000, 15_000} {
		b.Run(fmt.Sprint(messages), func(b *testing.B) {
			for b.Loop() {
				w := newWorld(b, newest)
				bare, labels := w.rate(messages, machines)
				b.ReportMetric(bare, "bare/s")
				b.ReportMetric(labels, "messages/s")
				b.ReportMetric(labels/bare, "of-bare")
				if messages >= machines && labels < atLeast*bare {
					b.Errorf("%.0f messages a second, bare %.0f", labels, bare)
				}
			}
		})
	}
}

// The same with counts that take seconds: every message is done.
func TestManyMessages(t *testing.T) {
	w := newWorld(t, newest)
	const machines = 200
	_, _ = w.rate(3*machines, machines)
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(Equal(3 * machines))
	w.g.Expect(w.labels()).NotTo(HaveKey(""))
}

// behind is how long a spot notice takes to its label that comes after so many changes
// of state.
func (w *world) behind(changes int) time.Duration {
	w.Helper()
	w.g.SetDefaultEventuallyTimeout(10 * time.Minute)
	w.usual()
	w.herd(changes)
	m := w.machine("noticed", instanceID(changes))
	w.create(m)
	w.events()
	w.start()
	w.awaitsConditions("events").Should(HaveKeyWithValue("eventingReady", "true"))
	bodies := make([]string, changes, changes+1)
	for i := range bodies {
		bodies[i] = stateChange(instanceID(i), "running", 0)
	}
	begin := time.Now()
	w.send("events", append(bodies, spot(instanceID(changes), 0))...)
	w.g.Eventually(func() string { return w.label(m) }, "60s", "5ms").Should(Equal("spot-interruption-terminate"))
	took := time.Since(begin)
	w.Logf("%v after %d changes of state; %.0f of them were labelled by then", took, changes, w.metric("applied_total", "kind=state-change"))
	w.awaitsEmpty("events")
	return took
}

// Row 12: a spot notice behind 5,000 changes of state is labelled within a second.
func BenchmarkRow12SpotBehindMany(b *testing.B) {
	for b.Loop() {
		if took := newWorld(b, newest).behind(5000); took > time.Second {
			b.Errorf("it took %v", took)
		}
	}
}

// Row 12, with counts that take seconds: it overtakes.
func TestRow12SpotBehindMany(t *testing.T) {
	w := newWorld(t, newest)
	const changes = 500
	w.g.Expect(w.behind(changes)).To(BeNumerically("<", 2*time.Second))
}
