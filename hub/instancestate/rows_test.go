package instancestate_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

// instanceID n.
func instanceID(n int) string { return fmt.Sprintf("i-%017x", n+1) }

// fleet makes AWSMachines, each with its instance.
func (w *world) fleet(n int) []*unstructured.Unstructured {
	w.Helper()
	all := make([]*unstructured.Unstructured, n)
	for i := range all {
		all[i] = w.machine(fmt.Sprintf("m-%d", i), instanceID(i))
		w.g.Expect(w.Create(w.Context(), all[i])).To(Succeed())
	}
	w.Cleanup(func() {
		_ = w.DeleteAllOf(w.context(), all[0], client.InNamespace(w.namespace))
	})
	return all
}

// labels of all AWSMachines, and how many have each.
func (w *world) labels() map[string]int {
	var list metav1.PartialObjectMetadataList // Tests ask often, and for hundreds.
	list.SetGroupVersionKind(w.machine("", "").GroupVersionKind())
	w.g.Expect(w.List(w.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
	all := map[string]int{}
	for _, m := range list.Items {
		all[m.GetLabels()[instancestate.LabelEC2]]++
	}
	return all
}

// Row 3: the API server fails while a thousand messages arrive, and none is lost.
func TestRow3APIServerFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	const n = 100
	w.usual()
	w.fleet(n)
	w.events()
	w.start()
	w.fails(http.StatusInternalServerError, labels)
	for second := range 10 {
		for i := range n {
			w.send("events", stateChange(instanceID(i), []string{"pending", "running"}[min(second, 1)], second))
		}
	}
	w.g.Eventually(func() float64 { return w.metric("messages_total", "what=retried") }).Should(BeNumerically(">=", 10*n))
	w.g.Expect(w.labels()).To(Equal(map[string]int{"": n}))
	w.g.Expect(w.metric("messages_total", "what=deleted")).To(BeZero(), "none is deleted before the API server took it")
	w.recovers()
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"running": n}))
	w.awaitsEmpty("events")
	w.g.Expect(w.sqs.Bodies(region, "dead")).To(BeEmpty())
}

// Row 4: the hub is killed between the patch and the delete; the redelivered message changes
// nothing.
func TestRow4DiesBetweenPatchAndDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	first := w.prepare(false)
	first.Handle("never", func(instancestate.Woken) {}) // The message waits for its report.
	first.run(w)
	w.send("events", stateChange(instanceID(0), "stopping", 0))
	w.awaits(m).Should(Equal("stopping"))
	w.g.Consistently(func() int { return w.sqs.Stats(region, "events").Deleted }, "300ms").Should(BeZero())
	first.stop()
	before := w.getIn(w.Client, m)
	w.start()
	w.awaitsEmpty("events")
	w.g.Expect(w.getIn(w.Client, m)).To(Equal(before), "not even its resourceVersion is another")
	w.g.Expect(w.patches.Load()).To(BeEquivalentTo(1))
}

// Row 5: a malformed message does not affect the others of its batch.
func TestRow5MalformedInABatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	w.fleet(9)
	w.events()
	bodies := []string{"{"}
	for i := range 9 {
		bodies = append(bodies, stateChange(instanceID(i), "running", 0))
	}
	w.send("events", bodies...)
	w.start()
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"running": 9}))
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "dead") }).Should(Equal([]string{"{"}))
	w.awaitsEmpty("events")
	w.awaitsEvents("events").Should(ContainElement(ContainSubstring("MalformedMessage a message cannot be read")))
}

// health names instances.
func health(seconds int, instances ...string) string {
	var entities []map[string]string
	for _, id := range instances {
		entities = append(entities, map[string]string{"entityValue": id})
	}
	raw, err := json.Marshal(entities)
	if err != nil {
		panic(err)
	}
	return event("aws.health", "AWS Health Event", seconds, fmt.Sprintf(
		`{"service":"EC2","eventTypeCategory":"scheduledChange","eventTypeCode":"AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED","communicationId":"c-%d",
		"eventRegion":%q,"affectedAccount":%q,"startTime":"Wed, 21 Jan 2026 02:00:00 GMT","affectedEntities":%s}`, ids.Add(1), region, account, raw))
}

// Row 6: of three instances in one message the second cannot be written at first.
func TestRow6HealthOfThree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	w.fleet(3)
	w.events()
	w.start()
	var failed atomic.Bool
	w.fails(http.StatusInternalServerError, func(r *http.Request) bool {
		return labels(r) && strings.HasSuffix(r.URL.Path, "/m-1") && failed.CompareAndSwap(false, true)
	})
	w.send("events", health(0, instanceID(0), instanceID(1), instanceID(2)))
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"scheduled-maintenance": 3}))
	w.awaitsEmpty("events")
	w.g.Expect(failed.Load()).To(BeTrue())
	w.g.Expect(w.patches.Load()).To(BeEquivalentTo(3))
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(Equal(1))
	w.awaitsEvents("m-1").Should(ConsistOf(And(HavePrefix("Warning ScheduledMaintenance Now scheduled-maintenance (previously unknown)"),
		ContainSubstring("due 2026-01-21T02:00:00Z"), ContainSubstring("AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED"))))
}

