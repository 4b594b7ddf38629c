package instancestate

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

// A message that waits for a handler is deleted when its object was deleted. It is released when
// the object is only not followed any more, and then its event does not count as processed.
func TestForgottenObjects(t *testing.T) {
	key := owner.Key{Kind: capa.AWSMachine, Namespace: "a", Name: "m"}
	for what, processed := range map[outcome]bool{acknowledged: true, released: false} { //nolint:exhaustive // A failed one is not forgotten.
		g := NewWithT(t)
		var h handlers
		h.add("drainer", func(Woken) {})
		var got []outcome
		h.await(key, "e-1", func(o outcome) { got = append(got, o) })
		g.Expect(got).To(BeEmpty(), "the report is missing")
		h.supersede(key, "", what)
		g.Expect(got).To(Equal([]outcome{what}))
		g.Expect(h.processed("e-1")).To(Equal(processed))
		h.report("drainer", key, "e-1")
		g.Expect(got).To(HaveLen(1), "a late report settles nothing again")
	}
}
