package instancestate_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/playground/aws"
)

// soaks reports whether the test runs with full counts.
func soaks() bool { return os.Getenv("CAPSTAN_SOAK") != "" }

// Row 7: a hundred instances in each of many clusters of a region, four hundred of them
// in `make soak`: one queue, and no call whose number grows with them.
func TestRow7ManyClusters(t *testing.T) {
	t.Parallel()
	const each = 100
	clusters := 4
	if soaks() {
		clusters = 400
	}
	w := newWorld(t, newest)
	w.g.SetDefaultEventuallyTimeout(time.Hour)
	for c := range clusters {
		name := fmt.Sprintf("c-%d", c)
		w.create(object(infra, "AWSCluster", w.namespace, name, map[string]any{"region": region}))
		w.create(object("cluster.x-k8s.io/"+w.core, "Cluster", w.namespace, name, map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", name)}))
	}
	w.herdOf(clusters*each, func(i int) string { return fmt.Sprintf("c-%d", i/each) })
	w.events()
	w.start()
	bodies := make([]string, clusters*each)
	for i := range bodies {
		bodies[i] = stateChange(instanceID(i), "terminated", 0)
	}
	w.send("events", bodies...)
	w.awaitsEmpty("events")
	w.g.Expect(w.labels()).To(Equal(map[string]int{"terminated": clusters * each}))
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(Equal(clusters * each))
	for _, action := range []string{"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch", "GetQueueAttributes", "GetQueueUrl", "CreateQueue"} {
		w.g.Expect(w.aws.Count(aws.Match{Service: "sqs", Action: action})).To(BeNumerically("<", 2*len(bodies)), action)
	}
	w.g.Expect(w.aws.Count(aws.Match{})).To(Equal(w.aws.Count(aws.Match{Service: "sqs"})), "nothing but SQS is called")
}

// Row 9: the AWSCluster has another name than its Cluster, as those of a ClusterClass do.
func TestRow9OtherName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	w.start()
	w.g.Expect(m.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/cluster-name", "c"), "and its AWSCluster is c-x7k2p")
	w.send("events",
		eventOf(account, "eu-west-1", "aws.ec2", "EC2 Instance State-change Notification", begin, `{"instance-id":"`+instanceID(0)+`","state":"terminated"}`),
		stateChange(instanceID(0), "stopping", 0))
	w.awaits(m).Should(Equal("stopping"))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(m)).To(Equal("stopping"), "its region is that of the AWSCluster")
}

// Row 17: a day by the clock, of machines that change, unknown instances,
// events of other accounts, and a group with changing instances: memory, waiting facts and
// annotations stay bounded. `make soak` takes a million messages.
func TestRow17Day(t *testing.T) {
	const hours, machines = 24, 100
	each := 100 // messages in an hour
	if soaks() {
		each = 1_000_000 / hours
	}
	clock := testclock.NewFakeClock(time.Now())
	w := newWorldAt(t, newest, clock)
	w.options.Clock = clock
	w.g.SetDefaultEventuallyTimeout(time.Hour)
	w.usual()
	w.fleet(machines)
	arn := "arn:aws:autoscaling:" + region + ":" + account + ":autoScalingGroup:u:autoScalingGroupName/workers"
	pool := w.pool("workers", arn)
	w.create(pool)
	w.events()
	w.start()
	states := []string{"pending", "running", "stopping", "stopped"}
	sent, heap, before := 0, uint64(0), time.Now()
	for hour := range hours {
		bodies := make([]string, each)
		for i := range bodies {
			at, fresh := hour*3600+i*3600/each, instanceID(1_000_000+sent+i)
			switch i % 4 {
			case 0:
				bodies[i] = stateChange(instanceID(i/4%machines), states[hour%len(states)], at)
			case 1:
				bodies[i] = stateChange(fresh, "running", at)
			case 2:
				bodies[i] = eventOf("999999999999", region, "aws.ec2", "EC2 Spot Instance Interruption Warning", begin, `{"instance-id":"`+instanceID(0)+`","instance-action":"stop"}`)
			default:
				body := event("aws.autoscaling", "EC2 Instance Launch Successful", at, `{"AutoScalingGroupName":"workers","EC2InstanceId":"`+fresh+`"}`)
				bodies[i] = strings.Replace(body, `"resources":[]`, fmt.Sprintf(`"resources":[%q]`, arn), 1)
			}
		}
		w.send("events", bodies...)
		sent += each
		w.g.Eventually(func() int {
			clock.Step(100 * time.Millisecond) // Timers expire.
			return w.sqs.Stats(region, "events").Deleted
		}).Should(Equal(sent))
		w.g.Expect(w.metric("waiting_events")).To(BeNumerically("<=", each/2), "facts that waited an hour ago are removed")
		if hour == hours/4 {
			heap = live()
		}
		w.Logf("hour %d: %d messages in %s, %d KiB live", hour, sent, time.Since(before).Round(time.Second), live()>>10)
		for range 60 {
			clock.Step(time.Minute)
		}
	}
	w.g.Expect(w.label(pool)).To(Equal("launched"))
	w.g.Expect(w.sqs.Bodies(region, "dead")).To(BeEmpty())
	for _, o := range []string{"m-0", "workers"} {
		u := w.machine(o, "")
		if o == "workers" {
			u = pool
		}
		size := 0
		for _, a := range w.getIn(w.Client, u).GetAnnotations() {
			size += len(a)
		}
		w.g.Expect(size).To(And(BeNumerically(">", 0), BeNumerically("<", 32<<10)), o)
	}
	after := live()
	w.Logf("%d messages in %s: %d KiB live after a quarter, %d KiB in the end", sent, time.Since(before).Round(time.Second), heap>>10, after>>10)
	w.g.Expect(after).To(BeNumerically("<", heap+heapGrowth))
}

// heapGrowth is how much caches, metrics and the simulated SQS may grow in a day.
const heapGrowth = 16 << 20

// live is the heap in use after a collection.
func live() uint64 {
	runtime.GC()
	runtime.GC() // The second run frees objects that the first one has finalized.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