// roleIdentity by which CAPA assumes a role in an account.
func (w *world) roleIdentity(name, account string) map[string]any {
	w.Helper()
	u := object(infra, "AWSClusterRoleIdentity", "", name, map[string]any{
		"roleARN": "arn:aws:iam::" + account + ":role/capa", "allowedNamespaces": map[string]any{},
		"sourceIdentityRef": map[string]any{"kind": "AWSClusterControllerIdentity", "name": "default"},
	})
	w.create(u)
	return map[string]any{"kind": "AWSClusterRoleIdentity", "name": name}
}

// Row 8: two clusters of one name, in two namespaces and two accounts.
func TestRow8SameNameTwice(t *testing.T) {
	w := newWorld(t, newest)
	w.wide = true
	other := w.namespace + "-other"
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}})
	accounts := map[string]string{w.namespace: "111111111111", other: "222222222222"}
	made := map[string]*unstructured.Unstructured{}
	for namespace, account := range accounts {
		identity := w.roleIdentity(namespace, account)
		w.create(object(infra, "AWSCluster", namespace, "c", map[string]any{"region": region, "identityRef": identity}))
		w.create(object("cluster.x-k8s.io/v1beta2", "Cluster", namespace, "c", map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", "c")}))
		m := w.machine("m", "i-0123456789abcdef"+account[:1])
		m.SetNamespace(namespace)
		w.create(m)
		made[namespace] = m
	}
	w.queue("events")
	w.create(w.source("events", "queueName", "events", "region", region))
	w.start()
	of := func(account, id, state string) string {
		return eventOf(account, region, "aws.ec2", "EC2 Instance State-change Notification", begin, fmt.Sprintf(`{"instance-id":%q,"state":%q}`, id, state))
	}
	w.send("events",
		of("111111111111", "i-0123456789abcdef2", "terminated"), // Row 15: of the other's account.
		of("111111111111", "i-0123456789abcdef1", "running"), of("222222222222", "i-0123456789abcdef2", "stopped"))
	w.awaits(made[w.namespace]).Should(Equal("running"))
	w.awaits(made[other]).Should(Equal("stopped"))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(made[other])).To(Equal("stopped"))
	w.awaitsEvents("events").Should(ConsistOf(And(HavePrefix("Warning ForeignEvent"), ContainSubstring(`account "111111111111"`))))
}

// Row 10: machines of EKS, whose region and account the control plane says.
func TestRow10EKS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	identity := w.roleIdentity(w.namespace, account)
	w.create(object("controlplane.cluster.x-k8s.io/v1beta2", "AWSManagedControlPlane", w.namespace, "plane", map[string]any{"region": region, "identityRef": identity}))
	w.create(object("cluster.x-k8s.io/v1beta2", "Cluster", w.namespace, "c", map[string]any{
		"controlPlaneRef": w.ref("controlplane.cluster.x-k8s.io/v1beta2", "AWSManagedControlPlane", "plane"),
	}))
	m := w.fleet(1)[0]
	w.queue("events")
	w.create(w.source("events", "queueName", "events", "region", region))
	w.start()
	w.send("events", eventOf("999999999999", region, "aws.ec2", "EC2 Instance State-change Notification", begin, `{"instance-id":"`+instanceID(0)+`","state":"terminated"}`))
	w.send("events", spot(instanceID(0), 0))
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(m)).To(Equal("spot-interruption-terminate"))
}

// Row 11: the event comes before the machine has its instance, and before the pool.
func TestRow11EventBeforeItsObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	early := w.machine("early", "")
	w.create(early)
	w.events()
	w.start()
	w.send("events", stateChange(instanceID(7), "running", 1), stateChange(instanceID(7), "pending", 0), spot(instanceID(8), 0))
	w.awaitsWaiting(2)
	w.patch(early, `{"spec":{"instanceID":"`+instanceID(7)+`"}}`)
	w.awaits(early).Should(Equal("running"))
	late := w.machine("late", instanceID(8))
	w.create(late)
	w.awaits(late).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events") // The notice was still in the queue.
	w.g.Expect(w.patches.Load()).To(BeEquivalentTo(2))
}

func (w *world) awaitsWaiting(n int) {
	w.Helper()
	w.g.Eventually(func() float64 { return w.metric("waiting_events") }).Should(BeEquivalentTo(n))
}

