package instancestate_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/hub/instancestate/guard"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

const eksPlane = "controlplane.cluster.x-k8s.io/v1beta2"

// eks creates a Cluster of EKS, whose control plane has the region and, unless role is empty, an identity with that role.
func (w *world) eks(name, role string) {
	w.Helper()
	spec := map[string]any{"region": region}
	if role != "" {
		identity := object(infra, "AWSClusterRoleIdentity", "", w.namespace+"-"+name, map[string]any{
			"roleARN": role, "allowedNamespaces": map[string]any{}, "sourceIdentityRef": map[string]any{"kind": "AWSClusterControllerIdentity", "name": "default"},
		})
		w.create(identity)
		spec["identityRef"] = map[string]any{"kind": "AWSClusterRoleIdentity", "name": identity.GetName()}
	}
	w.create(object(eksPlane, "AWSManagedControlPlane", w.namespace, name, spec))
	w.create(object("cluster.x-k8s.io/"+w.core, "Cluster", w.namespace, name, map[string]any{"controlPlaneRef": w.ref(eksPlane, "AWSManagedControlPlane", name)}))
}

// managedPool is the AWSManagedMachinePool of a Cluster, for the node group "workers".
func (w *world) managedPool(name, cluster string, ids ...string) *unstructured.Unstructured {
	u := object(infra, "AWSManagedMachinePool", w.namespace, name, map[string]any{"eksNodegroupName": "workers", "providerIDList": providerIDs(ids...)})
	u.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": cluster})
	return u
}

func providerIDs(ids ...string) []any {
	list := []any{}
	for _, id := range ids {
		list = append(list, "aws:///us-east-1a/"+id)
	}
	return list
}

// groupARN is that of the group of a node group "workers".
func groupARN(account, uuid string) string {
	return fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/eks-workers-%s", region, account, uuid, uuid)
}

// groupEvent is an event of the group of a node group; id is empty for an event without an instance.
func groupEvent(account, uuid, detailType, id string, seconds int) string {
	return fmt.Sprintf(`{"version":"0","id":"e-%d","source":"aws.autoscaling","detail-type":%q,"account":%q,"region":%q,"time":%q,"resources":[%q],`+
		`"detail":{"AutoScalingGroupName":"eks-workers-%s","EC2InstanceId":%q}}`,
		ids.Add(1), detailType, account, region, begin.Add(time.Duration(seconds)*time.Second).Format(time.RFC3339), groupARN(account, uuid), uuid, id)
}

// learnedARN is the group that an object's annotation names.
func (w *world) learnedARN(o client.Object) string {
	known, err := guard.ParseGroup(w.getIn(w.Client, o).GetAnnotations()[instancestate.AnnotationGuard])
	w.g.Expect(err).NotTo(HaveOccurred())
	return known.LearnedARN()
}

// Each of AWS' sample events labels the managed pool that has its instances: events of instances and of the group. Pools of
// ROSA get those of instances.
func TestManagedPoolFixtures(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]*controlplane.Shared{"newest": newest, "oldest": oldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, on)
			w.eks("c", "")
			pools, rosa := map[*fixture]*unstructured.Unstructured{}, map[*fixture]*unstructured.Unstructured{}
			var bodies []string
			for n, f := range w.renamed() {
				bodies = append(bodies, f.body)
				if len(f.InstanceIDs) == 0 {
					continue
				}
				pools[f] = w.managedPool(fmt.Sprintf("pool-%d", n), "c", f.InstanceIDs...)
				w.create(pools[f])
				rosa[f] = object(infra, "ROSAMachinePool", w.namespace, fmt.Sprintf("rosa-%d", n), map[string]any{
					"nodePoolName": "workers", "instanceType": "m5.large", "providerIDList": providerIDs(f.InstanceIDs...),
				})
				rosa[f].SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
				w.create(rosa[f])
			}
			w.events()
			w.start()
			w.send("events", bodies...)
			groups := 0
			for f, pool := range pools {
				want := f.ExpectLabels[instancestate.LabelEC2]
				if f.Group != "" {
					groups++
					want = f.ExpectLabels[instancestate.LabelASG]
				}
				w.awaits(pool).Should(Equal(want), f.File)
				if f.Group != "" {
					w.g.Expect(w.learnedARN(pool)).To(HaveSuffix("autoScalingGroupName/"+f.Group), f.File)
				}
			}
			w.awaitsEmpty("events")
			for f, pool := range rosa {
				w.g.Expect(w.label(pool)).To(Equal(f.ExpectLabels[instancestate.LabelEC2]), f.File)
			}
			w.g.Expect(groups).To(BeNumerically(">=", 4))
		})
	}
}

