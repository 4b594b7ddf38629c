package instancestate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

func testEvent(id, account string) string {
	return fmt.Sprintf(`{"version":"0","id":"e","source":%q,"detail-type":%q,"account":%q,"region":%q,"time":"2026-01-10T10:00:00Z","resources":[],"detail":{"id":%q}}`,
		message.TestSource, message.TestDetailType, account, region, id)
}

// A replica that does not lead leaves test events to the leader. The leader records those of any
// account, and those that arrive at the same time one after the other.
func TestTestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newest)
	w.events()
	another := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "hub"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600),
			AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	w.create(another)
	r := w.prepare(true)
	r.run(w)
	last := func() *eventingv1.ReceivedTest {
		status, _ := r.Source(types.NamespacedName{Namespace: w.namespace, Name: "events"})
		return status.Delivery.LastTest
	}
	send := func(bodies ...string) { w.g.Expect(w.sqs.Put(region, "events", bodies...)).To(BeNil()) }
	received := func() int { return w.sqs.Stats(region, "events").Received }
	w.g.Eventually(func() bool {
		_, known := r.Source(types.NamespacedName{Namespace: w.namespace, Name: "events"})
		return known
	}).WithTimeout(30 * time.Second).Should(BeTrue())
	send(testEvent("one", account))
	w.g.Eventually(received).WithTimeout(30*time.Second).Should(BeNumerically(">=", 3), "it is given back")
	w.g.Expect(last()).To(BeNil())
	w.g.Expect(r.manager.Elected()).NotTo(BeClosed())

	w.g.Expect(w.Delete(t.Context(), another)).To(Succeed())
	w.g.Eventually(last).WithTimeout(time.Minute).Should(HaveValue(And(
		HaveField("ID", "one"), HaveField("Account", account), HaveField("Region", region), HaveField("Note", ""))))
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "events") }).Should(BeEmpty())

	before := received()
	send(testEvent("two", "999999999999"))
	w.g.Eventually(last).WithTimeout(30 * time.Second).Should(HaveValue(And(
		HaveField("ID", "two"), HaveField("Note", ContainSubstring("accounts does not list 999999999999")))))
	send(testEvent("three", account))
	w.g.Eventually(last).WithTimeout(30 * time.Second).Should(HaveValue(And(HaveField("ID", "three"), HaveField("Note", ""))))
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "events") }).Should(BeEmpty())
	w.g.Expect(received()-before).To(BeNumerically("<=", 4), "a test that must wait is not received again and again")

	// A sender cannot write just anything into the status.
	send(testEvent(strings.Repeat("x", 65), account), testEvent("", account))
	w.g.Eventually(func() []string { return w.sqs.Bodies(region, "events") }).WithTimeout(30 * time.Second).Should(BeEmpty())
	w.g.Expect(last().ID).To(Equal("three"))
}
