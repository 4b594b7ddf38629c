package provision_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// A Set has the resources of the printed template, resolved as the test's own reader does it.
func TestSetIsThePrintedTemplate(t *testing.T) {
	g := NewWithT(t)
	at := provision.Place{Partition: "aws", Region: region, Account: hubAccount}
	hub, err := provision.HubSet(provision.Options{Members: []string{"777788889999", member}, AssumedBy: hubRole, ExternalID: "capstan"}, at,
		map[string]string{provision.LogicalConsumerRole: "capstan-ConsumerRole-1", provision.LogicalConsumerPolicy: "arn:of:policy"})
	g.Expect(err).NotTo(HaveOccurred())
	printed := deploy(t, made(t, "hub-members"), hubAccount, region)
	g.Expect(hub.Resources).To(HaveLen(len(printed.resources)))
	for _, logical := range []string{"QueuePolicy", "DeadLetterQueuePolicy"} {
		g.Expect(hub.Resources[logical].Properties["PolicyDocument"]).To(Equal(printed.properties(logical)["PolicyDocument"]))
	}
	for _, rule := range hub.Of(provision.TypeRule) {
		g.Expect(rule.Properties).To(Equal(printed.properties(rule.Logical)))
	}
	g.Expect(hub.Resources["Queue"].Name).To(Equal("capstan"))
	g.Expect(hub.Resources["ConsumerRole"].Properties["ManagedPolicyArns"]).To(Equal([]any{"arn:of:policy"}))
	g.Expect(hub.ARN(hub.Resources["ConsumerRole"])).To(Equal("arn:aws:iam::" + hubAccount + ":role/capstan-ConsumerRole-1"))

	at.Account = member
	set, err := provision.MemberSet(provision.Options{}, hubAccount, at)
	g.Expect(err).NotTo(HaveOccurred())
	printed = deploy(t, made(t, "member"), member, region)
	g.Expect(set.Resources["EventsRole"].Properties).To(Equal(printed.properties("EventsRole")))
	g.Expect(set.ARN(set.Resources["EventsRole"])).To(Equal(printed.arn("EventsRole")))

	_, err = provision.HubSet(provision.Options{Name: "?"}, at, nil)
	g.Expect(err).To(MatchError(provision.ErrInvalid))
}