// The group of a node group is learned from an event of one of its instances. Then its events are known without an instance,
// also after a restart and on another replica.
func TestLearnsTheGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.eks("c", "")
	pool := w.managedPool("pool", "c", instanceID(0))
	w.create(pool)
	w.events()
	r := w.start()
	w.send("events", groupEvent(account, "1", "EC2 Instance Launch Unsuccessful", "", 0))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(pool)).To(BeEmpty(), "nothing says whose group it is")
	w.send("events", groupEvent(account, "1", "EC2 Instance Launch Successful", instanceID(0), -5))
	w.awaits(pool).Should(Equal("launch-failed"), "the event that waited is newer")
	w.g.Expect(w.learnedARN(pool)).To(Equal(groupARN(account, "1")))
	w.send("events", groupEvent(account, "1", "EC2 Instance-launch Lifecycle Action", instanceID(1), 10))
	w.awaits(pool).Should(Equal("launching"), "its instance is not in the list yet")
	w.awaitsEmpty("events")
	r.stop()

	w.start()
	w.send("events", groupEvent(account, "1", "EC2 Instance Launch Unsuccessful", "", 20))
	w.awaits(pool).Should(Equal("launch-failed"))
	w.awaitsEvents("pool").Should(ContainElement(HavePrefix("Warning ScalingActivityFailed Now launch-failed (previously launching)")))
	w.awaitsEmpty("events")
	w.g.Expect(w.metric("ignored_total", "reason=foreign")).To(BeZero())
}

// A hook comes before its instance is in providerIDList of a pool whose group is not known. It waits for the instance.
func TestHookBeforeItsInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.eks("c", "")
	pool := w.managedPool("pool", "c")
	w.create(pool)
	w.events()
	w.start()
	w.send("events", groupEvent(account, "1", "EC2 Instance-launch Lifecycle Action", instanceID(0), 0))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(pool)).To(BeEmpty())
	w.patch(pool, `{"spec":{"providerIDList":["aws:///us-east-1a/`+instanceID(0)+`"]}}`)
	w.awaits(pool).Should(Equal("launching"))
	w.g.Expect(w.learnedARN(pool)).To(Equal(groupARN(account, "1")))
}

