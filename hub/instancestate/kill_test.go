package instancestate_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/playground/aws"
)

// The hub is killed at random moments of a burst, and sends nothing any more: no patch, no
// delete, no release. At the end every label is right, each message is deleted, and none is
// dead-lettered. The test steps the clock of SQS, so that messages that a killed hub had
// hidden are delivered again at once.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	kills, each, n := 5, 60, 60
	if soaks() {
		kills, each, n = 200, 50, 1000
	}
	clock := testclock.NewFakeClock(time.Now())
	w := newWorldAt(t, newest, clock)
	w.usual()
	w.fleet(n)
	w.events()
	want := map[string]guard.Instance{}
	random := rand.New(rand.NewPCG(1, 2))
	for kill := range kills {
		replica := w.start()
		for range each {
			body := w.anyEvent(random, n, kill)
			w.send("events", body)
			m, err := message.Decode([]byte(body), clock.Now())
			w.g.Expect(err).NotTo(HaveOccurred())
			for _, f := range m.Facts {
				want[f.InstanceID], _ = want[f.InstanceID].Merge(f)
			}
		}
		// Wait until the replica has begun to write: an earlier kill would test nothing.
		written := w.patches.Load()
		w.g.Eventually(w.patches.Load).Should(BeNumerically(">", written))
		w.lasts(time.Duration(random.IntN(30)) * time.Millisecond)
		w.kill(replica)
		clock.Step(time.Minute)
	}
	w.start()
	w.g.Eventually(func() error {
		clock.Step(time.Second) // Messages with a delay become visible.
		if s := w.sqs.Stats(region, "events"); s.Visible+s.InFlight+s.Delayed > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}, "30m").Should(Succeed())
	w.g.Expect(len(w.sqs.Bodies(region, "dead"))).To(BeZero()) //nolint:ginkgolinter // They may be thousands.
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(Equal(kills * each))
	for i := range n {
		m := w.machine(fmt.Sprintf("m-%d", i), "")
		w.g.Expect(w.label(m)).To(Equal(want[instanceID(i)].Label()), m.GetName())
	}
}

// anyEvent returns a random event of an instance.
func (*world) anyEvent(random *rand.Rand, n, after int) string {
	id, at := instanceID(random.IntN(n)), after*10+random.IntN(20)
	switch random.IntN(4) {
	case 0:
		return spot(id, at)
	case 1:
		return health(at, id, instanceID(random.IntN(n)))
	}
	states := []string{"pending", "running", "stopping", "stopped", "shutting-down"}
	return stateChange(id, states[random.IntN(len(states))], at)
}

// lasts waits for a time of the real clock.
func (w *world) lasts(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// kill stops a replica. None of its later calls arrives.
func (w *world) kill(r *replica) {
	w.Helper()
	w.fails(http.StatusBadGateway, func(*http.Request) bool { return true })
	alive := w.aws.Inject(aws.Rule{Fault: &aws.InternalError})
	r.stop()
	alive()
	w.recovers()
}
