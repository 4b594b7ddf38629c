package instancestate

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// testEvery is the least time between two tests of a source, because each is a write of the
// status. Others are delivered again.
const testEvery = time.Second

// test records a test event of `capstan aws-eventing check` in the status of its source. Only
// the leader writes the status, so a standby releases it. A test of any account is recorded: the
// queue received it. No client waits for an old one.
func (r *Labeler) test(from origin, m message.Message, sent time.Time, received delivery) {
	of := from.of
	switch {
	case of == nil || r.Clock.Since(sent) > keepUnknown:
		r.metrics.ignored.WithLabelValues(from.source, m.Reason).Inc()
		received.Ack()
		return
	case r.sources.get(of.name) != of || !r.leads():
		received.Release(0)
		return
	}
	found := eventingv1.ReceivedTest{ID: m.TestID, Account: m.Event.Account, Region: m.Event.Region}
	if !from.takes(found.Account) {
		found.Note = fmt.Sprintf("accounts does not list %s: other events of this account are not accepted", found.Account)
	}
	if !of.record(found) {
		// A release without a delay would come back at once, until the delays have grown to minutes.
		received.Release(testEvery)
		return
	}
	r.metrics.ignored.WithLabelValues(from.source, m.Reason).Inc()
	of.changed()
	received.Ack()
}

// record sets the last test. It returns false if the one before was received within testEvery.
func (s *source) record(test eventingv1.ReceivedTest) bool {
	now := s.r.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tested != nil && s.tested.ID != test.ID && now.Sub(s.testedAt) < testEvery {
		return false
	}
	test.Received = metav1.NewTime(now.Truncate(time.Second))
	s.tested, s.testedAt = &test, now
	return true
}