// Two EKS clusters of one account have a node group of one name, and a third one is in another account. Each gets the events
// of its own group. Forged events do not move a group to a pool of another account.
func TestNodeGroupsOfOneName(t *testing.T) {
	t.Parallel()
	const other = "222222222222"
	w := newWorld(t, newest)
	w.eks("a", "")
	w.eks("b", "")
	w.eks("c", "arn:aws:iam::"+other+":role/capa")
	a, b, c := w.managedPool("a", "a", instanceID(0)), w.managedPool("b", "b", instanceID(1)), w.managedPool("c", "c", instanceID(2))
	for _, pool := range []*unstructured.Unstructured{a, b, c} {
		w.create(pool)
	}
	w.queue("dead")
	w.create(w.source("events", "queueUrl", w.queue("events"), "region", region)) // The accounts are those of the clusters.
	w.start()
	const launched, hook = "EC2 Instance Launch Successful", "EC2 Instance-launch Lifecycle Action"
	// The accounts of a and b are the queue's own, which its URL names.
	own := strings.Split(sqs.ARN(region, "events"), ":")[4]
	w.send("events", groupEvent(own, "a", launched, instanceID(0), 0), groupEvent(own, "b", launched, instanceID(1), 0), groupEvent(other, "c", launched, instanceID(2), 0))
	for pool, uuid := range map[*unstructured.Unstructured]string{a: groupARN(own, "a"), b: groupARN(own, "b"), c: groupARN(other, "c")} {
		w.awaits(pool).Should(Equal("launched"))
		w.g.Expect(w.learnedARN(pool)).To(Equal(uuid))
	}
	w.send("events", groupEvent(own, "b", hook, instanceID(7), 10))
	w.awaits(b).Should(Equal("launching"))
	w.awaitsEmpty("events")
	w.g.Expect(w.label(a)).To(Equal("launched"))

	// A sender of the account of c names the group of a: in an event of c's instance, and without one. A sender also claims
	// the account of a for an instance of c.
	var forged instancestate.EventBridgeEvent
	w.g.Expect(json.Unmarshal([]byte(groupEvent(other, "c", launched, instanceID(2), 20)), &forged)).To(Succeed())
	forged.Resources = []string{groupARN(own, "a")}
	raw, err := json.Marshal(forged)
	w.g.Expect(err).NotTo(HaveOccurred())
	forged.ID, forged.Detail = "forged", json.RawMessage(`{"AutoScalingGroupName":"eks-workers-a","EC2InstanceId":""}`)
	without, err := json.Marshal(forged)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.send("events", string(raw), string(without), groupEvent(own, "a", launched, instanceID(2), 20))
	w.awaitsEmpty("events")
	w.g.Expect(w.learnedARN(c)).To(Equal(groupARN(other, "c")))
	w.send("events", groupEvent(own, "a", hook, instanceID(8), 30))
	w.awaits(a).Should(Equal("launching"), "its group is still its own")
	w.awaitsEmpty("events")
	w.g.Expect(w.label(c)).To(Equal("launched"))
	w.g.Expect(w.metric("ignored_total", "reason=foreign")).NotTo(BeZero())
}

// The CustomResourceDefinition of ROSA is not installed: there are no such pools, and everything else works.
func TestKindThatIsNotInstalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.eks("c", "")
	pool := w.managedPool("pool", "c", instanceID(0))
	w.create(pool)
	w.events()
	w.fails(http.StatusNotFound, lists("rosamachinepools"))
	r := w.start()
	w.awaitsReading(r, "events").Should(Equal("ready"))
	w.send("events", stateChange(instanceID(0), "stopping", 0), stateChange(instanceID(1), "running", 0))
	w.awaits(pool).Should(Equal("stopping"))
	w.awaitsEmpty("events")
	w.g.Expect(w.metric("ignored_total", "reason=unknown")).NotTo(BeZero(), "an instance without an object is dropped: no kind has to be read for it")
}

// A managed pool of a self-managed cluster is labelled inside it.
func TestManagedPoolOfSelfManagedCluster(t *testing.T) {
	t.Parallel()
	workload.Get(t) // Its processes outlive the test.
	w := newWorld(t, newest)
	inside, namespace, _ := w.selfManaged()
	pool := w.managedPool("pool", "c", instanceID(60))
	pool.SetNamespace(namespace)
	w.createIn(inside, pool)
	w.kubeconfig()
	w.events()
	w.start()
	w.send("events", spot(instanceID(60), 0))
	w.g.Eventually(func() string { return w.labelIn(inside, pool) }).Should(Equal("spot-interruption-terminate"))
	w.awaitsEmpty("events")
	w.awaitsEvents("pivoted").Should(ContainElement(HavePrefix("Warning SpotInterruption AWSManagedMachinePool " + namespace + "/pool: Now spot-interruption-terminate")))
}
