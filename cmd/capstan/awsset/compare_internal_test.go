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
	g.Expect(more(`{"Sid":"Mine","Effect":"Allow","Principal":{"AWS":"999900001111"},"Action":"sqs:SendMessage","Resource":"q"}`)).To(BeEmpty())
	g.Expect(more(`{"Sid":"Mine","Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"q","Condition":{"Bool":{"a":"true"}}}`)).To(BeEmpty())
	for _, principal := range []string{`"Principal":"*"`, `"Principal":{"AWS":"*"}`, `"Principal":{"AWS":["1","*"]}`, `"NotPrincipal":{"AWS":"1"}`} {
		g.Expect(more(`{"Sid":"Open","Effect":"Allow",`+principal+`,"Action":"sqs:*","Resource":"q"}`)).To(Equal([]string{`statement "Open" allows everyone`}), principal)
	}
	g.Expect(more(`{"Sid":"No","Effect":"Deny","Principal":"*","Action":"sqs:SendMessage","Resource":"q"}`)).To(Equal([]string{`statement "No" denies more than the template`}))
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
