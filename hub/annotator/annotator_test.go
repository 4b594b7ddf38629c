package annotator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/annotator"
	"github.com/capstan-hub/capstan/hub/annotator/annotation"
	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

const region = "eu-west-1"

// quiet is how long nothing has to happen for a test to say that nothing does.
const quiet = 700 * time.Millisecond

// eachAge runs a test with the newest Cluster API and CAPA, and with the oldest that are
// supported.
func eachAge(t *testing.T, test func(*world)) {
	t.Helper()
	for name, on := range map[string]*controlplane.Shared{"newest": newest, "oldest": oldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, on))
		})
	}
}

// Must show 4; FR1 to FR3, FR6. The order in which the parts are created does not matter.
func TestEveryOrderOfCreation(t *testing.T) {
	t.Parallel()
	eachAge(t, func(w *world) {
		w.start()
		md := w.deployment("md", "t")
		parts := []client.Object{md, w.template("t", "g5.xlarge"), w.capiCluster("AWSCluster", ""), w.awsCluster(region)}
		for first := range parts {
			for i := range parts {
				o := parts[(first+i)%len(parts)].DeepCopyObject().(client.Object)
				w.g.Expect(w.Create(w.Context(), o)).To(Succeed())
			}
			w.awaits(md).Should(equal(g5(region)))
			for _, o := range parts {
				w.gone(o.DeepCopyObject().(client.Object))
			}
		}
	})
}

// Must show 4; FR3. EKS' and ROSA's regions are on their control planes.
func TestRegionOfTheControlPlane(t *testing.T) {
	t.Parallel()
	eachAge(t, func(w *world) {
		w.start()
		w.create(w.template("t", "m5.large"))
		for kind, spec := range map[string]map[string]any{
			"AWSManagedControlPlane": {"region": "us-east-1"},
			"ROSAControlPlane": {
				"region": "us-east-1", "rosaClusterName": "c", "version": "4.16.0", "versionGate": "WaitForAcknowledge",
				"availabilityZones": []any{"a"}, "subnets": []any{"s"}, "oidcID": "o",
				"installerRoleARN": "i", "supportRoleARN": "s", "workerRoleARN": "w",
				"rolesRef": map[string]any{
					"controlPlaneOperatorARN": "a", "imageRegistryARN": "a", "ingressARN": "a", "kmsProviderARN": "a",
					"kubeCloudControllerARN": "a", "networkARN": "a", "nodePoolManagementARN": "a", "storageARN": "a",
				},
			},
		} {
			infra := map[string]string{"AWSManagedControlPlane": "AWSManagedCluster", "ROSAControlPlane": "ROSACluster"}[kind]
			cluster := w.capiCluster(infra, kind)
			w.g.Expect(w.Create(w.Context(), cluster)).To(Succeed())
			md := w.deployment(strings.ToLower(kind), "t")
			w.create(md)
			w.awaitsEvents(md.GetName()).Should(ContainElement(ContainSubstring("RegionUnknown: unable to determine AWS region from AWSCluster or annotation")))
			w.create(object(controlPlane+"/v1beta2", kind, w.namespace, "c", spec))
			w.awaits(md).Should(equal(m5("us-east-1")))
			w.gone(cluster)
		}
	})
}

// FR3.2. Annotations name the region where no object does, the group's before the
// Cluster's, and --default-region where nothing does.
func TestRegionOfAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.DefaultRegion = "us-east-1"
	w.start()
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	w.create(md)
	w.awaits(md).Should(equal(m5("us-east-1")), "the default")
	cluster := w.capiCluster("AWSCluster", "")
	cluster.SetAnnotations(map[string]string{annotator.RegionAnnotation: "eu-central-1"})
	w.create(cluster)
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels, ContainSubstring("region=eu-central-1")), "the Cluster's")
	w.patch(md, `{"metadata":{"annotations":{"`+annotator.RegionAnnotation+`":"eu-west-1"}}}`)
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels, ContainSubstring("region=eu-west-1")), "its own")
	w.create(w.awsCluster("us-west-2"))
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels, ContainSubstring("region=us-west-2")), "the AWSCluster's comes first")
}

