package annotation_test

import (
	"encoding/json"
	"maps"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/annotation"
)

var (
	both = annotation.Families()
	m5   = annotation.Node{VCPU: 2, MemoryMiB: 8192, Labels: labels("amd64", "linux", "m5.large")}
	g5   = annotation.Node{
		VCPU: 4, MemoryMiB: 16384, GPUs: 1, Accelerator: "nvidia.com/gpu", AcceleratorCount: 1, DiskGiB: 100, Pods: 58,
		Labels: labels("amd64", "linux", "g5.xlarge"),
	}
)

func labels(arch, os, kind string) map[string]string {
	return map[string]string{annotation.LabelArch: arch, annotation.LabelOS: os, annotation.LabelInstanceType: kind}
}

// apply plans, applies, and demands that a second pass finds nothing to do.
func apply(g *WithT, current map[string]string, n annotation.Node, families ...annotation.Family) (map[string]string, annotation.Change) {
	if families == nil {
		families = both
	}
	c := annotation.Plan(current, n, families)
	after := c.Apply(current)
	g.Expect(annotation.Plan(after, n, families).Empty()).To(BeTrue(), "a second pass changes %v", annotation.Plan(after, n, families))
	return after, c
}

func without(annotations map[string]string, keys ...string) map[string]string {
	out := maps.Clone(annotations)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

func TestFirstContact(t *testing.T) {
	g := NewWithT(t)
	after, _ := apply(g, nil, g5)
	g.Expect(without(after, annotation.Applied)).To(Equal(map[string]string{
		annotation.CPU: "4", annotation.Memory: "16384Mi", annotation.GPUType: "nvidia.com/gpu", annotation.GPUCount: "1",
		annotation.EphemeralDisk: "100Gi", annotation.MaxPods: "58",
		annotation.Labels:     "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=g5.xlarge",
		annotation.LegacyVCPU: "4", annotation.LegacyMemoryMb: "16384", annotation.LegacyGPU: "1",
	}))
	g.Expect(json.Valid([]byte(after[annotation.Applied]))).To(BeTrue())
}

// The legacy count of GPUs is "0" where there are none; upstream's keys are absent.
func TestNoGPU(t *testing.T) {
	g := NewWithT(t)
	after, _ := apply(g, nil, m5)
	g.Expect(after).To(HaveKeyWithValue(annotation.LegacyGPU, "0"))
	for _, key := range []string{annotation.GPUCount, annotation.GPUType, annotation.MaxPods, annotation.EphemeralDisk} {
		g.Expect(after).NotTo(HaveKey(key))
	}
}

func TestGPUKeysGoWithTheGPU(t *testing.T) {
	g := NewWithT(t)
	after, _ := apply(g, nil, g5)
	after, _ = apply(g, after, m5)
	fresh, _ := apply(g, nil, m5)
	g.Expect(after).To(Equal(fresh))
}

func TestAUsersOwnValueStays(t *testing.T) {
	g := NewWithT(t)
	after, c := apply(g, map[string]string{annotation.Memory: "7Gi", annotation.GPUCount: "9", annotation.GPUType: "x.example/y"}, m5)
	g.Expect(after).To(HaveKeyWithValue(annotation.Memory, "7Gi"))
	g.Expect(c.Kept).To(Equal([]string{annotation.Memory}))
	g.Expect(after).To(HaveKeyWithValue(annotation.GPUCount, "9"), "never ours, so not removed")

	// Later, of ours.
	after[annotation.CPU] = "1"
	after, c = apply(g, after, g5)
	g.Expect(after).To(HaveKeyWithValue(annotation.CPU, "1"))
	g.Expect(c.Kept).To(ContainElement(annotation.CPU))

	// Taken away, it is written again.
	after, _ = apply(g, without(after, annotation.CPU), g5)
	g.Expect(after).To(HaveKeyWithValue(annotation.CPU, "4"))
}

// By the requirements, the first write overwrites any value of the legacy keys. A value that is
// set after that belongs to a user.
func TestLegacyKeysAreOverwrittenOnFirstContact(t *testing.T) {
	g := NewWithT(t)
	after, c := apply(g, map[string]string{annotation.LegacyVCPU: "99", annotation.LegacyGPU: "banana"}, m5)
	g.Expect(after).To(And(HaveKeyWithValue(annotation.LegacyVCPU, "2"), HaveKeyWithValue(annotation.LegacyGPU, "0")))
	g.Expect(c.Malformed).To(BeEmpty())
	after[annotation.LegacyVCPU] = "3"
	after, _ = apply(g, after, g5)
	g.Expect(after).To(HaveKeyWithValue(annotation.LegacyVCPU, "3"))
}

func TestLabelsAreMerged(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"none":                {"", "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m5.large"},
		"unsorted":            {"team=ml,a=b", "a=b,kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m5.large,team=ml"},
		"blanks":              {" a=b , c=d ", "a=b,c=d,kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m5.large"},
		"an = in the value":   {"a=b=c", "a=b=c,kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m5.large"},
		"what is no label":    {"x,,a=b", "a=b,kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m5.large,x"},
		"computed arch wins":  {"kubernetes.io/arch=arm64", "kubernetes.io/arch=amd64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m5.large"},
		"a user's os is kept": {"kubernetes.io/os=windows", "kubernetes.io/arch=amd64,kubernetes.io/os=windows,node.kubernetes.io/instance-type=m5.large"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after, _ := apply(g, map[string]string{annotation.Labels: c.before}, m5)
			g.Expect(after[annotation.Labels]).To(Equal(c.after))
		})
	}
}

