package ec2

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

//go:embed instance_types.json
var fixtures []byte

// Derived has the expected values for a fixture, computed by hand and by other programs.
type Derived struct {
	CPU           string  `json:"cpu"`
	Memory        string  `json:"memory"`
	LegacyVCPU    string  `json:"machine.openshift.io/vCPU"`
	LegacyMemory  string  `json:"machine.openshift.io/memoryMb"`
	LegacyGPU     string  `json:"machine.openshift.io/GPU(legacySumOfCount)"`
	GPUCount      int64   `json:"gpuCount(logical)"`
	GPUType       *string `json:"gpuType"`
	Architecture  *string `json:"kubeArch"`
	ENIPods       int64   `json:"eniLimitedMaxPods"`
	Neuron        int64   `json:"aws.amazon.com/neuron"`
	NeuronCores   int64   `json:"aws.amazon.com/neuroncore"`
	InstanceStore *int64  `json:"instanceStorageGB"`
}

type file struct {
	InstanceTypes []types.InstanceTypeInfo
	Derived       map[string]Derived `json:"derived"`
}

func read() file {
	var f file
	if err := json.Unmarshal(fixtures, &f); err != nil {
		panic(fmt.Sprintf("playground/aws/ec2: instance_types.json: %v", err)) // The file is embedded in the program.
	}
	return f
}

// Fixtures returns real instance types, as new copies.
func Fixtures() []types.InstanceTypeInfo { return read().InstanceTypes }

// DerivedFixtures returns the expected values for Fixtures, by name.
func DerivedFixtures() map[string]Derived { return read().Derived }

// Fixture returns one of Fixtures.
func Fixture(name string) types.InstanceTypeInfo {
	for _, info := range Fixtures() {
		if string(info.InstanceType) == name {
			return info
		}
	}
	panic(fmt.Sprintf("playground/aws/ec2: instance_types.json has no %s", name))
}

// Many returns n types: the fixtures, and variants of them with other names.
func Many(n int) []types.InstanceTypeInfo {
	originals := Fixtures()
	many := make([]types.InstanceTypeInfo, 0, n)
	for i := range n {
		info := originals[i%len(originals)]
		if round := i / len(originals); round > 0 {
			family, size, _ := strings.Cut(string(info.InstanceType), ".")
			info.InstanceType = types.InstanceType(fmt.Sprintf("%s-v%d.%s", family, round, size))
		}
		many = append(many, info)
	}
	return many
}
