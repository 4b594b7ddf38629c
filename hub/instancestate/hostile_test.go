package instancestate_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A 404 for a version that is no longer served, or of a proxy without a route, does not mean
// that the object was deleted: the message is kept.
func TestNotFoundThatIsNotTheObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	w.awaitsReading(w.start(), "events").Should(Equal("ready"))
	lost := func(r *http.Request) *http.Response {
		if !labels(r) {
			return nil
		}
		return &http.Response{
			StatusCode: http.StatusNotFound, Status: "404 Not Found", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: io.NopCloser(bytes.NewBufferString("404 page not found\n")),
		}
	}
	w.fault.Store(&lost)
	w.send("events", stateChange(instanceID(0), "stopping", 0))
	w.g.Eventually(func() float64 { return w.metric("patch_failures_total") }).Should(BeNumerically(">=", 1))
	w.recovers()
	w.awaits(m).Should(Equal("stopping"))
	w.awaitsEmpty("events")
}

// Another Machine with the name of the owner is not remediated.
func TestRemediateNoNamesake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m, other := w.owned("m", instanceID(0))
	m.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: other.GetAPIVersion(), Kind: "Machine", Name: "m", UID: types.UID("that-which-was-before")}})
	w.create(m)
	w.events("remediate", []string{"spot-interruption"})
	w.start()
	w.send("events", spot(instanceID(0), 0))
	w.awaits(m).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events")
	w.g.Expect(w.getIn(w.Client, other).GetAnnotations()).NotTo(HaveKey(clusterv1.RemediateMachineAnnotation))
	w.g.Expect(w.metric("remediated_total")).To(BeZero())
}

// The polled state of a paused cluster is as old as the pause, and repairs nothing. The
// polled state running does not remove a notice.
func TestDriftThatIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DriftGrace = time.Second
	w.usual()
	paused, noticed := w.machine("paused", instanceID(0)), w.machine("noticed", instanceID(1))
	paused.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""})
	w.create(paused)
	w.create(noticed)
	w.events()
	w.start()
	w.send("events", stateChange(instanceID(0), "stopped", 0), stateChange(instanceID(1), "pending", 0),
		event("aws.health", "AWS Health Event", 1, `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"`+instanceID(1)+`"}]}`))
	all := map[string]int{"stopped": 1, "scheduled-maintenance": 1}
	w.g.Eventually(w.labels).Should(Equal(all))
	w.patchStatus(paused, `{"status":{"instanceState":"running"}}`)
	w.patchStatus(noticed, `{"status":{"instanceState":"running"}}`)
	w.g.Consistently(w.labels, "2500ms").Should(Equal(all))
}

// Notes of Events are cut at the limit of the API server: texts of AWS may be long.
func TestLongNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	arn := "arn:aws:autoscaling:" + region + ":" + account + ":autoScalingGroup:1:autoScalingGroupName/p"
	w.create(w.pool("p", arn))
	w.events()
	w.start()
	w.send("events", event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", 0,
		`{"AutoScalingGroupName":"p","StatusMessage":"`+strings.Repeat("😀", 300)+`"}`))
	w.awaitsEvents("p").Should(ContainElement(HavePrefix("Warning ScalingActivityFailed Now launch-failed")))
}

// AWSMachines cannot be listed at the start: the object of an event is not known, so the
// message stays in the queue, also during a restart.
func TestKindThatCannotBeListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	w.fails(http.StatusForbidden, func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/awsmachines")
	})
	r := w.start()
	w.send("events", stateChange(instanceID(0), "running", 0))
	w.g.Eventually(func() float64 {
		return w.metric("messages_total", "what=retried") + w.metric("messages_total", "what=deleted")
	}).ShouldNot(BeZero())
	w.awaitsReading(r, "events").Should(And(ContainSubstring("AWSMachine"), ContainSubstring("its events wait in the queue")))
	r.stop()
	w.g.Expect(w.sqs.Bodies(region, "events")).To(HaveLen(1))
	w.recovers()
	w.start()
	w.awaits(m).Should(Equal("running"))
	w.awaitsEmpty("events")
}

// TestMoreMachinesThanTheLimit: above the limit of a kind, no event is lost, and the source says
// which flag to raise. The machines of a namespace that the hub does not serve do not count.
func TestMoreMachinesThanTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	newWorld(t, newest).fleet(5)
	w.usual()
	w.fleet(4)
	w.events()
	w.maxLocalObjects = 3
	r := w.start()
	w.awaitsReading(r, "events").Should(Equal("the management cluster holds more than 3 objects of AWSMachine.infrastructure.cluster.x-k8s.io: remove some, " +
		"or raise --management-max-objects, or restrict the program to one namespace (--namespace); its events wait in the queue"))
	w.send("events", stateChange(instanceID(0), "running", 0), stateChange(instanceID(3), "running", 0))
	w.g.Eventually(func() float64 { return w.metric("ignored_total", "reason=unread") }).Should(BeNumerically(">=", 2))
	r.stop()
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(BeZero())
	w.maxLocalObjects = 4
	r = w.start()
	w.g.Eventually(w.labels).Should(Equal(map[string]int{"running": 2, "": 2}))
	w.awaitsReading(r, "events").Should(Equal("ready"))
	w.awaitsEmpty("events")
}