// Another family of instances corrects the label that was written for the old one.
func TestArchitectureFollowsTheType(t *testing.T) {
	g := NewWithT(t)
	after, _ := apply(g, map[string]string{annotation.Labels: "team=ml"}, m5)
	arm := m5
	arm.Labels = labels("arm64", "linux", "m6g.large")
	after, _ = apply(g, after, arm)
	g.Expect(after[annotation.Labels]).To(Equal("kubernetes.io/arch=arm64,kubernetes.io/os=linux,node.kubernetes.io/instance-type=m6g.large,team=ml"))
	none := m5
	none.Labels = nil
	after, _ = apply(g, after, none)
	g.Expect(after[annotation.Labels]).To(Equal("team=ml"))
}

func TestAFamilyThatIsTurnedOffGoes(t *testing.T) {
	g := NewWithT(t)
	after, _ := apply(g, nil, m5)
	after, _ = apply(g, after, m5, annotation.Upstream)
	g.Expect(after).NotTo(HaveKey(annotation.LegacyVCPU))
	g.Expect(after).To(HaveKey(annotation.CPU))
	after, _ = apply(g, after, m5, annotation.OpenShift)
	g.Expect(after).NotTo(HaveKey(annotation.CPU))
	g.Expect(after).To(And(HaveKey(annotation.LegacyVCPU), HaveKey(annotation.Labels)))
}

// With a broken record, values that equal the computed ones still count as ours.
func TestALostRecord(t *testing.T) {
	for _, broken := range []string{"{", "[]", `{"values":{"a":1}}`, "null x"} {
		g := NewWithT(t)
		after, _ := apply(g, nil, g5)
		after[annotation.Applied] = broken
		after, _ = apply(g, after, g5)
		after, _ = apply(g, after, m5)
		fresh, _ := apply(g, nil, m5)
		g.Expect(after).To(Equal(fresh), broken)
	}
}

func TestMalformedValues(t *testing.T) {
	for name, c := range map[string]struct{ key, value, says string }{
		"cpu":                    {annotation.CPU, "four", "is not a quantity"},
		"cpu zero":               {annotation.CPU, "0", "is zero"},
		"half a byte of memory":  {annotation.Memory, "500m", "is less than 64Mi"},
		"memory without a unit":  {annotation.Memory, "16384", "is less than 64Mi"},
		"memory of the proposal": {annotation.Memory, "500mb", "is not a quantity"},
		"a count with a unit":    {annotation.GPUCount, "1Gi", "is not a whole number"},
		"a count without a type": {annotation.GPUCount, "1", "has no effect without"},
		"pods":                   {annotation.MaxPods, "-1", "is below zero"},
		"disk":                   {annotation.EphemeralDisk, "lots", "is not a quantity"},
		"a label":                {annotation.Labels, "lonely", "is not a label"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after, change := apply(g, map[string]string{c.key: c.value}, m5)
			g.Expect(change.Malformed).To(HaveLen(1))
			g.Expect(change.Malformed[0].String()).To(And(ContainSubstring(c.key), ContainSubstring(c.value), ContainSubstring(c.says)))
			if c.key != annotation.Labels {
				g.Expect(after).To(HaveKeyWithValue(c.key, c.value), "it is not ours to mend")
			}
		})
	}
}

