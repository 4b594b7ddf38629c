package instancestate_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/clusters"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/playground/aws"
)

// cordoner is a second reconciler, which acts on events: the hub calls it when a label
// changes. It reads the event behind the label, and reports when it has acted.
type cordoner struct {
	handler *instancestate.Handler
	// act on an event, such as to cordon the node.
	act func(context.Context, instancestate.EventBridgeEvent) error
}

func (c *cordoner) Reconcile(ctx context.Context, w instancestate.Woken) (reconcile.Result, error) {
	event, err := instancestate.GetEventFromSQS(ctx, w.Object)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.act(ctx, event); err != nil {
		return reconcile.Result{}, err
	}
	c.handler.Processed(w, event.ID)
	return reconcile.Result{}, nil
}

// The message is deleted only when the second reconciler has reported, as the hub's own
// consumer waits for IsEventProcessed.
func TestSecondReconciler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	r := w.prepare(false)
	acted, let := make(chan instancestate.EventBridgeEvent, 10), make(chan struct{})
	c := &cordoner{act: func(ctx context.Context, e instancestate.EventBridgeEvent) error {
		acted <- e
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	woken := make(chan instancestate.Woken, 100)
	c.handler = r.Handle("cordoner", func(w instancestate.Woken) { woken <- w })
	made, err := controller.NewTyped("cordoner", r.manager.GetLocalManager(), controller.TypedOptions[instancestate.Woken]{Reconciler: c})
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(made.Watch(source.TypedFunc[instancestate.Woken](func(ctx context.Context, q workqueue.TypedRateLimitingInterface[instancestate.Woken]) error {
		go func() {
			for {
				select {
				case one := <-woken:
					q.Add(one)
				case <-ctx.Done():
					return
				}
			}
		}()
		return nil
	}))).To(Succeed())
	r.run(w)
	body := spot(instanceID(0), 0)
	w.send("events", body)
	var event instancestate.EventBridgeEvent
	w.g.Eventually(acted).Should(Receive(&event))
	w.g.Expect(body).To(ContainSubstring(`"id":"` + event.ID + `"`))
	w.g.Expect(event.DetailType).To(Equal("EC2 Spot Instance Interruption Warning"))
	w.g.Expect(string(event.Detail)).To(MatchJSON(`{"instance-id":"i-00000000000000001","instance-action":"terminate"}`))
	w.g.Expect(w.label(m)).To(Equal("spot-interruption-terminate"), "the label did not wait")
	w.g.Expect(r.IsEventProcessed(t.Context(), event.ID)).To(BeFalse())
	w.g.Consistently(func() int { return w.sqs.Stats(region, "events").Deleted }, "300ms").Should(BeZero())
	close(let)
	w.g.Eventually(func() bool { return r.IsEventProcessed(t.Context(), event.ID) }).Should(BeTrue())
	w.awaitsEmpty("events")
	w.g.Expect(r.IsEventProcessed(t.Context(), "unknown")).To(BeFalse())

	_, err = instancestate.GetEventFromSQS(t.Context(), w.machine("none", ""))
	w.g.Expect(err).To(MatchError(instancestate.ErrNoEvent))
}

// The owner Machine is annotated for the events that the source configures, for no others,
// and never while it is paused.
func TestRemediate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	machines := map[string]*unstructured.Unstructured{}
	for i, name := range []string{"spot", "rebalance", "paused"} {
		m, owner := w.owned(name, instanceID(i))
		if name == "paused" {
			m.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
		}
		w.create(m)
		machines[name] = owner
	}
	w.events("remediate", []string{"spot-interruption"})
	w.start()
	w.send("events", spot(instanceID(0), 0), spot(instanceID(2), 0),
		event("aws.ec2", "EC2 Instance Rebalance Recommendation", 0, `{"instance-id":"`+instanceID(1)+`"}`))
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"spot-interruption-terminate": 2, "rebalance-recommended": 1}))
	w.awaitsEmpty("events")
	for name, owner := range machines {
		marked := HaveKey(clusterv1.RemediateMachineAnnotation)
		if name != "spot" {
			marked = Not(marked)
		}
		w.g.Expect(w.getIn(w.Client, owner).GetAnnotations()).To(marked, name)
	}
	w.awaitsEvents("spot").Should(ConsistOf(HavePrefix("Warning SpotInterruption Now spot-interruption-terminate (previously unknown); event e-")))
	w.awaitsEvents("rebalance").Should(ConsistOf(HavePrefix("Normal RebalanceRecommended ")))
}

