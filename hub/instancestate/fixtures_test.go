package instancestate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
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
}

// Row 1 of the test matrix: each of AWS' sample events, over the wire, results in its label
// and is deleted or dead-lettered as expected.
func TestRow1Fixtures(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("testdata", "aws-events")
	raw, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var all []fixture
	NewWithT(t).Expect(json.Unmarshal(raw, &all)).To(Succeed())
	for name, on := range map[string]*controlplane.Shared{"newest": newest, "oldest": oldest} {
		for _, f := range all {
			t.Run(name+"/"+f.File, func(t *testing.T) {
				t.Parallel()
				body, err := os.ReadFile(filepath.Join(folder, f.File))
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				f.run(t, on, string(body))
			})
		}
	}
}

func (f fixture) run(t *testing.T, on *controlplane.Shared, body string) {
	w := newWorld(t, on)
	w.usual()
	var machines []*unstructured.Unstructured
	for i, id := range f.InstanceIDs {
		if f.Group == "" {
			machines = append(machines, w.machine(string(rune('a'+i)), id))
			w.create(machines[i])
		}
	}
	var pool *unstructured.Unstructured
	if f.Group != "" {
		pool = w.pool(f.Group, "", f.InstanceIDs...)
		w.create(pool)
	}
	w.events()
	w.start()
	w.send("events", body)
	for _, m := range machines {
		w.awaits(m).Should(Equal(f.ExpectLabels[instancestate.LabelEC2]))
	}
	if pool != nil {
		w.awaits(pool).Should(Equal(f.ExpectLabels[instancestate.LabelASG]))
	}
	if f.Disposition == "dead-letter" {
		w.g.Eventually(func() []string { return w.sqs.Bodies(region, "dead") }).Should(Equal([]string{body}))
		w.awaitsEvents("events").Should(ContainElement(HavePrefix("Warning MalformedMessage")))
	}
	w.awaitsEmpty("events")
	if f.Disposition != "dead-letter" {
		w.g.Expect(w.sqs.Bodies(region, "dead")).To(BeEmpty())
	}
}
