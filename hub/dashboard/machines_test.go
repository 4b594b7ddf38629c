package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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
		"annotations":{"capacity.cluster-autoscaler.kubernetes.io/cpu":"8","machine.openshift.io/GPU":"1","secret":"hunter2"},"managedFields":[{"manager":"m"}]}`
	for _, version := range []string{"v1beta1", "v1beta2"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			deployment := object(version, capa.MachineDeployment, `{`+meta+`,"spec":{"clusterName":"prod","replicas":3,"template":{"secret":"hunter2"}},"status":{"replicas":3,"readyReplicas":2}}`)
			group := groupOf(capa.MachineDeployment, deployment)
			g.Expect(group).To(Equal(view.NodeGroup{Kind: "MachineDeployment", Namespace: "fleet", Name: "m", Cluster: "prod", Ready: 2, Desired: 3, Capacity: []string{"GPU: 1", "cpu: 8"}}))
			autoscaled := object(version, capa.MachinePool, `{`+meta+`,"spec":{"clusterName":"prod"},"status":{"replicas":5,"readyReplicas":5}}`)
			g.Expect(groupOf(capa.MachinePool, autoscaled)).To(And(HaveField("Ready", int64(5)), HaveField("Desired", int64(5))))
			machine := object(version, capa.AWSMachine, `{`+meta+`,"spec":{"instanceID":"i-1","secret":"hunter2"}}`)
			instance := instancesOf(capa.AWSMachine, machine)
			g.Expect(instance).To(Equal(view.Instances{Kind: "AWSMachine", Namespace: "fleet", Name: "m", Cluster: "prod", State: "running", Instance: "i-1"}))
			g.Expect(instancesOf(capa.AWSMachinePool, machine)).To(And(HaveField("State", "launched"), HaveField("Instance", "m")))

			for kind, u := range map[schema.GroupKind]*unstructured.Unstructured{capa.MachineDeployment: deployment, capa.MachinePool: autoscaled, capa.AWSMachine: machine} {
				how, ours := Kind(kind)
				g.Expect(ours).To(BeTrue())
				kept, err := how.Reduce(u.DeepCopy())
				g.Expect(err).NotTo(HaveOccurred())
				raw, err := json.Marshal(kept)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(raw)).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("team"), ContainSubstring("managedFields")))
				if kind == capa.AWSMachine {
					g.Expect(instancesOf(kind, kept.(*unstructured.Unstructured))).To(Equal(instance))
				} else {
					g.Expect(groupOf(kind, kept.(*unstructured.Unstructured))).To(Equal(groupOf(kind, u)))
				}
			}
		})
	}
	_, ours := Kind(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	NewWithT(t).Expect(ours).To(BeFalse())
}
