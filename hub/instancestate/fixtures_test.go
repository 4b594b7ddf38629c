package instancestate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/playground/controlplane"
)

type fixture struct {
	File         string            `json:"file"`
	InstanceIDs  []string          `json:"instanceIDs"`
	Group        string            `json:"asgName"`
	ExpectLabels map[string]string `json:"expectLabels"`
	Disposition  string            `json:"disposition"`

	body     string
	machines []*unstructured.Unstructured
	pool     *unstructured.Unstructured
}

// Row 1 of the test matrix: each of AWS' sample events, over the wire, results in its label
// and is deleted or dead-lettered as expected. One hub handles all samples at the same time.
// In the samples, most instances and groups have the same name: here each sample has its own.
// (hub/instancestate/message decodes the samples as they are.)
func TestRow1Fixtures(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]*controlplane.Shared{"newest": newest, "oldest": oldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, on)
			w.usual()
			var bodies, dead []string
			all := w.fixtures()
			for _, f := range all {
				bodies = append(bodies, f.body)
				if f.Disposition == "dead-letter" {
					dead = append(dead, f.body)
				}
			}
			w.events()
			w.start()
			w.send("events", bodies...)
			for _, f := range all {
				for _, m := range f.machines {
					w.awaits(m).Should(Equal(f.ExpectLabels[instancestate.LabelEC2]), f.File)
				}
				if f.pool != nil {
					w.awaits(f.pool).Should(Equal(f.ExpectLabels[instancestate.LabelASG]), f.File)
				}
			}
			w.g.Expect(dead).NotTo(BeEmpty())
			w.g.Eventually(func() []string { return w.sqs.Bodies(region, "dead") }).Should(ConsistOf(dead))
			w.awaitsEvents("events").Should(ContainElement(HavePrefix("Warning MalformedMessage")))
			w.awaitsEmpty("events")
			w.g.Expect(w.sqs.Bodies(region, "dead")).To(ConsistOf(dead))
		})
	}
}

// fixtures of the manifest, each with an AWSMachine for each of its instances, or with its
// AWSMachinePool.
func (w *world) fixtures() []*fixture {
	w.Helper()
	all := w.renamed()
	for n, f := range all {
		if f.Group != "" {
			f.pool = w.pool(f.Group, "", f.InstanceIDs...)
			w.create(f.pool)
			continue
		}
		for i, id := range f.InstanceIDs {
			f.machines = append(f.machines, w.machine(fmt.Sprintf("m-%d-%d", n, i), id))
			w.create(f.machines[i])
		}
	}
	return all
}

// renamed returns the fixtures of the manifest, each with instances and a group of its own.
func (w *world) renamed() []*fixture {
	w.Helper()
	folder := filepath.Join("testdata", "aws-events")
	raw, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	w.g.Expect(err).NotTo(HaveOccurred())
	var all []*fixture
	w.g.Expect(json.Unmarshal(raw, &all)).To(Succeed())
	instances := 0
	for n, f := range all {
		raw, err := os.ReadFile(filepath.Join(folder, f.File))
		w.g.Expect(err).NotTo(HaveOccurred())
		f.body = string(raw)
		own := func(old, name string) string {
			w.g.Expect(f.body).To(ContainSubstring(old), f.File)
			f.body = strings.ReplaceAll(f.body, old, name)
			return name
		}
		for i, id := range f.InstanceIDs {
			f.InstanceIDs[i] = own(id, instanceID(instances))
			instances++
		}
		if f.Group != "" {
			f.Group = own(f.Group, fmt.Sprintf("%s-%d", f.Group, n))
		}
	}
	return all
}
