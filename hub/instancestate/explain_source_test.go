package instancestate_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate"
)

// The patch of a label names the source of the event behind it, and removes the name with that event.
func TestSourceOfTheEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.usual()
	w.events()
	m := w.machine("m", instanceID(1))
	w.create(m)
	w.start()
	source := func() string { return w.getIn(w.Client, m).GetAnnotations()[instancestate.AnnotationSource] }
	w.send("events", stateChange(instanceID(1), "running", 1))
	w.awaits(m).Should(Equal("running"))
	w.g.Expect(source()).To(Equal(w.namespace + "/events"))

	// An older event changes neither.
	w.patch(m, `{"metadata":{"annotations":{"instancestate.capstan.dev/source":"before/it"}}}`)
	w.send("events", stateChange(instanceID(1), "pending", 0))
	w.awaitsEmpty("events")
	w.g.Expect(source()).To(Equal("before/it"))
	w.send("events", stateChange(instanceID(1), "stopping", 2))
	w.awaits(m).Should(Equal("stopping"))
	w.g.Expect(source()).To(Equal(w.namespace + "/events"))
}
