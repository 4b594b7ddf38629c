package capacity_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
)

// Every real type of the fixtures comes out as it was worked out from the facts.
func TestFixturesGiveTheirDerivedValues(t *testing.T) {
	g := NewWithT(t)
	derived := ec2.DerivedFixtures()
	g.Expect(derived).To(HaveLen(len(ec2.Fixtures())))
	for _, info := range ec2.Fixtures() {
		t.Run(string(info.InstanceType), func(t *testing.T) {
			g := NewWithT(t)
			want, known := derived[string(info.InstanceType)]
			g.Expect(known).To(BeTrue())
			c, err := capacity.FromInstanceTypeInfo(info)
			g.Expect(err).NotTo(HaveOccurred())

			g.Expect(c.InstanceType).To(Equal(string(info.InstanceType)))
			g.Expect(strconv.FormatInt(c.VCPU, 10)).To(Equal(want.CPU))
			g.Expect(strconv.FormatInt(c.VCPU, 10)).To(Equal(want.LegacyVCPU))
			g.Expect(strconv.FormatInt(c.MemoryMiB, 10) + "Mi").To(Equal(want.Memory))
			g.Expect(strconv.FormatInt(c.MemoryMiB, 10)).To(Equal(want.LegacyMemory))
			g.Expect(strconv.FormatInt(c.Accelerator.GPUs(), 10)).To(Equal(want.LegacyGPU))
			g.Expect(c.Architecture).To(Equal(aws.ToString(want.Architecture)))
			g.Expect(c.Pods(capacity.PodsPolicy{Mode: capacity.PodsENI})).To(Equal(want.ENIPods))
			g.Expect(c.InstanceStoreGB).To(Equal(aws.ToInt64(want.InstanceStore)))

			accelerator := capacity.Accelerator{Resource: aws.ToString(want.GPUType), Count: want.GPUCount}
			if want.Neuron > 0 {
				accelerator = capacity.Accelerator{Resource: capacity.AWSNeuron, Count: want.Neuron, NeuronCores: want.NeuronCores}
			}
			g.Expect(c.Accelerator).To(Equal(accelerator))
		})
	}
}

// The rows of reference 3.4 that the fixtures hold, written out.
func TestTypesThatOthersGetWrong(t *testing.T) {
	for _, row := range []struct {
		name         string
		vcpu, memory int64
		accelerator  capacity.Accelerator
		architecture string
		eni, prefix  int64
		bareMetal    bool
	}{
		{name: "t3.micro", vcpu: 2, memory: 1024, architecture: "amd64", eni: 4, prefix: 34},
		{name: "m5.large", vcpu: 2, memory: 8192, architecture: "amd64", eni: 29, prefix: 110},
		{name: "c6g.xlarge", vcpu: 4, memory: 8192, architecture: "arm64", eni: 58, prefix: 110},
		{name: "p3.2xlarge", vcpu: 8, memory: 62464, accelerator: gpu("nvidia.com/gpu", 1), architecture: "amd64", eni: 58, prefix: 58},
		{name: "p4d.24xlarge", vcpu: 96, memory: 1179648, accelerator: gpu("nvidia.com/gpu", 8), architecture: "amd64", eni: 737, prefix: 250},
		{name: "g4ad.xlarge", vcpu: 4, memory: 16384, accelerator: gpu("amd.com/gpu", 1), architecture: "amd64", eni: 8, prefix: 98},
		{name: "dl1.24xlarge", vcpu: 96, memory: 786432, accelerator: gpu("habana.ai/gaudi", 8), architecture: "amd64", eni: 737, prefix: 250},
		{name: "t1.micro", vcpu: 1, memory: 627, architecture: "amd64", eni: 4, prefix: 4},
		{name: "mac1.metal", vcpu: 12, memory: 32768, eni: 234, prefix: 110, bareMetal: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			c, err := capacity.FromInstanceTypeInfo(ec2.Fixture(row.name))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.VCPU).To(Equal(row.vcpu))
			g.Expect(c.MemoryMiB).To(Equal(row.memory))
			g.Expect(c.Accelerator).To(Equal(row.accelerator))
			g.Expect(c.Architecture).To(Equal(row.architecture))
			g.Expect(c.BareMetal).To(Equal(row.bareMetal))
			g.Expect(c.Pods(capacity.PodsPolicy{Mode: capacity.PodsENI})).To(Equal(row.eni))
			g.Expect(c.Pods(capacity.PodsPolicy{Mode: capacity.PodsPrefixDelegation})).To(Equal(row.prefix))
		})
	}
}

func gpu(resource string, n int64) capacity.Accelerator {
	return capacity.Accelerator{Resource: resource, Count: n}
}

