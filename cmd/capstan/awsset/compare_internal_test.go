package awsset

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

func policyOf(g *WithT, text string) any {
	var v any
	g.Expect(json.Unmarshal([]byte(text), &v)).To(Succeed())
	return v
}

// Policies that say the same are the same, however they are written.
func TestPoliciesAreComparedByMeaning(t *testing.T) {
	g := NewWithT(t)
	want := policyOf(g, `{"Version":"2012-10-17","Statement":[{"Sid":"A","Effect":"Allow","Principal":{"AWS":["arn:aws:iam::111122223333:root"]},"Action":["sqs:SendMessage"],"Resource":"q","Condition":{"ArnLike":{"aws:PrincipalArn":"x"}}}]}`)
	target := &Target{Place: provision.Place{Account: "111122223333"}, options: &Options{Template: provision.Options{Members: []string{"444455556666"}, Organization: "o-a1b2c3d4e5"}}}
	differences := func(want any, text string) []string { return differences(want, text, target.ownSenders) }
	const same = `{"Statement":{"Sid":"B","Effect":"Allow","Principal":{"AWS":"111122223333"},"Action":"SQS:SendMessage","Resource":["q"],"Condition":{"ArnLike":{"AWS:PrincipalArn":["x"]}}}}`
	g.Expect(differences(want, same)).To(BeEmpty())
	for text, says := range map[string]string{
		"":                 "there is no policy",
		"no":               "the policy is no JSON",
		`[]`:               "the policy cannot be read",
		`{"Statement":[]}`: "statement A is missing",
		`{"Statement":[{"Sid":"A","Effect":"Deny","Principal":{"AWS":"111122223333"},"Action":"sqs:SendMessage","Resource":"q","Condition":{"ArnLike":{"aws:PrincipalArn":"x"}}}]}`:  "statement A differs: Effect is Deny",
		`{"Statement":[{"Sid":"A","Effect":"Allow","Principal":{"AWS":"444455556666"},"Action":"sqs:SendMessage","Resource":"q","Condition":{"ArnLike":{"aws:PrincipalArn":"y"}}}]}`: "statement A differs: Principal lacks AWS 111122223333; Principal also has AWS 444455556666; Condition lacks ArnLike aws:principalarn x; Condition also has ArnLike aws:principalarn y",
	} {
		g.Expect(differences(want, text)).To(ContainElement(ContainSubstring(says)), text)
	}
	more := func(statement string) []string {
		return differences(want, `{"Statement":[`+same[len(`{"Statement":`):len(same)-1]+","+statement+"]}")
	}
	for rest, accepted := range map[string]bool{
		`"Principal":{"AWS":"111122223333"}`: true,
		`"Principal":{"AWS":["arn:aws:iam::444455556666:role/x","arn:aws:iam::111122223333:user/y"]}`: true,
		`"Principal":{"AWS":"999900001111"}`:                                                                                             false,
		`"Principal":{"AWS":["111122223333","arn:aws:iam::999900001111:role/x"]}`:                                                        false,
		`"Principal":"*","Condition":{"Bool":{"a":"true"}}`:                                                                              false,
		`"Principal":"*","Condition":{"StringEquals":{"aws:PrincipalOrgID":"o-a1b2c3d4e5"}}`:                                             true,
		`"Principal":"*","Condition":{"StringEquals":{"aws:PrincipalOrgID":"o-other00000"}}`:                                             false,
		`"Principal":{"Service":"sns.amazonaws.com"}`:                                                                                    false,
		`"Principal":{"Service":"sns.amazonaws.com"},"Condition":{"ArnEquals":{"aws:SourceArn":"arn:aws:sns:eu-west-1:111122223333:t"}}`: true,
		`"Principal":{"Service":"sns.amazonaws.com"},"Condition":{"ArnLike":{"aws:SourceArn":["arn:aws:sns:eu-west-1:111122223333:t","arn:aws:sns:eu-west-1:999900001111:t"]}}`: false,
		`"Principal":"*","Condition":{"StringNotEquals":{"aws:PrincipalAccount":"111122223333"}}`:                                                                               false,
		`"NotPrincipal":{"AWS":"111122223333"},"Condition":{"Bool":{"a":"true"}}`:                                                                                               false,
	} {
		found := more(`{"Sid":"Mine","Effect":"Allow",` + rest + `,"Action":"sqs:SendMessage","Resource":"q"}`)
		if accepted {
			g.Expect(found).To(BeEmpty(), rest)
		} else {
			g.Expect(found).To(ConsistOf(HavePrefix(`statement "Mine" also allows `)), rest)
		}
	}
	for _, principal := range []string{`"Principal":"*"`, `"Principal":{"AWS":"*"}`, `"Principal":{"AWS":["1","*"]}`, `"NotPrincipal":{"AWS":"1"}`} {
		g.Expect(more(`{"Sid":"Open","Effect":"Allow",`+principal+`,"Action":"sqs:*","Resource":"q"}`)).To(Equal([]string{`statement "Open" allows everyone`}), principal)
	}
	g.Expect(more(`{"Sid":"No","Effect":"Deny","Principal":"*","Action":"sqs:SendMessage","Resource":"q"}`)).To(Equal([]string{`statement "No" denies more than the template`}))
}

