package instancestate_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/playground/leaks"
)

// patchers is how many goroutines create objects.
const patchers = 16

// parallel calls a function n times, in that many goroutines.
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

// herd creates n AWSMachines of the Cluster "c" in parallel.
func (w *world) herd(n int) { w.herdOf(n, func(int) string { return "c" }) }

// herdOf creates n AWSMachines in parallel, each of its own Cluster.
func (w *world) herdOf(n int, cluster func(int) string) {
	w.Helper()
	parallel(n, func(i int) {
		m := w.machine(fmt.Sprintf("m-%d", i), instanceID(i))
		m.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": cluster(i)})
		if err := w.Create(w.Context(), m); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(func() {
		_ = w.DeleteAllOf(w.context(), w.machine("m", ""), client.InNamespace(w.namespace))
	})
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

// Many messages for few machines: all of them are processed.
func TestManyMessages(t *testing.T) {
	newest.Get(t)  // Its processes outlive the test.
	leaks.AtEnd(t) // The test is not parallel: no other hub runs.
	w := newWorld(t, newest)
	const machines = 200
	w.usual()
	w.herd(machines)
	w.events()
	w.start()
	w.send("events", mix(3*machines, machines)...)
	w.awaitsEmpty("events")
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(Equal(3 * machines))
	w.g.Expect(w.labels()).NotTo(HaveKey(""))
}

// Row 12: a spot notice behind many changes of state overtakes them. (test/bench has the
// time that it takes.)
func TestRow12SpotBehindMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	const changes = 500
	w.usual()
	w.herd(changes)
	m := w.machine("noticed", instanceID(changes))
	w.create(m)
	w.events()
	var ahead atomic.Int64
	ahead.Store(-1)
	read := make(chan struct{})
	look := func(r *http.Request) *http.Response {
		if !labels(r) {
			return nil
		}
		if strings.HasSuffix(r.URL.Path, "/noticed") {
			ahead.CompareAndSwap(-1, w.patches.Load())
		}
		select { // A busy machine may read more slowly than it patches: no patch before all is read.
		case <-read:
		case <-r.Context().Done():
		}
		return nil
	}
	w.fault.Store(&look)
	w.awaitsReading(w.start(), "events").Should(Equal("ready"))
	bodies := make([]string, changes, changes+1)
	for i := range bodies {
		bodies[i] = stateChange(instanceID(i), "running", 0)
	}
	w.send("events", append(bodies, spot(instanceID(changes), 0))...)
	w.g.Eventually(func() float64 { return w.metric("messages_total", "what=received") }).Should(BeNumerically(">", changes))
	close(read)
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.Logf("%d patches were ahead of it", ahead.Load())
	w.g.Expect(ahead.Load()).To(BeNumerically("<", changes/2))
	w.awaitsEmpty("events")
	w.g.Expect(w.labels()).To(Equal(map[string]int{"running": changes, "spot-interruption-terminate": 1}))
}