func TestMergePatchHoldsTheMetadataAlone(t *testing.T) {
	g := NewWithT(t)
	raw, err := annotation.Change{Set: map[string]string{"a": "b"}, Remove: []string{"c"}}.MergePatch("7")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(raw).To(MatchJSON(`{"metadata":{"resourceVersion":"7","annotations":{"a":"b","c":null}}}`))
}

func TestParseFamilies(t *testing.T) {
	g := NewWithT(t)
	g.Expect(annotation.ParseFamilies([]string{"upstream", " openshift", "upstream"})).To(Equal(both))
	for _, wrong := range [][]string{nil, {""}, {"upstream", "both"}} {
		_, err := annotation.ParseFamilies(wrong)
		g.Expect(err).To(MatchError(ContainSubstring("use upstream, openshift or both")))
	}
}

// Must show 3: what is written is read as the node that was meant, by both autoscalers,
// arch and os never empty.
func TestRoundTrip(t *testing.T) {
	for name, n := range map[string]annotation.Node{"m5.large": m5, "g5.xlarge": g5} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			after, _ := apply(g, map[string]string{annotation.Labels: "team=ml,zone"}, n)
			expect := func(got template, err error) {
				t.Helper()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got.cpu).To(Equal(n.VCPU))
				g.Expect(got.memory).To(Equal(n.MemoryMiB << 20))
				g.Expect(got.labels).To(HaveKeyWithValue("team", "ml"))
				for k, v := range n.Labels {
					g.Expect(v).NotTo(BeEmpty())
					g.Expect(got.labels).To(HaveKeyWithValue(k, v))
				}
				devices := map[string]int64{}
				if n.Accelerator != "" {
					devices[n.Accelerator] = n.AcceleratorCount
				}
				g.Expect(got.devices).To(Equal(devices))
			}
			got, err := upstream(after)
			expect(got, err)
			g.Expect(got.disk).To(Equal(n.DiskGiB << 30))
			if n.Pods > 0 {
				g.Expect(got.pods).To(Equal(n.Pods))
			}
			expect(openshift(after))
			expect(openshift(only(after, "machine.openshift.io/"))) // OpenShift's keys alone.
			_, err = upstream(only(after, "machine.openshift.io/"))
			g.Expect(err).To(HaveOccurred(), "the seed's keys alone never reached upstream")
		})
	}
}

// FuzzPlan: for any annotations, a second pass changes nothing, the written values can be read,
// and no value of a user is lost.
func FuzzPlan(f *testing.F) {
	f.Add("team=ml", "", "", "")
	f.Add("a=b=c, d ,=,", "500mb", "1", `{"values":{"capacity.cluster-autoscaler.kubernetes.io/cpu":"4"},"labels":{"a":"b=c"}}`)
	f.Add("kubernetes.io/arch=arm64,kubernetes.io/os=", "4", "x", "{")
	f.Fuzz(func(t *testing.T, labels, cpu, legacy, applied string) {
		g := NewWithT(t)
		before := map[string]string{annotation.Labels: labels, annotation.CPU: cpu, annotation.LegacyGPU: legacy, annotation.Applied: applied}
		after, change := apply(g, before, g5)
		for key := range change.Set {
			g.Expect(annotation.Concerns(key)).To(BeTrue())
		}
		got := map[string]string{}
		readLabels(after[annotation.Labels], got)
		g.Expect(got).To(HaveKeyWithValue("kubernetes.io/arch", "amd64"))
		// An object that was never touched keeps every value but the legacy ones'.
		fresh, _ := apply(g, map[string]string{annotation.Labels: labels, annotation.CPU: cpu}, g5)
		g.Expect(fresh).To(HaveKeyWithValue(annotation.CPU, cpu))
		back, _ := apply(g, after, m5)
		_, err := annotation.Plan(back, m5, both).MergePatch("1")
		g.Expect(err).NotTo(HaveOccurred())
	})
}