// Permissions that are added to a policy are accepted, unless they are for everything. No further
// principal may assume a role.
func TestFurtherPermissions(t *testing.T) {
	g := NewWithT(t)
	none := policyOf(g, `{"Statement":[]}`)
	for statement, says := range map[string][]any{
		`"Action":"sqs:ReceiveMessage","Resource":"other"`:        nil,
		`"Action":["sqs:ReceiveMessage","*"],"Resource":"q"`:      {`statement "Mine" allows the actions *`},
		`"Action":"SQS:*","Resource":"q"`:                         {`statement "Mine" allows the actions sqs:*`},
		`"Action":"sqs:ReceiveMessage","Resource":["q","*"]`:      {`statement "Mine" allows all resources`},
		`"NotAction":"sqs:DeleteQueue","Resource":"q"`:            {`statement "Mine" allows all but NotAction sqs:DeleteQueue`},
		`"Action":"sqs:ReceiveMessage","NotResource":"q"`:         {`statement "Mine" allows all but NotResource q`},
		`"Action":"*","Resource":"q","Condition":{"B":{"a":"b"}}`: {`statement "Mine" allows the actions *`},
	} {
		g.Expect(differences(none, `{"Statement":[{"Sid":"Mine","Effect":"Allow",`+statement+`}]}`, notAll)).To(ConsistOf(says...), statement)
	}
	g.Expect(differences(none, `{"Statement":[{"Sid":"Mine","Effect":"Allow","Principal":{"AWS":"111122223333"},"Action":"sts:AssumeRole"}]}`, noTrust)).
		To(Equal([]string{`statement "Mine" also allows AWS 111122223333 to assume the role`}))
}

func TestPatterns(t *testing.T) {
	g := NewWithT(t)
	want := policyOf(g, `{"source":["a","b"],"detail":{"service":["EC2"]}}`)
	g.Expect(pattern(want, `{"detail":{"service":["EC2"]},"source":["b","a"]}`)).To(BeEmpty())
	g.Expect(pattern(want, `{"source":["a"],"detail":{"service":["EC2","EBS"],"x":["y"]},"account":["1"]}`)).To(ConsistOf(
		`detail.service also has "EBS"`, "the event pattern also has detail.x", `source lacks "b"`, "the event pattern also has account"))
	g.Expect(pattern(want, "")).To(Equal([]string{"the event pattern is no JSON"}))
}

