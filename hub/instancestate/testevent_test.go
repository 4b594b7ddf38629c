package instancestate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

func testEvent(id, account string) string {
	return fmt.Sprintf(`{"version":"0","id":"e","source":%q,"detail-type":%q,"account":%q,"region":%q,"time":"2026-01-10T10:00:00Z","resources":[],"detail":{"id":%q}}`,
		message.TestSource, message.TestDetailType, account, region, id)
}

// The leader records a test event of any account; a standby leaves it to the leader. Tests that
// arrive at the same time are recorded one after the other.
func TestTestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.events()
	name := types.NamespacedName{Namespace: w.namespace, Name: "events"}
	leader := w.prepare(true)
	leader.run(w)
	<-leader.manager.Elected()
	standby := w.prepare(true)
	standby.run(w)
	last := func(r *replica) func() *eventingv1.ReceivedTest {
		return func() *eventingv1.ReceivedTest {
			status, _ := r.Source(name)
			return status.Delivery.LastTest
		}
	}
	w.g.Expect(w.sqs.Put(region, "events", testEvent("one", account))).To(BeNil())
	w.g.Eventually(last(leader)).WithTimeout(30 * time.Second).Should(HaveValue(And(
		HaveField("ID", "one"), HaveField("Account", account), HaveField("Region", region), HaveField("Note", ""))))
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "events") }).Should(BeEmpty())

	w.g.Expect(w.sqs.Put(region, "events", testEvent("two", "999999999999"))).To(BeNil())
	w.g.Eventually(last(leader)).WithTimeout(30 * time.Second).Should(HaveValue(And(
		HaveField("ID", "two"), HaveField("Note", ContainSubstring("accounts does not list 999999999999")))))
	w.g.Expect(w.sqs.Put(region, "events", testEvent("three", account))).To(BeNil())
	w.g.Eventually(last(leader)).WithTimeout(30 * time.Second).Should(HaveValue(And(HaveField("ID", "three"), HaveField("Note", ""))))
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "events") }).WithTimeout(30 * time.Second).Should(BeEmpty())
	w.g.Expect(last(standby)()).To(BeNil())

	// A sender cannot write just anything into the status.
	w.g.Expect(w.sqs.Put(region, "events", testEvent(strings.Repeat("x", 65), account), testEvent("", account))).To(BeNil())
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "events") }).WithTimeout(30 * time.Second).Should(BeEmpty())
	w.g.Expect(last(leader)().ID).To(Equal("three"))
}