// The AWSCluster comes before the control plane. hub/instancestate's TestRegionOrder holds
// instance state to the same order.
func TestRegionOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	w.create(md)
	infra := w.awsCluster("eu-west-1")
	w.create(infra)
	w.create(object(controlPlane+"/v1beta2", "AWSManagedControlPlane", w.namespace, "c", map[string]any{"region": "us-east-1"}))
	w.create(w.capiCluster("AWSCluster", "AWSManagedControlPlane"))
	w.awaits(md).Should(equal(m5("eu-west-1")))
	w.gone(infra)
	w.awaits(md).Should(equal(m5("us-east-1")), "the control plane's")
}

// g5 → m5: the values of the old type are removed, and nothing else.
func TestTheTemplateIsSwapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.usual(region)
	w.create(w.template("g", "g5.xlarge"))
	w.create(w.template("m", "m5.large"))
	md := w.deployment("md", "g")
	md.SetAnnotations(map[string]string{annotation.Labels: "team=ml", "mine": "x"})
	w.create(md)
	w.awaits(md).Should(HaveKeyWithValue(annotation.GPUCount, "1"))
	w.patch(md, `{"spec":{"template":{"spec":{"infrastructureRef":{"name":"m"}}}}}`)
	w.awaits(md).ShouldNot(HaveKey(annotation.GPUCount))
	w.g.Expect(w.annotations(md)).To(And(HaveKeyWithValue("mine", "x"), HaveKeyWithValue(annotation.CPU, "2"), Not(HaveKey(annotation.GPUType)),
		HaveKeyWithValue(annotation.LegacyGPU, "0"), HaveKeyWithValue(annotation.Labels, HaveSuffix("team=ml,topology.kubernetes.io/region=eu-west-1"))))
}

// FR2.5, FR7.2. A missing template is reported once, and used when it is created. When it
// is deleted, the annotations stay.
func TestTheTemplateIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.usual(region)
	md := w.deployment("md", "t")
	w.create(md)
	missing := ContainSubstring(fmt.Sprintf("Warning FailedUpdate TemplateNotFound: failed to fetch AWSMachineTemplate %s/t", w.namespace))
	w.awaitsEvents("md").Should(ConsistOf(missing))
	w.patch(md, `{"metadata":{"annotations":{"`+annotator.MaxPodsAnnotation+`":"wakes"}}}`)
	w.g.Consistently(func() []string { return w.events("md") }, quiet).Should(ConsistOf(missing), "one Event")
	template := w.template("t", "m5.large")
	w.create(template)
	w.awaits(md).Should(HaveKey(annotation.CPU))
	w.g.Eventually(func() float64 { return w.metric("capstan_annotator_problems") }).Should(BeZero())
	before := w.annotations(md)
	w.gone(template)
	w.g.Eventually(func() float64 {
		return w.metric("capstan_annotator_problems", "word=TemplateNotFound", "kind=MachineDeployment")
	}).Should(Equal(1.0))
	w.g.Expect(w.annotations(md)).To(Equal(before))
}

// A MachineSet of its own is annotated; a MachineDeployment's is Cluster API's.
func TestMachineSets(t *testing.T) {
	t.Parallel()
	eachAge(t, func(w *world) {
		w.start()
		w.usual(region)
		w.create(w.template("t", "m5.large"))
		ref := w.ref(infrastructure, "AWSMachineTemplate", "t")
		md := w.deployment("md", "t")
		w.create(md)
		owned := w.group("MachineSet", "owned", ref)
		yes := true
		owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/" + w.core, Kind: "MachineDeployment", Name: "md", UID: md.GetUID(), Controller: &yes}})
		w.create(owned)
		alone := w.group("MachineSet", "alone", ref)
		w.create(alone)
		w.awaits(alone).Should(equal(m5(region)))
		w.awaits(md).Should(equal(m5(region)))
		w.g.Consistently(func() map[string]string { return w.annotations(owned) }, quiet).Should(BeEmpty())
	})
}