// What the fixtures do not hold, in EC2's own shape.
func TestAccelerators(t *testing.T) {
	for name, c := range map[string]struct {
		info string
		want capacity.Accelerator
	}{
		"an eighth of a GPU is one to its pods (g6f.large)": {
			`{"GpuInfo":{"Gpus":[{"Count":0,"LogicalGpuCount":1,"GpuPartitionSize":0.125,"Manufacturer":"NVIDIA","Name":"L4"}]}}`,
			gpu("nvidia.com/gpu", 1),
		},
		"GPUs of one vendor in two lists are one resource": {
			`{"GpuInfo":{"Gpus":[{"Count":2,"Manufacturer":"NVIDIA"},{"Count":0,"LogicalGpuCount":3,"Manufacturer":"nvidia"}]}}`,
			gpu("nvidia.com/gpu", 5),
		},
		"of two vendors the first is told": {
			`{"GpuInfo":{"Gpus":[{"Count":2,"Manufacturer":"AMD"},{"Count":4,"Manufacturer":"NVIDIA"}]}}`,
			gpu("amd.com/gpu", 2),
		},
		"a vendor without a resource name is none": {
			`{"GpuInfo":{"Gpus":[{"Count":1,"Manufacturer":"Acme"}]}}`, capacity.Accelerator{},
		},
		"a GPU of which there are none": {
			`{"GpuInfo":{"Gpus":[{"Count":0,"Manufacturer":"NVIDIA"}]}}`, capacity.Accelerator{},
		},
		"Neuron that is listed twice counts once (inf1.24xlarge)": {
			`{"NeuronInfo":{"NeuronDevices":[{"Count":16,"CoreInfo":{"Count":4,"Version":1},"Name":"Inferentia"}]},
			  "InferenceAcceleratorInfo":{"Accelerators":[{"Count":16,"Manufacturer":"AWS","Name":"Inferentia"}]}}`,
			capacity.Accelerator{Resource: "aws.amazon.com/neuron", Count: 16, NeuronCores: 64},
		},
		"Neuron of Trainium (trn2.48xlarge)": {
			`{"NeuronInfo":{"NeuronDevices":[{"Count":16,"CoreInfo":{"Count":8,"Version":3},"Name":"Trainium2"}]}}`,
			capacity.Accelerator{Resource: "aws.amazon.com/neuron", Count: 16, NeuronCores: 128},
		},
		"Qualcomm's has no resource name (dl2q.24xlarge)": {
			`{"InferenceAcceleratorInfo":{"Accelerators":[{"Count":8,"Manufacturer":"Qualcomm","Name":"AI100"}]}}`,
			capacity.Accelerator{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			info := ec2.Fixture("m5.large")
			g.Expect(json.Unmarshal([]byte(c.info), &info)).To(Succeed())
			got, err := capacity.FromInstanceTypeInfo(info)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Accelerator).To(Equal(c.want))
		})
	}
}

// Only the default network card's interfaces have addresses for pods, wherever in the
// list it stands.
func TestTheDefaultCardCounts(t *testing.T) {
	g := NewWithT(t)
	info := ec2.Fixture("m5.large")
	info.NetworkInfo.MaximumNetworkInterfaces = aws.Int32(60)
	info.NetworkInfo.DefaultNetworkCardIndex = aws.Int32(1)
	info.NetworkInfo.NetworkCards = []types.NetworkCardInfo{
		{NetworkCardIndex: aws.Int32(1), MaximumNetworkInterfaces: aws.Int32(2)},
		{NetworkCardIndex: aws.Int32(0), MaximumNetworkInterfaces: aws.Int32(15)},
	}
	info.NetworkInfo.Ipv4AddressesPerInterface = aws.Int32(50)
	c, err := capacity.FromInstanceTypeInfo(info)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Pods(capacity.PodsPolicy{Mode: capacity.PodsENI})).To(Equal(int64(100)), "as p5.48xlarge")

	info.NetworkInfo.NetworkCards = nil
	c, err = capacity.FromInstanceTypeInfo(info)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Network.Interfaces).To(Equal(int64(60)), "without cards, all that there are")
}

func TestHalfAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*types.InstanceTypeInfo)
		missing []string
		message string
	}{
		"no memory": {
			func(i *types.InstanceTypeInfo) { i.MemoryInfo = nil }, []string{"memory"},
			`EC2 does not report memory of instance type "m5.large"`,
		},
		"no vCPUs": {
			func(i *types.InstanceTypeInfo) { i.VCpuInfo.DefaultVCpus = nil }, []string{"vCPUs"},
			`EC2 does not report vCPUs of instance type "m5.large"`,
		},
		"neither": {
			func(i *types.InstanceTypeInfo) {
				i.VCpuInfo.DefaultVCpus, i.MemoryInfo.SizeInMiB = aws.Int32(0), aws.Int64(-1)
			}, []string{"vCPUs", "memory"},
			`EC2 does not report vCPUs and memory of instance type "m5.large"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			info := ec2.Fixture("m5.large")
			c.change(&info)
			got, err := capacity.FromInstanceTypeInfo(info)
			g.Expect(got).To(BeZero())
			var incomplete *capacity.IncompleteError
			g.Expect(errors.As(err, &incomplete)).To(BeTrue())
			g.Expect(incomplete.Missing).To(Equal(c.missing))
			g.Expect(err).To(MatchError(c.message))
		})
	}
}

func TestPods(t *testing.T) {
	g := NewWithT(t)
	big, err := capacity.FromInstanceTypeInfo(ec2.Fixture("m6i.8xlarge"))
	g.Expect(err).NotTo(HaveOccurred())
	for policy, want := range map[string]int64{"off": 0, "eni": 234, "prefix-delegation": 250, "fixed": 110, "fixed=58": 58} {
		p, err := capacity.ParsePodsPolicy(policy)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(big.Pods(p)).To(Equal(want), policy)
	}
	g.Expect(big.Pods(capacity.PodsPolicy{})).To(BeZero())

	for _, bad := range []string{"", "on", "ENI", "eni=3", "fixed=", "fixed=0", "fixed=-1", "fixed=many", "fixed=99999999999"} {
		_, err := capacity.ParsePodsPolicy(bad)
		g.Expect(err).To(MatchError(ContainSubstring("off, eni, prefix-delegation, fixed or fixed=<number above 0>")), bad)
	}
}

// The bounds of managed node groups, at their edge.
func TestManagedPods(t *testing.T) {
	g := NewWithT(t)
	g.Expect(capacity.Capacity{VCPU: 29}.ManagedPods(737)).To(Equal(int64(110)))
	g.Expect(capacity.Capacity{VCPU: 30}.ManagedPods(737)).To(Equal(int64(250)))
	g.Expect(capacity.Capacity{VCPU: 96}.ManagedPods(29)).To(Equal(int64(29)))
}