// Row 13: the queue is missing, then access is denied, then it works. The source shows it
// without a restart. Another source is not affected.
func TestRow13QueueFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.create(w.source("broken", "queueName", "later", "region", region, "accounts", []string{account}))
	w.events()
	r := w.start()
	w.awaitsReading(r, "broken").Should(And(HavePrefix("GetQueueUrl: "), ContainSubstring("create the queue")))
	w.awaitsReading(r, "events").Should(Equal("ready"))
	w.send("events", stateChange(instanceID(0), "pending", 0))
	w.awaits(m).Should(Equal("pending"))

	w.queue("later")
	w.awaitsReading(r, "broken").Should(Equal("ready"))
	w.sqs.SetFaults(region, "later", sqs.Faults{Refuse: sqs.Denied, RefuseRate: 1})
	w.awaitsReading(r, "broken").Should(ContainSubstring("allow sqs:ReceiveMessage"))
	w.sqs.SetFaults(region, "later", sqs.Faults{})
	w.awaitsReading(r, "broken").Should(Equal("ready"))
	w.send("later", stateChange(instanceID(0), "running", 1))
	w.awaits(m).Should(Equal("running"))
}

// Row 14: a fail-over in a burst, with two replicas that read, and messages that SQS
// delivers twice: each object is patched once.
func TestRow14FailOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	const n = 100
	w.usual()
	w.fleet(n)
	w.events()
	w.sqs.SetFaults(region, "events", sqs.Faults{Duplicate: 0.3, Reorder: true})
	first, second := w.prepare(true), w.prepare(true)
	first.run(w)
	w.g.Eventually(first.manager.Elected()).Should(BeClosed())
	second.run(w)
	for i := range n {
		w.send("events", stateChange(instanceID(i), "shutting-down", 0))
		if i == n/2 {
			go first.stop()
		}
	}
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"shutting-down": n}))
	w.g.Eventually(second.manager.Elected()).Should(BeClosed())
	w.sqs.SetFaults(region, "events", sqs.Faults{})
	w.awaitsEmpty("events")
	// An answer that the end of the first replica cut off is not counted.
	w.g.Expect(w.patches.Load()).To(And(BeNumerically(">=", n/2), BeNumerically("<=", n)))
}

// Row 15: an event of another account or region changes no label. (Row 9: the AWSCluster's name
// is not the Cluster's.)
func TestRow15Spoofed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	r := w.start()
	const detail = `{"instance-id":"i-00000000000000001","state":"terminated"}`
	for _, who := range [][2]string{{"999999999999", region}, {account, "eu-west-1"}, {"", region}} {
		w.send("events", eventOf(who[0], who[1], "aws.ec2", "EC2 Instance State-change Notification", begin, detail))
	}
	w.awaitsEmpty("events")
	w.g.Expect(w.metric("ignored_total", "reason=foreign")).To(BeEquivalentTo(3))
	status, _ := r.Source(client.ObjectKey{Namespace: w.namespace, Name: "events"})
	w.g.Expect(status.Delivery.GivenUp).To(BeEquivalentTo(3))
	w.g.Expect(status.Delivery.LastGivenUp.Reason).To(Equal("foreign"))
	w.g.Expect(w.label(m)).To(BeEmpty())
	w.awaitsEvents("events").Should(ContainElement(HavePrefix("Warning ForeignEvent")))
	w.send("events", stateChange(instanceID(0), "running", 0))
	w.awaits(m).Should(Equal("running"))
}

// Row 16: direct notifications of a group, and the test of a new target.
func TestRow16Direct(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	arn := "arn:aws:autoscaling:" + region + ":" + account + ":autoScalingGroup:u:autoScalingGroupName/workers"
	pool := w.pool("workers", arn, instanceID(0))
	w.create(pool)
	w.events()
	w.start()
	hook := fmt.Sprintf(`{"LifecycleTransition":"autoscaling:EC2_INSTANCE_TERMINATING","AutoScalingGroupName":"workers","EC2InstanceId":%q,"AccountId":%q,"RequestId":"r","Time":"2026-01-10T10:00:00.123Z","LifecycleHookName":"h"}`,
		instanceID(0), account)
	wrapped, err := json.Marshal(map[string]string{"Type": "Notification", "TopicArn": "arn:aws:sns:us-east-1:123456789012:t", "Message": strings.Replace(hook, "TERMINATING", "LAUNCHING", 1)})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.send("events", `{"Event":"autoscaling:TEST_NOTIFICATION","AutoScalingGroupName":"workers","Time":"2026-01-10T10:00:00.000Z"}`, string(wrapped), hook)
	w.awaits(pool).Should(Equal("terminating"))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(pool)).To(Equal("terminating"))
	w.g.Expect(w.metric("ignored_total", "reason=test")).To(BeEquivalentTo(1))
	// An event of an instance without an AWSMachine is written to the pool.
	w.send("events", spot(instanceID(0), 60))
	w.awaits(pool).Should(Equal("spot-interruption-terminate"))
	failed := event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", 90, `{"AutoScalingGroupName":"workers","EC2InstanceId":"","StatusMessage":"no capacity"}`)
	w.send("events", strings.Replace(failed, `"resources":[]`, fmt.Sprintf(`"resources":[%q]`, arn), 1))
	w.awaits(pool).Should(Equal("launch-failed"))
	w.awaitsEvents("workers").Should(ContainElement(And(HavePrefix("Warning ScalingActivityFailed Now launch-failed"), ContainSubstring("no capacity"))))
}
