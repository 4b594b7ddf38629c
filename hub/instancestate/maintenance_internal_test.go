package instancestate

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
	"github.com/capstan-hub/capstan/hub/instancestate/owner"
	"github.com/capstan-hub/capstan/internal/capa"
)

const maintained = "i-1234567890abcdef0"

// decodedWork is the work of an event that a queue delivered, with a handler in another process.
func decodedWork(g *WithT, source, detailType, id string, seconds int, detail string) work {
	body := fmt.Sprintf(`{"id":%q,"source":%q,"detail-type":%q,"time":%q,"detail":%s}`,
		id, source, detailType, time.Date(2026, 1, 10, 10, 0, seconds, 0, time.UTC).Format(time.RFC3339), detail)
	m, err := message.Decode([]byte(body), time.Time{})
	g.Expect(err).NotTo(HaveOccurred())
	return work{fact: m.Facts[0], arrival: arrival{event: newExcerpts(m.Event), from: origin{declared: []string{"drainer"}, handlerTimeout: time.Minute}}}
}

func planned(g *WithT, change, status string, seconds int) work {
	return decodedWork(g, "aws.health", "AWS Health Event", fmt.Sprintf("%s-%s-%d", change, status, seconds), seconds, fmt.Sprintf(
		`{"service":"EC2","eventTypeCategory":"scheduledChange","eventTypeCode":"REBOOT","eventArn":%q,"statusCode":%q,"affectedEntities":[{"entityValue":%q}]}`, change, status, maintained))
}

func stateWork(g *WithT, state string, seconds int) work {
	return decodedWork(g, "aws.ec2", "EC2 Instance State-change Notification", state, seconds, fmt.Sprintf(`{"instance-id":%q,"state":%q}`, maintained, state))
}

// metadata is what a patch writes.
type metadata struct {
	Labels, Annotations map[string]*string
}

// write merges works into an object, and returns what is patched.
func write(g *WithT, key owner.Key, at *seen, works ...work) (*change, metadata) {
	c, err := merge(key, *at, works)
	g.Expect(err).NotTo(HaveOccurred())
	if c == nil {
		return nil, metadata{}
	}
	g.Expect(c.declare(*at, time.Date(2026, 1, 10, 11, 0, 0, 0, time.UTC))).To(Succeed())
	raw, err := c.patch(key, *at)
	g.Expect(err).NotTo(HaveOccurred())
	var patched struct{ Metadata metadata }
	g.Expect(json.Unmarshal(raw, &patched)).To(Succeed())
	*at = c.applied(*at, "2")
	return c, patched.Metadata
}

// The end of maintenance removes the label, its event and the declaration of handlers in the same patch as it writes the
// guard; a state that is known is shown instead. What is delivered late changes nothing.
func TestTheEndOfMaintenanceIsPatched(t *testing.T) {
	for _, kind := range labelled() {
		t.Run(kind.Kind, func(t *testing.T) {
			g := NewWithT(t)
			key := owner.Key{Kind: kind, Namespace: "n", Name: "m"}
			at := &seen{}
			open := planned(g, "a", "upcoming", 5)
			c, _ := write(g, key, at, open)
			g.Expect(at.label).To(Equal("scheduled-maintenance"))
			g.Expect(c.ended()).To(BeNil())
			g.Expect(eventID(at.annotations)).To(Equal("a-upcoming-5"))
			g.Expect(at.annotations).To(HaveKey(AnnotationHandlers))

			c, patched := write(g, key, at, planned(g, "a", "closed", 6))
			g.Expect(c.ended()).NotTo(BeNil())
			g.Expect(patched.Labels).To(HaveKeyWithValue(labelOf(key), BeNil()))
			g.Expect(patched.Annotations).To(And(HaveKeyWithValue(AnnotationEvent, BeNil()), HaveKeyWithValue(AnnotationHandlers, BeNil()), HaveKeyWithValue(AnnotationGuard, Not(BeNil()))))
			g.Expect(at.label).To(BeEmpty())
			g.Expect(at.annotations).To(And(HaveKey(AnnotationGuard), Not(HaveKey(AnnotationEvent)), Not(HaveKey(AnnotationHandlers))))
			g.Expect(describeEnd(seen{label: "scheduled-maintenance"}, c, c.ended())).To(Equal(
				"Now without a label (previously scheduled-maintenance): the maintenance of instance " + maintained + " is over; event a-closed-6 of 2026-01-10T10:00:06Z: REBOOT"))

			c, _ = write(g, key, at, open, planned(g, "a", "upcoming", 6), planned(g, "a", "closed", 6))
			g.Expect(c).To(BeNil())

			write(g, key, at, stateWork(g, "running", 8))
			write(g, key, at, planned(g, "a", "upcoming", 9), planned(g, "b", "upcoming", 9))
			c, patched = write(g, key, at, planned(g, "a", "closed", 10))
			g.Expect(patched.Labels).To(HaveKeyWithValue(labelOf(key), HaveValue(Equal("scheduled-maintenance"))), "another one is open")
			g.Expect(eventID(at.annotations)).To(Equal("b-upcoming-9"))
			g.Expect(c.label).To(Equal("scheduled-maintenance"))
			c, _ = write(g, key, at, planned(g, "b", "closed", 11))
			g.Expect(c.ended()).NotTo(BeNil())
			g.Expect(at.label).To(Equal("running"))
			g.Expect(eventID(at.annotations)).To(Equal("running"), "the event of the state is behind the label again")
			g.Expect(at.annotations).NotTo(HaveKey(AnnotationHandlers), "no message waits for it")

			c, _ = write(g, key, at, planned(g, "c", "closed", 12), stateWork(g, "stopping", 13))
			g.Expect(c.ended()).To(BeNil(), "the label shows a new event")
		})
	}
}

