package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/internal/capa"
)

// The cache keeps only the fields of a machine that pages show, for both versions of
// Cluster API. The page is the same as with the full object.
func TestMachineKinds(t *testing.T) {
	object := func(version string, kind schema.GroupKind, content string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		typed := fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,`, kind.Group, version, kind.Kind) + strings.TrimPrefix(content, "{")
		NewWithT(t).Expect(u.UnmarshalJSON([]byte(typed))).To(Succeed())
		return u
	}
	const meta = `"metadata":{"namespace":"fleet","name":"m","labels":{"cluster.x-k8s.io/cluster-name":"prod","ec2-instance-state":"running","asg-instance-state":"launched","team":"x"},
		"annotations":{"capacity.cluster-autoscaler.kubernetes.io/cpu":"8","machine.openshift.io/GPU":"1","secret":"hunter2"},"managedFields":[{"manager":"m","time":"2026-01-10T10:00:00Z"}]}`
	for _, version := range []string{"v1beta1", "v1beta2"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			deployment := object(version, capa.MachineDeployment, `{`+meta+`,"spec":{"clusterName":"prod","replicas":3,"template":{"secret":"hunter2"}},"status":{"replicas":3,"readyReplicas":2}}`)
			group := groupOf(capa.MachineDeployment, deployment)
			g.Expect(group).To(Equal(view.NodeGroup{Kind: "MachineDeployment", Namespace: "fleet", Name: "m", Cluster: "prod", Ready: 2, Desired: 3, Capacity: []string{"GPU: 1", "cpu: 8"}, ByUser: []string{"GPU", "cpu"}}))
			autoscaled := object(version, capa.MachinePool, `{`+meta+`,"spec":{"clusterName":"prod"},"status":{"replicas":5,"readyReplicas":5}}`)
			g.Expect(groupOf(capa.MachinePool, autoscaled)).To(And(HaveField("Ready", int64(5)), HaveField("Desired", int64(5))))
			machine := object(version, capa.AWSMachine, `{`+meta+`,"spec":{"instanceID":"i-1","secret":"hunter2"}}`)
			instance := instancesOf(capa.AWSMachine, machine)
			g.Expect(instance).To(Equal(view.Instances{Kind: "AWSMachine", Namespace: "fleet", Name: "m", Cluster: "prod", State: "running", Instance: "i-1"}))
			g.Expect(instancesOf(capa.AWSMachinePool, machine)).To(And(HaveField("State", "launched"), HaveField("Instance", "m")))

			managed := object(version, capa.AWSManagedMachinePool, `{`+meta+`,"spec":{"eksNodegroupName":"workers"}}`)
			g.Expect(instancesOf(capa.AWSManagedMachinePool, managed)).To(Equal(view.Instances{Kind: "AWSManagedMachinePool", Namespace: "fleet", Name: "m", Cluster: "prod", State: "launched", Instance: "workers"}))
			rosa := object(version, capa.ROSAMachinePool, `{`+meta+`,"spec":{"nodePoolName":"np"}}`)
			g.Expect(instancesOf(capa.ROSAMachinePool, rosa)).To(And(HaveField("State", "launched"), HaveField("Instance", "np")))

			for kind, u := range map[schema.GroupKind]*unstructured.Unstructured{capa.MachineDeployment: deployment, capa.MachinePool: autoscaled, capa.AWSMachine: machine, capa.AWSManagedMachinePool: managed, capa.ROSAMachinePool: rosa} {
				how, ours := Kind(kind)
				g.Expect(ours).To(BeTrue())
				kept, err := how.Reduce(u.DeepCopy())
				g.Expect(err).NotTo(HaveOccurred())
				raw, err := json.Marshal(kept)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(raw)).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("team"), ContainSubstring("managedFields")))
				if kind.Group == capa.GroupInfrastructure {
					g.Expect(instancesOf(kind, kept.(*unstructured.Unstructured))).To(Equal(instancesOf(kind, u)))
				} else {
					g.Expect(groupOf(kind, kept.(*unstructured.Unstructured))).To(Equal(groupOf(kind, u)))
				}
			}
		})
	}
	_, ours := Kind(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	NewWithT(t).Expect(ours).To(BeFalse())
}

// What the annotator and the follower of instances record on an object is read from the reduced object: the source, time
// and instance type of annotations, and the last event with its due time.
func TestRecordsOfMachines(t *testing.T) {
	g := NewWithT(t)
	reduced := func(kind schema.GroupKind, metadata string) *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		g.Expect(u.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"%s/v1beta2","kind":%q,"metadata":{"namespace":"fleet","name":"m",%s}}`, kind.Group, kind.Kind, metadata))).To(Succeed())
		how, ours := Kind(kind)
		g.Expect(ours).To(BeTrue())
		kept, err := how.Reduce(u)
		g.Expect(err).NotTo(HaveOccurred())
		return kept.(*unstructured.Unstructured)
	}
	const prefix = "capacity.cluster-autoscaler.kubernetes.io/"
	at := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	group := groupOf(capa.MachineDeployment, reduced(capa.MachineDeployment, `
		"annotations":{"`+prefix+`cpu":"8","`+prefix+`memory":"1Gi","`+prefix+`gpu-count":"2","`+prefix+`labels":"kubernetes.io/arch=amd64,node.kubernetes.io/instance-type=g5.xlarge",
			"capstan.dev/capacity-applied":"{\"values\":{\"`+prefix+`cpu\":\"8\",\"`+prefix+`gpu-count\":\"1\"},\"labels\":{\"kubernetes.io/arch\":\"amd64\"}}"},
		"managedFields":[{"manager":"capstan-annotator","time":"2026-01-10T09:00:00Z"},{"manager":"capstan-annotator","time":"2026-01-10T10:00:00Z"},{"manager":"kubectl","time":"2026-01-10T11:00:00Z"}]`))
	g.Expect(group.ByUser).To(Equal([]string{"gpu-count", "memory"}), "memory was never written by Capstan, and gpu-count was changed since")
	g.Expect(group.Capacity).To(HaveLen(4))
	g.Expect(group.InstanceType).To(Equal("g5.xlarge"))
	g.Expect(group.Annotated).To(Equal(at))

	owned := reduced(capa.MachineSet, `"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineDeployment","name":"md","uid":"u"}],"annotations":{"`+prefix+`cpu":"8"}`)
	g.Expect(capa.OwnedByDeployment(owned)).To(BeTrue())
	g.Expect(owned.GetAnnotations()).To(BeEmpty(), "a MachineDeployment has several")
	g.Expect(capa.OwnedByDeployment(reduced(capa.MachineSet, `"annotations":{"`+prefix+`cpu":"8"}`))).To(BeFalse())

	machine := func(label, record string) view.Instances {
		return instancesOf(capa.AWSMachine, reduced(capa.AWSMachine, fmt.Sprintf(`"labels":{"ec2-instance-state":%q},"annotations":{"instancestate.capstan.dev/guard":%q}`, label, record)))
	}
	const notice = `{"instance":"i-1","notices":[{"word":"spot-interruption-terminate","kind":"spot-interruption","time":"2026-01-10T10:00:00Z","rank":70,"id":"1","due":"2026-01-10T10:02:00Z"}]}`
	g.Expect(machine("spot-interruption-terminate", notice)).To(And(
		HaveField("Event", "Spot interruption"), HaveField("Since", at), HaveField("Due", at.Add(2*time.Minute))))
	g.Expect(machine("running", notice)).To(And(HaveField("Event", ""), HaveField("Since", BeZero()), HaveField("Due", BeZero())), "another client changed the label")
	g.Expect(machine("running", `{"state":{"word":"running","kind":"state-change","time":"2026-01-10T10:00:00Z","rank":20,"id":"1"}}`)).To(And(
		HaveField("Event", "State change"), HaveField("Since", at), HaveField("Due", BeZero())))
	g.Expect(machine("running", "rubbish").Event).To(BeEmpty())
	pool := instancesOf(capa.AWSMachinePool, reduced(capa.AWSMachinePool, fmt.Sprintf(`"labels":{"asg-instance-state":"launch-failed"},"annotations":{"instancestate.capstan.dev/guard":%q}`,
		`{"newest":{"word":"launch-failed","kind":"asg-activity","time":"2026-01-10T10:00:00Z","rank":24,"id":"1"}}`)))
	g.Expect(pool).To(And(HaveField("Event", "Scaling activity"), HaveField("Since", at)))
}
