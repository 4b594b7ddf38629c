package instancestate

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// healthOf returns an event of AWS Health for n instances, with an additional text.
func healthOf(n int, text string) EventBridgeEvent {
	entities := make([]string, n)
	for i := range entities {
		entities[i] = fmt.Sprintf(`{"entityValue":"arn:aws:ec2:us-east-1:123456789012:instance/i-%017x","status":"PENDING"}`, i)
	}
	return EventBridgeEvent{ID: "e", Resources: []string{"a", "b"}, Detail: json.RawMessage(
		fmt.Sprintf(`{"service":"EC2","text":%q,"affectedEntities":[%s]}`, text, strings.Join(entities, ",")))}
}

// Each object gets its own part of a large event. The event is decoded once, not once for
// each of thousands of objects.
func TestExcerpts(t *testing.T) {
	g := NewWithT(t)
	const n = 2_500
	e := healthOf(n, "all of it")
	g.Expect(len(e.Detail)).To(BeNumerically(">", 200<<10))
	x := newExcerpts(e)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		got := x.of(fmt.Sprintf("i-%017x", i))
		if !strings.Contains(string(got.Detail), fmt.Sprintf("i-%017x", i)) || len(got.Detail) > 256 || got.Resources != nil {
			t.Fatalf("%d: %s", i, got.Detail)
		}
	}
	runtime.ReadMemStats(&after)
	g.Expect(after.TotalAlloc - before.TotalAlloc).To(BeNumerically("<", 64*len(e.Detail)))
	g.Expect(string(x.of("i-00000000000000001").Detail)).To(MatchJSON(`{"service":"EC2","text":"all of it",
		"affectedEntities":[{"entityValue":"arn:aws:ec2:us-east-1:123456789012:instance/i-00000000000000001","status":"PENDING"}]}`))
	g.Expect(x.of("i-another").Detail).To(BeEmpty())
	g.Expect(newExcerpts(healthOf(1, strings.Repeat("x", maxEvent))).of("i-00000000000000000").Detail).To(BeEmpty())
	small := healthOf(1, "x")
	g.Expect(newExcerpts(small).of("i-00000000000000000").Detail).To(Equal(small.Detail))
}

// The same for an event without entities.
func TestExcerptsOfOthers(t *testing.T) {
	g := NewWithT(t)
	long := json.RawMessage(`{"text":"` + strings.Repeat("x", maxEvent) + `"}`)
	g.Expect(newExcerpts(EventBridgeEvent{ID: "e", Detail: long}).of("i-00000000000000000")).To(Equal(EventBridgeEvent{ID: "e"}))
}