// Pools of all three kinds, in both ages.
func TestMachinePools(t *testing.T) {
	t.Parallel()
	eachAge(t, func(w *world) {
		w.start()
		w.usual(region)
		pool := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
			w.create(object(infrastructure+"/v1beta2", kind, w.namespace, name, spec))
			mp := w.group("MachinePool", name, w.ref(infrastructure, kind, name))
			w.create(mp)
			return mp
		}
		size := func(spec map[string]any) map[string]any {
			spec["minSize"], spec["maxSize"] = int64(0), int64(3)
			return spec
		}
		plain := pool("AWSMachinePool", "plain", size(map[string]any{"awsLaunchTemplate": map[string]any{
			"instanceType": "m5.large", "rootVolume": map[string]any{"size": int64(50)},
		}}))
		w.awaits(plain).Should(And(HaveKeyWithValue(annotation.CPU, "2"), HaveKeyWithValue(annotation.EphemeralDisk, "50Gi")))

		mixed := pool("AWSMachinePool", "mixed", size(map[string]any{
			"awsLaunchTemplate":    map[string]any{"instanceType": "m4.large"},
			"mixedInstancesPolicy": map[string]any{"overrides": []any{map[string]any{"instanceType": "g5.xlarge"}, map[string]any{"instanceType": "m5.large"}}},
		}))
		w.awaits(mixed).Should(And(HaveKeyWithValue(annotation.CPU, "2"), HaveKeyWithValue(annotation.Memory, "8192Mi"), Not(HaveKey(annotation.GPUType)),
			HaveKeyWithValue(annotation.Labels, And(ContainSubstring("kubernetes.io/arch=amd64"), Not(ContainSubstring("instance-type"))))), "the least of them")

		unlike := pool("AWSMachinePool", "unlike", size(map[string]any{
			"awsLaunchTemplate":    map[string]any{},
			"mixedInstancesPolicy": map[string]any{"overrides": []any{map[string]any{"instanceType": "m5.large"}, map[string]any{"instanceType": "c6g.xlarge"}}},
		}))
		w.awaits(unlike).Should(HaveKeyWithValue(annotation.Labels, And(Not(ContainSubstring("arch")), ContainSubstring("kubernetes.io/os=linux"))))
		w.awaitsEvents("unlike").Should(ContainElement("Warning FailedUpdate ConflictingArchitectures: the pool mixes m5.large (amd64) with c6g.xlarge (arm64): the label kubernetes.io/arch is not written"))

		none := pool("AWSMachinePool", "none", size(map[string]any{"awsLaunchTemplate": map[string]any{}}))
		w.awaitsEvents("none").Should(ContainElement("Warning FailedUpdate NoInstanceType: instanceType is empty in AWSMachinePool"))
		w.g.Expect(w.annotations(none)).To(BeEmpty())

		spec, os := map[string]any{"instanceType": "m5.large", "diskSize": int64(80)}, "linux"
		if w.plane == newest { // The oldest's amiTypes know no Windows.
			spec["amiType"], os = "WINDOWS_CORE_2022_x86_64", "windows"
		}
		managed := pool("AWSManagedMachinePool", "managed", spec)
		w.awaits(managed).Should(And(HaveKeyWithValue(annotation.EphemeralDisk, "80Gi"), HaveKeyWithValue(annotation.Labels, ContainSubstring("kubernetes.io/os="+os))))
		// On Bottlerocket, pods use the data volume.
		volumes := func(more map[string]any) map[string]any {
			more["rootVolume"] = map[string]any{"size": int64(8)}
			more["nonRootVolumes"] = []any{map[string]any{"deviceName": "/dev/sdf", "size": int64(500)}, map[string]any{"deviceName": "/dev/xvdb", "size": int64(120)}}
			return more
		}
		rocket := pool("AWSMachinePool", "rocket", size(map[string]any{"awsLaunchTemplate": volumes(map[string]any{"instanceType": "m5.large", "imageLookupBaseOS": "bottlerocket-aws-k8s"})}))
		if w.plane == newest { // The oldest's launch templates have no other volumes.
			w.awaits(rocket).Should(HaveKeyWithValue(annotation.EphemeralDisk, "120Gi"))
		} else {
			w.awaits(rocket).Should(And(HaveKeyWithValue(annotation.CPU, "2"), Not(HaveKey(annotation.EphemeralDisk))))
		}
		unset := pool("AWSMachinePool", "unset", size(map[string]any{"awsLaunchTemplate": map[string]any{
			"instanceType": "m5.large", "imageLookupFormat": "Bottlerocket-{{.K8sVersion}}", "rootVolume": map[string]any{"size": int64(8)},
		}}))
		w.awaits(unset).Should(And(HaveKeyWithValue(annotation.CPU, "2"), Not(HaveKey(annotation.EphemeralDisk))), "its size is not known")
		if w.plane == newest { // And no such amiType.
			managedRocket := pool("AWSManagedMachinePool", "managed-rocket", map[string]any{"amiType": "BOTTLEROCKET_ARM_64", "awsLaunchTemplate": volumes(map[string]any{"instanceType": "c6g.xlarge"})})
			w.awaits(managedRocket).Should(HaveKeyWithValue(annotation.EphemeralDisk, "120Gi"))
		}

		rosa := pool("ROSAMachinePool", "rosa", map[string]any{"instanceType": "m5.large", "nodePoolName": "rosa"})
		w.awaits(rosa).Should(HaveKeyWithValue(annotation.Memory, "8192Mi"))
	})
}