// A notice is remediated when it is delivered before, with or after the state that it
// announces. It is not remediated when the instance has started again since.
func TestRemediateInAnyOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	owners := map[string]*unstructured.Unstructured{}
	for i, name := range []string{"together", "after", "recovered"} {
		m, owner := w.owned(name, instanceID(i))
		w.create(m)
		owners[name] = owner
	}
	w.events("remediate", []string{"spot-interruption"})
	w.start()
	w.send("events", spot(instanceID(0), 0), stateChange(instanceID(0), "shutting-down", 9), stateChange(instanceID(1), "shutting-down", 9), stateChange(instanceID(2), "running", 9))
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"shutting-down": 2, "running": 1}))
	w.send("events", spot(instanceID(1), 0), spot(instanceID(2), 0))
	w.awaitsEmpty("events")
	g := w.g
	g.Expect(w.labels()).To(Equal(map[string]int{"shutting-down": 2, "running": 1}))
	for name, owner := range owners {
		marked := HaveKey(clusterv1.RemediateMachineAnnotation)
		if name == "recovered" {
			marked = Not(marked)
		}
		g.Expect(w.getIn(w.Client, owner).GetAnnotations()).To(marked, name)
	}
}

// An event was lost: the state that CAPA polls repairs the label after the grace.
func TestDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DriftGrace = time.Second
	w.usual()
	all := w.fleet(3)
	w.events()
	w.start()
	w.send("events", stateChange(instanceID(0), "running", 0), stateChange(instanceID(1), "terminated", 0))
	w.awaits(all[0]).Should(Equal("running"))
	w.awaits(all[1]).Should(Equal("terminated"))
	w.patchStatus(all[0], `{"status":{"instanceState":"stopped"}}`)
	w.patchStatus(all[1], `{"status":{"instanceState":"running"}}`) // It was polled before the event.
	w.patchStatus(all[2], `{"status":{"instanceState":"running"}}`) // The queue is newer than the instance.
	w.awaits(all[0]).Should(Equal("stopped"))
	w.g.Consistently(w.labels, "2s").Should(Equal(map[string]int{"stopped": 1, "terminated": 1, "": 1}))
	w.send("events", stateChange(instanceID(0), "running", 1))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(all[0])).To(Equal("stopped"), "the label is older than the polled state")
}

// Another client writes the label: an Event reports it, and the label is repaired after the
// grace.
func TestConflictingWriter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DriftGrace = time.Second
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	w.start()
	w.send("events", spot(instanceID(0), 0))
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events")
	w.patch(m, `{"metadata":{"labels":{"ec2-instance-state":"running"}}}`)
	w.awaitsEvents("events").Should(ConsistOf(And(HavePrefix("Warning ConflictingWriter"), ContainSubstring("EventBridgeInstanceState"))))
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.g.Eventually(func() float64 { return w.metric("drift_repairs_total") }).Should(BeEquivalentTo(1), "counted after the patch, which the API server shows before")
}

// A source's configuration changes. With an invalid one the last valid one stays in use.
// With a valid one the hub reads the new queue, and no message is lost. When the object is
// deleted, reading stops.
func TestSourceChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.queue("one")
	w.queue("two")
	b := w.source("source", "queueName", "one", "region", region, "accounts", []string{account})
	w.create(b)
	r := w.start()
	w.awaitsReading(r, "source").Should(Equal("ready"))
	configure := func(config ...any) {
		w.g.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(b), b)).To(Succeed())
		b.Spec = w.source("source", config...).Spec
		w.g.Expect(w.Update(t.Context(), b)).To(Succeed())
	}
	configure("queueName", "two", "region", "nowhere", "colour", "red")
	inUse := func(queue string) {
		t.Helper()
		w.g.Eventually(func() string {
			status, _ := r.Source(client.ObjectKeyFromObject(b))
			return status.Config.String("queueName")
		}).Should(Equal(queue))
	}
	inUse("one")
	w.send("one", stateChange(instanceID(0), "pending", 0))
	w.awaits(m).Should(Equal("pending"))

	// A message that is in progress when the queue changes is delivered again.
	w.fails(http.StatusInternalServerError, labels)
	w.send("one", stateChange(instanceID(0), "running", 1))
	w.g.Eventually(func() int { return w.sqs.Stats(region, "one").Received }).Should(BeNumerically(">=", 2))
	configure("queueName", "two", "region", region, "accounts", []string{account})
	inUse("two")
	w.awaitsReading(r, "source").Should(Equal("ready"))
	w.recovers()
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "one") }).Should(HaveLen(1))
	w.send("two", stateChange(instanceID(0), "stopping", 2))
	w.awaits(m).Should(Equal("stopping"))
	w.create(w.source("other", "queueName", "one", "region", region, "accounts", []string{account}))
	w.awaitsEmpty("one")
	w.g.Expect(w.label(m)).To(Equal("stopping"))

	// Another type with an invalid configuration leaves it in use; with a valid one it stops.
	w.g.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(b), b)).To(Succeed())
	b.Spec = eventingv1.EventingBackendSpec{Type: "http"}
	w.g.Expect(w.Update(t.Context(), b)).To(Succeed())
	w.send("two", stateChange(instanceID(0), "stopped", 3))
	w.awaits(m).Should(Equal("stopped"))
	inUse("two")
	b.Spec.Config = []eventingv1.ConfigEntry{{"url": {Raw: []byte(`"https://example.com"`)}}}
	w.g.Expect(w.Update(t.Context(), b)).To(Succeed())
	w.awaitsReading(r, "source").Should(Equal("nothing is read"))
	configure("queueName", "two", "region", region, "accounts", []string{account})
	w.awaitsReading(r, "source").Should(Equal("ready"))

	w.g.Expect(w.Delete(t.Context(), b)).To(Succeed())
	w.g.Eventually(func() float64 { return w.metric("pollers", "source="+w.namespace+"/source") }).Should(BeZero())
	w.g.Eventually(func() float64 {
		return w.metric("received_total", "source="+w.namespace+"/source") + w.metric("queue_wait_seconds", "source="+w.namespace+"/source")
	}).Should(BeZero(), "its series are deleted")
	w.g.Expect(w.metric("received_total", "source="+w.namespace+"/other")).NotTo(BeZero())
}