// The end comes first: it is remembered, and the beginning that comes late does not bring a label.
func TestTheEndComesFirst(t *testing.T) {
	g := NewWithT(t)
	key, at := owner.Key{Kind: capa.AWSMachine}, &seen{}
	_, patched := write(g, key, at, planned(g, "a", "closed", 6))
	g.Expect(patched.Annotations).To(HaveKeyWithValue(AnnotationGuard, Not(BeNil())))
	c, _ := write(g, key, at, planned(g, "a", "upcoming", 5))
	g.Expect(c).To(BeNil())
	c, _ = write(g, key, &seen{label: "running"}, work{repair: true})
	g.Expect(c).To(BeNil(), "nothing is known of the object: its label is not ours")
}

// An object whose maintenance is over must have no label: one that another client wrote differs, and is removed.
func TestNoLabelIsExpected(t *testing.T) {
	g := NewWithT(t)
	key, at := owner.Key{Kind: capa.AWSMachine, Namespace: "n", Name: "m"}, &seen{}
	object := func(label, polled string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"instanceID": maintained}}}
		u.SetGroupVersionKind(capa.AWSMachine.WithVersion(capa.Version))
		u.SetAnnotations(at.annotations)
		if label != "" {
			u.SetLabels(map[string]string{LabelEC2: label})
		}
		if polled != "" {
			u.Object["status"] = map[string]any{"instanceState": polled}
		}
		return u
	}
	write(g, key, at, planned(g, "a", "upcoming", 5))
	g.Expect(differenceOf(key, object("scheduled-maintenance", "running"))).To(BeZero())
	write(g, key, at, planned(g, "a", "closed", 6))
	g.Expect(differenceOf(key, object("", ""))).To(BeZero())
	g.Expect(differenceOf(key, object("", "running"))).To(BeZero())
	g.Expect(differenceOf(key, object("running", ""))).To(Equal(difference{wrote: "running"}))
	at.label = "running"
	_, patched := write(g, key, at, work{repair: true})
	g.Expect(patched.Labels).To(HaveKeyWithValue(LabelEC2, BeNil()))
	g.Expect(differenceOf(key, object("", "stopped"))).To(Equal(difference{polled: "stopped", instance: maintained}), "an event was lost")
}

// The end of maintenance is not remediated.
func TestTheEndIsNotRemediated(t *testing.T) {
	g := NewWithT(t)
	g.Expect(remediation(planned(g, "a", "upcoming", 5).fact)).To(Equal("scheduled-maintenance"))
	g.Expect(remediation(planned(g, "a", "closed", 5).fact)).To(BeEmpty())
}
