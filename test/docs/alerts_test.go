package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// alertsAt is where runbook_url of each alert leads: docs/alerts.md of the repository.
const alertsAt = "https://github.com/capstan-hub/capstan/blob/main/docs/alerts.md#"

// Each alert has an entry in docs/alerts.md that its annotation leads to, and that names its severity; no entry is of
// an alert that does not exist.
func TestEveryAlertHasARunbook(t *testing.T) {
	g := NewWithT(t)
	raw, err := os.ReadFile(filepath.Join(root, "config/monitoring/prometheus_rule.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert               string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	g.Expect(yaml.Unmarshal(raw, &rule)).To(Succeed())
	page, err := os.ReadFile(filepath.Join(root, "docs/alerts.md"))
	g.Expect(err).NotTo(HaveOccurred())
	entries := map[string]string{}
	for _, part := range strings.Split(string(page), "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		entries[name] = strings.TrimSpace(text)
	}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			g.Expect(r.Annotations).To(And(HaveKey("summary"), HaveKey("description"), HaveKeyWithValue("runbook_url", alertsAt+strings.ToLower(r.Alert))), r.Alert)
			severity := r.Labels["severity"]
			g.Expect(severity).To(BeElementOf("warning", "critical"), r.Alert)
			g.Expect(entries).To(HaveKeyWithValue(r.Alert, HavePrefix(strings.ToUpper(severity[:1])+severity[1:]+". ")), "an entry in docs/alerts.md")
			delete(entries, r.Alert)
		}
	}
	g.Expect(entries).To(BeEmpty(), "docs/alerts.md has entries of no alert")
}
