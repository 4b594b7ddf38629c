package instancestate_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capstan-hub/capstan/internal/capa"
	"github.com/capstan-hub/capstan/playground/aws"
)

// machineOf a Cluster of the same name; n numbers its instance.
func (w *world) machineOf(cluster string, n int) *unstructured.Unstructured {
	m := w.machine(cluster, instanceID(n))
	m.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	return m
}

// capiCluster with the references of its spec, and an annotation for the region unless that
// is empty.
func (w *world) capiCluster(name, region string, spec map[string]any) *unstructured.Unstructured {
	cluster := object(clusterv1.GroupVersion.String(), "Cluster", w.namespace, name, spec)
	if region != "" {
		cluster.SetAnnotations(map[string]string{capa.RegionAnnotation: region})
	}
	return cluster
}

// An identity gives a cluster its account only where its allowedNamespaces allow the
// namespace. hub/annotator's TestIdentityOfTheCluster asserts the same rule.
func TestIdentityOfTheCluster(t *testing.T) {
	t.Parallel()
	const other = "222222222222"
	w := newWorld(t, newest)
	own := map[string]any{"list": []any{w.namespace}}
	cases := []struct {
		name    string
		allowed any
		// source is the case whose identity is the source; CAPA's own identity when empty.
		source string
		may    bool
	}{
		{"all", map[string]any{}, "", true},
		{"listed", own, "", true},
		{"unset", nil, "", false},
		{"elsewhere", map[string]any{"list": []any{"another"}}, "", false},
		{"nowhere", map[string]any{"list": []any{}}, "", false},
		{"selected", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.namespace}}}, "", false},
		{"chain", own, "all", true},
		{"chain-of-elsewhere", own, "elsewhere", false},
		{"chain-of-none", own, "does-not-exist", false},
	}
	machines := make([]*unstructured.Unstructured, len(cases))
	for i, c := range cases {
		identity := w.namespace + "-" + c.name
		spec := map[string]any{
			"roleARN": "arn:aws:iam::" + other + ":role/capa", "sourceIdentityRef": map[string]any{"kind": "AWSClusterControllerIdentity", "name": "default"},
		}
		if c.allowed != nil {
			spec["allowedNamespaces"] = c.allowed
		}
		if c.source != "" {
			spec["sourceIdentityRef"] = map[string]any{"kind": "AWSClusterRoleIdentity", "name": w.namespace + "-" + c.source}
		}
		w.create(object(infra, "AWSClusterRoleIdentity", "", identity, spec))
		w.create(object(infra, "AWSCluster", w.namespace, c.name, map[string]any{
			"region": region, "identityRef": map[string]any{"kind": "AWSClusterRoleIdentity", "name": identity},
		}))
		w.create(w.capiCluster(c.name, "", map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", c.name)}))
		machines[i] = w.machineOf(c.name, i)
		w.create(machines[i])
	}
	// The URL names the account of the queue, which counts for clusters without a role.
	w.create(w.source("events", "queueUrl", w.queue("events"), "region", region))
	w.start()
	for i := range cases {
		detail := func(state string) string { return fmt.Sprintf(`{"instance-id":%q,"state":%q}`, instanceID(i), state) }
		w.send("events",
			eventOf(aws.Account, region, "aws.ec2", "EC2 Instance State-change Notification", begin, detail("running")),
			eventOf(other, region, "aws.ec2", "EC2 Instance State-change Notification", begin, detail("stopping")))
	}
	w.awaitsEmpty("events")
	for i, c := range cases {
		want := "running"
		if c.may {
			want = "stopping"
		}
		w.g.Expect(w.label(machines[i])).To(Equal(want), c.name)
	}
}

// The region is that of the AWSCluster, else of the control plane, else of the machine's own
// annotation, else of its Cluster's. hub/annotator's TestRegionOrder and
// TestRegionOfAnnotations assert the same order.
func TestRegionOrder(t *testing.T) {
	t.Parallel()
	const right, wrong = "eu-west-1", "us-east-1"
	const plane = "controlplane.cluster.x-k8s.io/v1beta2"
	w := newWorld(t, newest)
	machines := map[string]*unstructured.Unstructured{}
	add := func(cluster *unstructured.Unstructured, own string) {
		w.create(cluster)
		m := w.machineOf(cluster.GetName(), len(machines))
		if own != "" {
			m.SetAnnotations(map[string]string{capa.RegionAnnotation: own})
		}
		w.create(m)
		machines[cluster.GetName()] = m
	}
	both := func(name string) map[string]any {
		return map[string]any{"infrastructureRef": w.ref(infra, "AWSCluster", name), "controlPlaneRef": w.ref(plane, "AWSManagedControlPlane", name)}
	}
	awsCluster := func(name, region string) {
		w.create(object(infra, "AWSCluster", w.namespace, name, map[string]any{"region": region}))
	}
	controlPlane := func(name, region string) {
		w.create(object(plane, "AWSManagedControlPlane", w.namespace, name, map[string]any{"region": region}))
	}
	awsCluster("infrastructure", right)
	controlPlane("infrastructure", wrong)
	add(w.capiCluster("infrastructure", wrong, both("infrastructure")), wrong)
	controlPlane("plane", right)
	add(w.capiCluster("plane", wrong, both("plane")), wrong)
	add(w.capiCluster("own", wrong, both("own")), right)
	add(w.capiCluster("cluster", right, both("cluster")), "")
	w.events()
	w.start()
	for i := range len(machines) {
		detail := func(state string) string { return fmt.Sprintf(`{"instance-id":%q,"state":%q}`, instanceID(i), state) }
		w.send("events",
			eventOf(account, right, "aws.ec2", "EC2 Instance State-change Notification", begin, detail("running")),
			eventOf(account, wrong, "aws.ec2", "EC2 Instance State-change Notification", begin, detail("terminated")))
	}
	w.awaitsEmpty("events")
	for name, m := range machines {
		w.g.Expect(w.label(m)).To(Equal("running"), name)
	}
}