// TestAccountThatCannotBeRead: a cluster's account is that of its role. While an object that
// leads to it cannot be read, an event of the account may be the cluster's, and stays in the
// queue.
func TestAccountThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const member = "222222222222"
	for _, resource := range []string{"clusters", "awsclusters", "awsclusterroleidentities"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newest)
			identity := w.roleIdentity(w.namespace, member)
			w.create(object(infra, "AWSCluster", w.namespace, "c", map[string]any{"region": region, "identityRef": identity}))
			w.create(w.capiCluster("c", "", map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", "c")}))
			m := w.fleet(1)[0]
			w.create(w.source("events", "queueUrl", w.queue("events"), "region", region))
			w.fails(http.StatusForbidden, func(r *http.Request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+resource)
			})
			r := w.start()
			w.send("events", eventOf(member, region, "aws.ec2", "EC2 Instance State-change Notification", begin, fmt.Sprintf(`{"instance-id":%q,"state":"running"}`, instanceID(0))))
			w.g.Eventually(func() float64 {
				return w.metric("messages_total", "what=retried") + w.metric("messages_total", "what=deleted")
			}).ShouldNot(BeZero())
			r.stop()
			w.g.Expect(w.sqs.Bodies(region, "events")).To(HaveLen(1))
			w.g.Expect(w.eventsOf("events")).To(BeEmpty(), "it is not known to be foreign")
			w.g.Expect(w.metric("ignored_total", "reason=unplaced")).NotTo(BeZero())
			w.recovers()
			w.start()
			w.awaits(m).Should(Equal("running"))
			w.awaitsEmpty("events")
		})
	}
}

// CAPA is down: a state that it polled before the event of the label repairs nothing.
func TestDriftOfWhatWasPolledBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DriftGrace = 3 * time.Second
	w.usual()
	m := w.fleet(1)[0]
	w.patchStatus(m, `{"status":{"instanceState":"running"}}`)
	w.events()
	w.start()
	w.send("events", eventOf(account, region, "aws.ec2", "EC2 Instance State-change Notification", time.Now().Add(2*time.Second),
		`{"instance-id":"`+instanceID(0)+`","state":"stopping"}`))
	w.awaits(m).Should(Equal("stopping"))
	w.g.Consistently(func() string { return w.label(m) }, "6s").Should(Equal("stopping"))
	w.patchStatus(m, `{"status":{"instanceState":"stopped"}}`)
	w.awaits(m).Should(Equal("stopped"))
}

// An object gets another instance: the state of the previous one, including an end, does not
// apply to it.
func TestAnotherInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DriftGrace = time.Second
	w.usual()
	m := w.fleet(1)[0]
	w.events()
	w.start()
	w.send("events", stateChange(instanceID(0), "terminated", 9))
	w.awaits(m).Should(Equal("terminated"))
	w.patch(m, `{"spec":{"instanceID":"`+instanceID(1)+`","providerID":"aws:///us-east-1a/`+instanceID(1)+`"}}`)
	w.send("events", stateChange(instanceID(1), "pending", 5))
	w.awaits(m).Should(Equal("pending"))
	w.send("events", stateChange(instanceID(0), "terminated", 9))
	w.patch(m, `{"spec":{"instanceID":"`+instanceID(2)+`","providerID":"aws:///us-east-1a/`+instanceID(2)+`"}}`)
	w.patchStatus(m, `{"status":{"instanceState":"running"}}`)
	w.awaits(m).Should(Equal("running"), "this state is polled, and the label was of another instance")
}

// The hub may not annotate Machines: it says so once, and the message is retried until the
// right is given. Then the Machine is annotated once, also if the message is delivered again.
func TestRemediationForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	m, owner := w.owned("m", instanceID(0))
	w.create(m)
	w.events("remediate", []string{"spot-interruption"})
	w.fails(http.StatusForbidden, func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/machines/")
	})
	w.start()
	notice := spot(instanceID(0), 0)
	w.send("events", notice)
	w.awaitsEvents("m").Should(ContainElement(And(HavePrefix("Warning RemediationForbidden "), ContainSubstring("verb patch on machines"))))
	w.g.Expect(w.sqs.Stats(region, "events").Deleted).To(BeZero())
	w.g.Expect(w.getIn(w.Client, owner).GetAnnotations()).To(BeEmpty())
	w.recovers()
	w.awaitsEmpty("events")
	w.g.Expect(w.getIn(w.Client, owner).GetAnnotations()).To(HaveKey(clusterv1.RemediateMachineAnnotation))
	w.g.Expect(w.metric("remediated_total")).To(BeEquivalentTo(1))
	w.send("events", notice)
	w.awaitsEmpty("events")
	w.g.Expect(w.metric("remediated_total")).To(BeEquivalentTo(1))
}