// selfManaged creates the self-managed cluster "pivoted" without a kubeconfig. In a namespace
// inside it is the Cluster "c".
func (w *world) selfManaged() (inside client.Client, namespace string, cluster *unstructured.Unstructured) {
	w.Helper()
	w.pivoted = true
	inside, namespace = clientOf(w, workload), "inside-"+w.namespace
	w.createIn(inside, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.createIn(inside, object(infra, "AWSCluster", namespace, "c", map[string]any{"region": region}))
	w.createIn(inside, object("cluster.x-k8s.io/v1beta2", "Cluster", namespace, "c", map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", "c")}))
	cluster = object("cluster.x-k8s.io/v1beta2", "Cluster", w.namespace, "pivoted", map[string]any{"controlPlaneEndpoint": map[string]any{"host": "127.0.0.1", "port": int64(6443)}})
	cluster.SetLabels(map[string]string{clusters.SelfManagedLabel: "true"})
	w.create(cluster)
	return inside, namespace, cluster
}

// kubeconfig creates that of the self-managed cluster.
func (w *world) kubeconfig() {
	w.Helper()
	raw, err := workload.Get(w).Kubeconfig("")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pivoted-kubeconfig"}, Data: map[string][]byte{"value": raw}})
}

// While a self-managed cluster is not connected, its machines are not known: an event of an
// instance without an object stays in the queue, whatever it is.
func TestSelfManagedClusterThatIsNotConnected(t *testing.T) {
	t.Parallel()
	workload.Get(t) // Its processes outlive the test.
	w := newWorld(t, newest)
	inside, namespace, _ := w.selfManaged()
	m := w.machine("m", instanceID(50)) // The cluster has machines of another test, too.
	m.SetNamespace(namespace)
	w.createIn(inside, m)
	w.events()
	w.start()
	w.send("events", stateChange(instanceID(50), "running", 0))
	w.g.Eventually(func() float64 { return w.metric("ignored_total", "reason=unread") }).Should(BeNumerically(">=", 1))
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(BeZero())
	w.kubeconfig()
	w.g.Eventually(func() string { return w.labelIn(inside, m) }).Should(Equal("running"))
	w.awaitsEmpty("events")

	// Then events of other instances are dropped again.
	w.send("events", stateChange(instanceID(51), "running", 0))
	w.awaitsEmpty("events")
	w.g.Expect(w.metric("ignored_total", "reason=unknown")).NotTo(BeZero())
}

// Of two sources with one queue, the older one reads it, and the other one says so. What the
// older one does not accept stays in the queue until a user has merged them.
func TestTwoSourcesOfOneQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	url := w.queue("events")
	older := w.source("older", "queueUrl", url, "region", region, "accounts", []string{"999999999999"})
	w.create(older)
	w.g.Eventually(func() bool { // A creation time has seconds.
		return time.Now().Truncate(time.Second).After(older.CreationTimestamp.Time)
	}).Should(BeTrue())
	w.create(w.source("a-younger", "queueName", "events", "region", region, "accounts", []string{account}))
	r := w.start()
	w.awaitsReading(r, "a-younger").Should(Equal(
		"the queue has another reader: EventingBackend " + w.namespace + "/older, which is older, reads it; delete one of the two, and list the accounts of both in the other"))
	w.awaitsReading(r, "older").Should(Equal("ready"))
	w.send("events", stateChange(instanceID(0), "running", 0))
	w.g.Eventually(func() float64 { return w.metric("ignored_total", "reason=foreign", "source="+w.namespace+"/older") }).Should(BeNumerically(">=", 1))
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(BeZero())
	w.g.Expect(w.metric("received_total", "source="+w.namespace+"/a-younger")).To(BeZero())

	w.g.Expect(w.Delete(t.Context(), older)).To(Succeed())
	w.awaits(m).Should(Equal("running"))
	w.awaitsReading(r, "a-younger").Should(Equal("ready"))
	w.awaitsEmpty("events")
}

// Without a list of accounts, only those of the clusters and of the queue are accepted. That of a
// queue with a name is in its URL.
func TestAccountOfAQueueWithAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.queue("named")
	w.create(w.source("events", "queueName", "named", "region", region))
	w.start()
	const kind, detail = "EC2 Instance State-change Notification", `{"instance-id":"i-00000000000000001","state":"%s"}`
	w.send("named", eventOf(account, region, "aws.ec2", kind, begin, fmt.Sprintf(detail, "terminated")))
	w.awaitsEmpty("named")
	w.g.Expect(w.metric("ignored_total", "reason=foreign")).To(BeEquivalentTo(1))
	w.send("named", eventOf(aws.Account, region, "aws.ec2", kind, begin, fmt.Sprintf(detail, "running")))
	w.awaits(m).Should(Equal("running"))
}

// Machines of a self-managed cluster are inside it. They are labelled there when any replica
// receives the message; a cluster that hangs does not block others.
func TestSelfManaged(t *testing.T) {
	t.Parallel()
	workload.Get(t) // Its processes outlive the test.
	w := newWorld(t, newest)
	inside, namespace, cluster := w.selfManaged()
	w.kubeconfig()
	owner := object("cluster.x-k8s.io/v1beta2", "Machine", namespace, "m", map[string]any{
		"clusterName": "c", "bootstrap": map[string]any{"dataSecretName": "x"}, "infrastructureRef": w.ref(infra, "AWSMachine", "m"),
	})
	w.createIn(inside, owner)
	m := w.machine("m", instanceID(0))
	m.SetNamespace(namespace)
	m.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: "Machine", Name: "m", UID: owner.GetUID()}})
	w.createIn(inside, m)
	w.events("remediate", []string{"spot-interruption"})
	leader, standby := w.prepare(true), w.prepare(true)
	leader.run(w)
	w.g.Eventually(leader.manager.Elected()).Should(BeClosed())
	standby.run(w)
	for i, state := range []string{"pending", "running", "stopping"} {
		w.send("events", stateChange(instanceID(0), state, i))
		w.g.Eventually(func() string { return w.labelIn(inside, m) }).Should(Equal(state))
	}
	w.send("events", event("aws.ec2", "EC2 Instance State-change Notification", 9, `{"instance-id":"`+instanceID(0)+`","state":"running"}`), spot(instanceID(0), 10))
	w.g.Eventually(func() string { return w.labelIn(inside, m) }).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events")
	w.g.Expect(w.getIn(inside, owner).GetAnnotations()).To(Equal(map[string]string{clusterv1.RemediateMachineAnnotation: ""}), "nothing else is written to it")
	w.awaitsEvents("pivoted").Should(ContainElement(ContainSubstring("AWSMachine " + namespace + "/m: Now spot-interruption-terminate")))

	// Without the label its machines are forgotten, although a Pipeline keeps its connection.
	name := clusters.Ref{Kind: "Cluster", Namespace: w.namespace, Name: "pivoted"}.ClusterName()
	w.connections[0].Demand(name, "pipeline")
	standby.stop() // It knows no self-managed cluster.
	unknown := func() float64 { return w.metric("ignored_total", "reason=unknown") }
	before := unknown()
	w.patch(cluster, `{"metadata":{"labels":{"`+clusters.SelfManagedLabel+`":null}}}`)
	w.g.Eventually(func() float64 {
		w.send("events", stateChange(instanceID(0), "running", 20))
		return unknown()
	}).WithPolling(200*time.Millisecond).Should(BeNumerically(">", before), "its machines are unknown")
}
