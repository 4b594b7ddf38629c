package instancestate

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/owner"
)

func declaration(event string, until time.Time, names ...string) map[string]string {
	raw, err := json.Marshal(Declaration{Event: event, Handlers: names, Until: until})
	if err != nil {
		panic(err)
	}
	return map[string]string{AnnotationEvent: `{"id":"` + event + `"}`, AnnotationHandlers: string(raw)}
}

// Which handlers are awaited follows from the annotations of the object and from the source alone.
func TestMissingReports(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	until := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	missing := func(at map[string]string, of ...string) []string { return declarationOf(at).missing(at, of) }
	at := declaration("e", until, "dns", "drainer", "dns")
	g.Expect(missing(at, "dns", "drainer")).To(Equal([]string{"dns", "drainer"}))
	g.Expect(missing(at, "drainer")).To(Equal([]string{"drainer"}), "the other one was removed from the source")
	g.Expect(missing(at, "other")).To(BeEmpty(), "it was added after the label")
	g.Expect(missing(at)).To(BeEmpty())
	at[AnnotationProcessed("dns")] = "an older one"
	g.Expect(missing(at, "dns", "drainer")).To(HaveLen(2))
	at[AnnotationProcessed("dns")] = "e"
	g.Expect(missing(at, "dns", "drainer")).To(Equal([]string{"drainer"}))
	at[AnnotationProcessed("drainer")] = "e"
	g.Expect(missing(at, "dns", "drainer")).To(BeEmpty())
	for name, none := range map[string]map[string]string{
		"no annotation": {AnnotationEvent: `{"id":"e"}`},
		"not JSON":      {AnnotationEvent: `{"id":"e"}`, AnnotationHandlers: "dns"},
		"another event": {AnnotationEvent: `{"id":"f"}`, AnnotationHandlers: declaration("e", until, "dns")[AnnotationHandlers]},
	} {
		g.Expect(missing(none, "dns")).To(BeEmpty(), name)
	}
}

// The metric counts the objects that wait for a handler that a source declares, until its time is over.
func TestUndone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	now := time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)
	var u undone
	one, two := owner.Key{Name: "one"}, owner.Key{Name: "two"}
	u.observe(one, declaration("e", now.Add(time.Minute), "dns", "drainer"))
	u.observe(two, declaration("f", now.Add(time.Hour), "dns", "forged"))
	handlers := []string{"dns", "drainer"}
	g.Expect(u.waiting(handlers, now)).To(Equal(map[string]int{"dns": 2, "drainer": 1}))
	g.Expect(u.waiting(handlers, now.Add(time.Minute))).To(Equal(map[string]int{"dns": 1, "drainer": 0}))
	reported := declaration("e", now.Add(time.Minute), "dns")
	reported[AnnotationProcessed("dns")] = "e"
	u.observe(one, reported)
	u.observe(two, nil)
	g.Expect(u.waiting(handlers, now)).To(Equal(map[string]int{"dns": 0, "drainer": 0}))
	g.Expect(u.lockedObjects).To(BeEmpty())
}
