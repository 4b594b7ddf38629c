package hub

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/instancestate"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// The end of maintenance is published as a change of state, with the state that the label shows then.
func TestTheEndOfMaintenanceIsAState(t *testing.T) {
	for name, c := range map[string]struct {
		applied instancestate.Applied
		kind    event.Kind
		state   string
	}{
		"announced":      {instancestate.Applied{Fact: message.Fact{Kind: message.ScheduledChange, Label: "scheduled-maintenance"}, Label: "spot-interruption-stop"}, event.InstanceScheduledChange, "scheduled-maintenance"},
		"over":           {instancestate.Applied{Fact: message.Fact{Kind: message.ScheduledChange, Label: "scheduled-maintenance", Over: true}, Label: "running"}, event.InstanceStateChanged, "running"},
		"over, no label": {instancestate.Applied{Fact: message.Fact{Kind: message.ScheduledChange, Label: "scheduled-maintenance", Over: true}}, event.InstanceStateChanged, ""},
		"a state":        {instancestate.Applied{Fact: message.Fact{Kind: message.StateChange, Label: "running"}, Label: "stopped"}, event.InstanceStateChanged, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(instanceNews(c.applied.Fact)).To(Equal(c.kind))
			g.Expect(stateOf(c.applied)).To(Equal(c.state))
		})
	}
}
