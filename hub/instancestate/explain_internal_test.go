package instancestate

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// The annotation with the source is written with the event behind the label, removed when no queue
// delivered that event, and left as it is when the event stays.
func TestPatchNamesTheSource(t *testing.T) {
	g := NewWithT(t)
	began := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	at := func(source, label string, seconds, rank int) work {
		f := message.Fact{Kind: message.StateChange, ID: label, InstanceID: "i-1", Label: label, Rank: rank, Time: began.Add(time.Duration(seconds) * time.Second)}
		if label == message.LabelRebalance {
			f.Kind = message.Rebalance
		}
		return work{fact: f, arrival: arrival{event: newExcerpts(EventBridgeEvent{ID: label}), from: origin{source: source}}}
	}
	annotations := func(known seen, w work) (map[string]any, seen) {
		c, err := merge(owner.Key{Kind: capa.AWSMachine}, known, []work{w})
		g.Expect(err).NotTo(HaveOccurred())
		raw, err := c.patch(owner.Key{Kind: capa.AWSMachine}, known)
		g.Expect(err).NotTo(HaveOccurred())
		var patch struct {
			Metadata struct {
				Annotations map[string]any `json:"annotations"`
			} `json:"metadata"`
		}
		g.Expect(json.Unmarshal(raw, &patch)).To(Succeed())
		return patch.Metadata.Annotations, c.applied(known, "2")
	}
	a, known := annotations(seen{}, at("ns/one", message.LabelRebalance, 5, 30))
	g.Expect(a).To(HaveKeyWithValue(AnnotationSource, "ns/one"))
	a, known = annotations(known, at("ns/two", "running", 1, 20))
	g.Expect(a).NotTo(HaveKey(AnnotationSource), "the notice stays behind the label")
	a, _ = annotations(known, at("", "stopped", 9, 60))
	g.Expect(a).To(HaveKeyWithValue(AnnotationSource, BeNil()), "a repair has no source")
}
