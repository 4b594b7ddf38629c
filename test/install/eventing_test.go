package install

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
)

// The first EventingBackend of config/samples has no url: it is valid with the flags of each
// installation, and becomes invalid with an empty natsURL.
func TestTheFirstEventingBackendIsValidAsInstalled(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	raw, err := os.ReadFile(path("config", "samples", "eventing.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	first, _, _ := strings.Cut(string(raw), "\n---\n")
	var backend eventingv1.EventingBackend
	g.Expect(yaml.UnmarshalStrict([]byte(first), &backend)).To(Succeed())
	g.Expect(backend.Spec.Type).To(Equal("nats"))

	byDefault, err := chart(t)
	g.Expect(err).NotTo(HaveOccurred())
	without, err := chart(t, "--set", "natsURL=")
	g.Expect(err).NotTo(HaveOccurred())
	for what, given := range map[string]struct {
		text  string
		valid bool
	}{
		"chart": {byDefault, true}, "kustomization": {kustomization(t, "default"), true}, "chart without NATS": {without, false},
	} {
		url := ""
		args, ok := container(t, objects(t, given.text)["Deployment "+hubNamespace+"/capstan-hub"])["args"].([]any)
		g.Expect(ok).To(BeTrue(), what)
		for _, arg := range args {
			if text, isText := arg.(string); isText {
				if value, found := strings.CutPrefix(text, "--nats-url="); found {
					url = value
				}
			}
		}
		_, invalid := schema.NewRegistry(schema.NATS(url)).Resolve(&backend)
		if given.valid {
			g.Expect(invalid).To(BeEmpty(), what)
		} else {
			g.Expect(invalid).To(ContainElement(HaveField("Config", "url")), what)
		}
	}
}