func TestWhichBackendsReadTheQueue(t *testing.T) {
	g := NewWithT(t)
	target := &Target{Place: provision.Place{Partition: "aws", Region: "eu-west-1", Account: "444455556666"}, QueueAccount: "111122223333", options: &Options{}}
	for config, reads := range map[string]bool{
		`[{"role":"source"},{"queueUrl":"https://sqs.eu-west-1.amazonaws.com/111122223333/capstan"}]`:                            true,
		`[{"role":"source"},{"queueUrl":"https://sqs.us-east-1.amazonaws.com/111122223333/capstan"}]`:                            false,
		`[{"role":"source"},{"queueUrl":"https://sqs.eu-west-1.amazonaws.com/444455556666/capstan"}]`:                            false,
		`[{"role":"source"},{"queueUrl":"http://127.0.0.1:4566/111122223333/capstan"},{"region":"eu-west-1"}]`:                   true,
		`[{"role":"source"},{"queueUrl":"https://sqs.eu-west-1.amazonaws.com/111122223333/capstan-dead"}]`:                       false,
		`[{"queueUrl":"https://sqs.eu-west-1.amazonaws.com/111122223333/capstan"}]`:                                              false,
		`[{"role":"source"},{"queueName":"capstan"}]`:                                                                            true,
		`[{"role":"source"},{"queueName":"capstan"},{"region":"us-east-1"}]`:                                                     false,
		`[{"role":"source"},{"queueName":"capstan"},{"region":"eu-west-1"},{"queueOwnerAccountId":"999900001111"}]`:              false,
		`[{"role":"source"},{"queueName":"capstan"},{"roleArn":"arn:aws:iam::999900001111:role/reader"}]`:                        false,
		`[{"role":"source"},{"queueName":"capstan"},{"roleArn":"arn:aws:iam::111122223333:role/reader"},{"region":"eu-west-1"}]`: true,
	} {
		b := &eventingv1.EventingBackend{}
		g.Expect(json.Unmarshal([]byte(config), &b.Spec.Config)).To(Succeed())
		g.Expect(target.Reads(b)).To(Equal(reads), config)
	}
}

// A deletion looks at the queues that the stack has, not at those of the flags.
func TestWhichBackendsReadTheQueueOfAStack(t *testing.T) {
	g := NewWithT(t)
	i := &Inventory{
		Target:    &Target{Place: provision.Place{Region: "eu-west-1", Account: "111122223333"}, QueueAccount: "999900001111", options: &Options{}},
		Resources: []Change{{Type: provision.TypeQueue, Physical: "https://sqs.eu-west-1.amazonaws.com/111122223333/events"}, {Type: provision.TypeRule, Physical: "capstan"}},
	}
	for config, reads := range map[string]bool{
		`[{"role":"source"},{"queueName":"events"}]`:                                                 true,
		`[{"role":"source"},{"queueName":"capstan"}]`:                                                false,
		`[{"role":"source"},{"queueUrl":"https://sqs.eu-west-1.amazonaws.com/111122223333/events"}]`: true,
		`[{"role":"source"},{"queueUrl":"https://sqs.eu-west-1.amazonaws.com/999900001111/events"}]`: false,
	} {
		b := &eventingv1.EventingBackend{}
		g.Expect(json.Unmarshal([]byte(config), &b.Spec.Config)).To(Succeed())
		g.Expect(i.Reads(b)).To(Equal(reads), config)
	}
}

// The hub does not contain the SDKs that could change its resources in AWS.
func TestTheHubHasNoSetUp(t *testing.T) {
	g := NewWithT(t)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/capstan-hub/capstan/hub").Output()
	g.Expect(err).NotTo(HaveOccurred())
	packages := strings.Fields(string(out))
	g.Expect(packages).To(ContainElement("github.com/aws/aws-sdk-go-v2/service/sqs"))
	for _, service := range []string{"cloudformation", "eventbridge", "iam"} {
		g.Expect(packages).NotTo(ContainElement("github.com/aws/aws-sdk-go-v2/service/"+service), service)
	}
	g.Expect(packages).NotTo(ContainElement(HavePrefix("github.com/capstan-hub/capstan/cmd")))
}
