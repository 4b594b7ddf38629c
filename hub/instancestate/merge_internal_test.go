package instancestate

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// TestOnlyNewFactsAreMerged: a fact that is older than the label, or known, is written nowhere,
// so it is not published as applied, either.
func TestOnlyNewFactsAreMerged(t *testing.T) {
	g := NewWithT(t)
	began := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	at := func(id, label string, seconds int) work {
		f := message.Fact{Kind: message.StateChange, ID: id, InstanceID: "i-1", Label: label, Time: began.Add(time.Duration(seconds) * time.Second)}
		return work{fact: f, arrival: arrival{event: newExcerpts(EventBridgeEvent{ID: id})}}
	}
	ids := func(works []work) (all []string) {
		for _, w := range works {
			all = append(all, w.fact.ID)
		}
		return all
	}
	stopped, running, pending := at("c", "stopped", 20), at("b", "running", 10), at("a", "pending", 0)
	c, err := merge(owner.Key{Kind: capa.AWSMachine}, seen{}, []work{running, pending, stopped, stopped, {repair: true}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.label).To(Equal("stopped"))
	g.Expect(ids(c.merged)).To(Equal([]string{"b", "c"}))
	c, err = merge(owner.Key{Kind: capa.AWSMachine}, seen{label: "stopped", annotations: map[string]string{AnnotationGuard: c.guard}}, []work{running, pending})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c).To(BeNil())
}
