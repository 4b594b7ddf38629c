package message

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// docs/instance-state.md describes every label value.
func TestDocumentHasEveryLabel(t *testing.T) {
	g := NewWithT(t)
	raw, err := os.ReadFile("../../../docs/instance-state.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, after, _ := strings.Cut(string(raw), "\n## The labels\n")
	labels, _, _ := strings.Cut(after, "\n## ")
	instances, groups, found := strings.Cut(labels, "`asg-instance-state` on")
	g.Expect(found).To(BeTrue())
	for _, action := range []string{"terminate", "stop", "hibernate"} {
		g.Expect(instances).To(ContainSubstring("`" + labelSpot + action + "`"))
	}
	for _, label := range []string{LabelRebalance, LabelReservation, LabelMaintenance} {
		g.Expect(instances).To(ContainSubstring("`" + label + "`"))
	}
	for label := range stateRanks {
		g.Expect(instances).To(ContainSubstring("`" + label + "`"))
	}
	for label := range groupRanks {
		g.Expect(groups).To(ContainSubstring("`" + label + "`"))
	}
	for _, types := range EventTypes() {
		for _, detailType := range types {
			if !strings.Contains(detailType, "Lifecycle Action") && !strings.HasSuffix(detailType, "Unsuccessful") {
				g.Expect(labels).To(ContainSubstring(detailType))
			}
		}
	}
}