// FR2.6. Groups of other providers are ignored without an Event. Invalid references to Cluster
// API Provider AWS are reported.
func TestReferences(t *testing.T) {
	t.Parallel()
	eachAge(t, func(w *world) {
		w.start()
		w.usual(region)
		for name, ref := range map[string]map[string]any{
			"docker":  w.ref(infrastructure, "DockerMachineTemplate", "x"),
			"foreign": w.ref("infra.example.org", "AWSMachineTemplate", "x"),
			"pool":    w.ref(infrastructure, "AWSMachinePool", "x"),
		} {
			w.create(w.group("MachineDeployment", name, ref))
		}
		for name, ref := range map[string]map[string]any{
			"empty":   {},
			"unnamed": w.ref(infrastructure, "AWSMachineTemplate", ""),
		} {
			group := w.group("MachineDeployment", name, ref)
			if w.plane == newest { // Whose schema lets less through.
				w.g.Expect(apierrors.IsInvalid(w.Create(w.Context(), group))).To(BeTrue(), name)
				continue
			}
			w.create(group)
			w.awaitsEvents(name).Should(ConsistOf("Warning FailedUpdate InvalidReference: infrastructureRef.name is empty"))
		}
		w.awaitsEvents("pool").Should(ConsistOf("Warning FailedUpdate InvalidReference: expected AWSMachineTemplate, got AWSMachinePool"))
		w.g.Expect(w.events("docker")).To(BeEmpty())
		w.g.Expect(w.events("foreign")).To(BeEmpty())
		w.g.Expect(w.written()).To(BeZero())
	})
}

// A paused group, or one of a paused Cluster, is left alone until it is paused no more.
func TestPause(t *testing.T) {
	t.Parallel()
	eachAge(t, func(w *world) {
		cluster := w.capiCluster("AWSCluster", "")
		w.g.Expect(unstructured.SetNestedField(cluster.Object, true, "spec", "paused")).To(Succeed())
		w.create(cluster)
		w.create(w.awsCluster(region))
		w.create(w.template("t", "m5.large"))
		md := w.deployment("md", "t")
		md.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
		w.create(md)
		w.start()
		still := func() {
			w.Helper()
			w.g.Consistently(func() map[string]string { return w.annotations(md) }, quiet).ShouldNot(HaveKey(annotation.CPU))
		}
		still()
		w.patch(md, `{"metadata":{"annotations":{"`+clusterv1.PausedAnnotation+`":null}}}`)
		still()
		w.patch(cluster, `{"spec":{"paused":false}}`)
		w.awaits(md).Should(equal(m5(region)))
		w.g.Expect(w.events("md")).To(BeEmpty())
	})
}

