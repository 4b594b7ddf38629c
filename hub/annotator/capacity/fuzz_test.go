package capacity_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
)

// Whatever EC2 answers, a Capacity is either whole and sane or there is none.
func FuzzFromInstanceTypeInfo(f *testing.F) {
	for _, info := range ec2.Fixtures() {
		seed, err := json.Marshal(info)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	for _, odd := range []string{
		`{}`,
		`{"VCpuInfo":{},"MemoryInfo":{},"GpuInfo":{},"NeuronInfo":{},"NetworkInfo":{},"ProcessorInfo":{},"InstanceStorageInfo":{}}`,
		`{"VCpuInfo":{"DefaultVCpus":1},"MemoryInfo":{"SizeInMiB":1},"GpuInfo":{"Gpus":[{}]},"NeuronInfo":{"NeuronDevices":[{}]},"NetworkInfo":{"NetworkCards":[{}]}}`,
		`{"VCpuInfo":{"DefaultVCpus":1},"MemoryInfo":{"SizeInMiB":1},"Hypervisor":"nitro","NetworkInfo":{"MaximumNetworkInterfaces":2147483647,"Ipv4AddressesPerInterface":2147483647}}`,
		`{"VCpuInfo":{"DefaultVCpus":1},"MemoryInfo":{"SizeInMiB":1},"NeuronInfo":{"NeuronDevices":[{"Count":2147483647,"CoreInfo":{"Count":2147483647}},{"Count":2147483647,"CoreInfo":{"Count":2147483647}},{"Count":2147483647,"CoreInfo":{"Count":2147483647}}]}}`,
		`{"VCpuInfo":{"DefaultVCpus":-1},"MemoryInfo":{"SizeInMiB":-1},"InstanceStorageInfo":{"TotalSizeInGB":-1}}`,
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var info types.InstanceTypeInfo
		if json.Unmarshal(data, &info) != nil {
			t.Skip() // EC2's client would not give it.
		}
		c, err := capacity.FromInstanceTypeInfo(info)
		var incomplete *capacity.IncompleteError
		switch {
		case err != nil && (!errors.As(err, &incomplete) || len(incomplete.Missing) == 0 || c != capacity.Capacity{}):
			t.Fatalf("%v with %+v", err, c)
		case err != nil:
			return
		}
		if c.VCPU <= 0 || c.MemoryMiB <= 0 || c.InstanceStoreGB < 0 {
			t.Fatalf("promises nothing: %+v", c)
		}
		a := c.Accelerator
		if (a.Resource == "") != (a.Count == 0) || a.Count < 0 || a.NeuronCores < 0 || a.GPUs() < 0 {
			t.Fatalf("an accelerator that is none: %+v", a)
		}
		if a.NeuronCores > 0 && a.Resource != capacity.AWSNeuron {
			t.Fatalf("cores of no Neuron device: %+v", a)
		}
		eni := c.Pods(capacity.PodsPolicy{Mode: capacity.PodsENI})
		prefix := c.Pods(capacity.PodsPolicy{Mode: capacity.PodsPrefixDelegation})
		if eni < 0 || prefix < 0 || (eni == 0) != (prefix == 0) {
			t.Fatalf("pods: %d by address, %d by prefix: %+v", eni, prefix, c)
		}
		again, err := capacity.FromInstanceTypeInfo(info)
		if err != nil || again != c {
			t.Fatalf("not the same twice: %+v, then %+v (%v)", c, again, err)
		}
	})
}
