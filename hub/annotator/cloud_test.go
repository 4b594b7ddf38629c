package annotator_test

import (
	"context"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
)

type cloud struct {
	mu  sync.Mutex
	f   []func(string)
	err error
}

func newCloud(t *testing.T) *cloud { return &cloud{} }

func (c *cloud) catalogue(manager.Manager) catalogue.Catalogue { return c }
func (c *cloud) Notify(f func(string))                          { c.f = append(c.f, f) }
func (c *cloud) Get(_ context.Context, q catalogue.Query) (catalogue.Answer, error) {
	switch q.InstanceType {
	case "m5.large":
		return catalogue.Answer{Capacity: capacity.Capacity{InstanceType: "m5.large", VCPU: 2, MemoryMiB: 8192, Architecture: "amd64"}}, nil
	case "g5.xlarge":
		return catalogue.Answer{Capacity: capacity.Capacity{InstanceType: "g5.xlarge", VCPU: 4, MemoryMiB: 16384, Architecture: "amd64", Accelerator: capacity.Accelerator{Resource: "nvidia.com/gpu", Count: 1}}}, nil
	}
	return catalogue.Answer{}, &catalogue.Error{Class: catalogue.ErrInstanceTypeUnknown, Query: q}
}