// FR1.4. What is being deleted is left alone.
func TestDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.usual(region)
	md := w.deployment("md", "t")
	md.SetFinalizers([]string{"example.org/hold"})
	w.create(md)
	w.awaitsEvents("md").Should(HaveLen(1))
	w.g.Expect(w.Delete(w.Context(), md)).To(Succeed())
	w.g.Eventually(func() float64 { return w.metric("capstan_annotator_problems") }).Should(BeZero())
	w.create(w.template("t", "m5.large"))
	w.g.Consistently(func() map[string]string { return w.annotations(md) }, quiet).Should(BeEmpty())
	w.patch(md, `{"metadata":{"finalizers":null}}`)
}

// EKS limits the pods of a managed node group without an image of its own, whatever its network
// could have.
func TestMaxPodsOfManagedNodeGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.Pods = capacity.PodsPolicy{Mode: capacity.PodsENI}
	w.start()
	w.usual(region)
	for name, c := range map[string]struct {
		spec map[string]any
		want string
	}{
		"small":  {map[string]any{"instanceType": "c6g.xlarge"}, "58"},
		"big":    {map[string]any{"instanceType": "p4d.24xlarge"}, "250"},
		"custom": {map[string]any{"instanceType": "p4d.24xlarge", "amiType": "CUSTOM"}, "737"},
		"image":  {map[string]any{"instanceType": "p4d.24xlarge", "awsLaunchTemplate": map[string]any{"ami": map[string]any{"id": "ami-1"}}}, "737"},
	} {
		w.create(object(infrastructure+"/v1beta2", "AWSManagedMachinePool", w.namespace, name, c.spec))
		mp := w.group("MachinePool", name, w.ref(infrastructure, "AWSManagedMachinePool", name))
		w.create(mp)
		w.awaits(mp).Should(HaveKeyWithValue(annotation.MaxPods, c.want), name)
	}
}

// How pods are counted is chosen for all, or by a Cluster.
func TestMaxPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.options.Pods = capacity.PodsPolicy{Mode: capacity.PodsFixed, Fixed: 42}
	w.create(w.awsCluster(region))
	cluster := w.capiCluster("AWSCluster", "")
	w.create(cluster)
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	w.create(md)
	w.start()
	w.awaits(md).Should(HaveKeyWithValue(annotation.MaxPods, "42"))
	choose := func(mode string) {
		w.patch(cluster, `{"metadata":{"annotations":{"`+annotator.MaxPodsAnnotation+`":"`+mode+`"}}}`)
	}
	choose("eni")
	w.awaits(md).Should(HaveKeyWithValue(annotation.MaxPods, "29"))
	choose("off")
	w.awaits(md).ShouldNot(HaveKey(annotation.MaxPods))
	choose("many")
	w.awaitsEvents("md").Should(ConsistOf(ContainSubstring(`Warning FailedUpdate InvalidMaxPods: annotation capstan.dev/max-pods of Cluster c: "many"`)))
	w.awaits(md).Should(HaveKeyWithValue(annotation.MaxPods, "42"))
}

// A zone that all nodes are in, and labels that Cluster API takes to nodes.
func TestLabelsOfTheNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.start()
	w.usual(region)
	w.create(w.template("t", "m5.large"))
	md := w.deployment("md", "t")
	w.g.Expect(unstructured.SetNestedField(md.Object, "eu-west-1b", "spec", "template", "spec", "failureDomain")).To(Succeed())
	w.create(md)
	w.awaits(md).Should(HaveKeyWithValue(annotation.Labels,
		"kubernetes.io/arch=amd64,kubernetes.io/os=linux,node-role.kubernetes.io/worker=,node.kubernetes.io/instance-type=m5.large,topology.kubernetes.io/region=eu-west-1,topology.kubernetes.io/zone=eu-west-1b"))
}
