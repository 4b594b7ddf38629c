package message_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// A test event is ignored for labels. Its id is kept only in a form that may be in a status.
func TestTestEvent(t *testing.T) {
	for _, tc := range []struct{ detail, account, region, id string }{
		{`{"id":"abc-1"}`, "111122223333", "eu-west-1", "abc-1"},
		{`{"id":"abc-1"}`, "1111", "eu-west-1", ""},
		{`{"id":"abc-1"}`, "111122223333", "eu west", ""},
		{`{"id":"a b"}`, "111122223333", "eu-west-1", ""},
		{`{"id":"` + strings.Repeat("a", 65) + `"}`, "111122223333", "eu-west-1", ""},
		{`{"id":7}`, "111122223333", "eu-west-1", ""},
		{`{}`, "111122223333", "eu-west-1", ""},
	} {
		g := NewWithT(t)
		m, err := message.Decode(fmt.Appendf(nil, `{"source":%q,"detail-type":%q,"account":%q,"region":%q,"detail":%s}`,
			message.TestSource, message.TestDetailType, tc.account, tc.region, tc.detail), sent)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.Disposition).To(Equal(message.Ignore))
		g.Expect(m.Reason).To(Equal("test"))
		g.Expect(m.Kind).To(Equal(message.CapstanTest))
		g.Expect(m.TestID).To(Equal(tc.id), tc.detail)
	}
	g := NewWithT(t)
	m, err := message.Decode(fmt.Appendf(nil, `{"source":%q,"detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-00000000000000001","state":"terminated"}}`, message.TestSource), sent)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.Disposition).To(Equal(message.Ignore), "PutEvents cannot send an event of AWS by this source")
	g.Expect(m.Facts).To(BeEmpty())
}
