package capacity

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Resource names of accelerators, as the vendors' device plugins use them.
const (
	NvidiaGPU   = "nvidia.com/gpu"
	AMDGPU      = "amd.com/gpu"
	HabanaGaudi = "habana.ai/gaudi"
	AWSNeuron   = "aws.amazon.com/neuron"
)

// vendors maps the manufacturers of GPUs, in lower case, to resource names. EC2 lists the
// accelerators of Habana as GPUs.
var vendors = map[string]string{
	"nvidia": NvidiaGPU,
	"amd":    AMDGPU,
	"habana": HabanaGaudi,
}

// Accelerator describes the accelerator devices of a node.
type Accelerator struct {
	// Resource is the extended resource that pods request; empty when there is none.
	Resource string
	// Count is the number of devices that pods can use. A part of a shared GPU counts as one.
	Count int64
	// NeuronCores of all Neuron devices together, the resource
	// aws.amazon.com/neuroncore; 0 for GPUs.
	NeuronCores int64
}

// GPUs returns how many of the devices are GPUs: all except Neuron devices.
func (a Accelerator) GPUs() int64 {
	if a.Resource == AWSNeuron {
		return 0
	}
	return a.Count
}

// accelerator returns the accelerators of a type. It does not read inference accelerators: EC2
// lists the Neuron devices of Inferentia there a second time.
func accelerator(gpus *types.GpuInfo, neuron *types.NeuronInfo) Accelerator {
	var a Accelerator
	if gpus != nil {
		for _, d := range gpus.Gpus {
			resource, count := vendors[strings.ToLower(aws.ToString(d.Manufacturer))], gpuCount(d)
			if resource == "" || count == 0 || a.Resource != "" && a.Resource != resource {
				continue
			}
			a.Resource = resource
			a.Count += count
		}
	}
	if a.Resource != "" || neuron == nil {
		return a
	}
	for _, d := range neuron.NeuronDevices {
		count := number(d.Count)
		if count == 0 {
			continue
		}
		a.Resource = AWSNeuron
		a.Count += count
		if d.CoreInfo != nil {
			a.NeuronCores += count * number(d.CoreInfo.Count)
		}
	}
	return a
}

// gpuCount returns the number of GPUs that a node's device plugin finds. A type with a fraction of a GPU
// (g6f, gr6f) has a Count of 0 and a LogicalGpuCount of 1; types that were retired
// early have no LogicalGpuCount.
func gpuCount(d types.GpuDeviceInfo) int64 {
	if logical := number(d.LogicalGpuCount); logical > 0 {
		return logical
	}
	return number(d.Count)
}
