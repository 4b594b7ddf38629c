package policy_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws/policy"
)

const (
	queueARN = "arn:aws:sqs:eu-west-1:111122223333:capstan"
	ruleARN  = "arn:aws:events:eu-west-1:111122223333:rule/capstan-instances"
	roleARN  = "arn:aws:iam::444455556666:role/capstan-events-eu-west-1"
)

var (
	eventBridge = policy.Request{
		Principal: policy.Principal{Service: "events.amazonaws.com"}, Action: "sqs:SendMessage", Resource: queueARN,
		Context: map[string]string{"aws:SourceArn": ruleARN, "aws:SourceAccount": "111122223333", "aws:SecureTransport": "true"},
	}
	member = policy.Request{
		Principal: policy.Principal{ARN: roleARN}, Action: "sqs:SendMessage", Resource: queueARN,
		Context: map[string]string{"aws:PrincipalArn": roleARN, "aws:PrincipalOrgID": "o-a1b2c3d4e5"},
	}
)

// statement of a resource's policy, with an effect, a principal and further elements.
func statement(effect, principal, rest string) string {
	return `{"Version": "2012-10-17", "Statement": [{"Effect": "` + effect + `", "Principal": ` + principal +
		`, "Action": ["sqs:SendMessage"], "Resource": "` + queueARN + `"` + rest + `}]}`
}

func TestEvaluate(t *testing.T) {
	const service, anyone, root = `{"Service": "events.amazonaws.com"}`, `"*"`, `{"AWS": ["arn:aws:iam::444455556666:root"]}`
	condition := func(text string) string { return `, "Condition": ` + text }
	for name, c := range map[string]struct {
		text    string
		request policy.Request
		want    policy.Decision
	}{
		"a service":                             {statement("Allow", service, ""), eventBridge, policy.Allowed},
		"a service is no role":                  {statement("Allow", service, ""), member, policy.Undecided},
		"another service":                       {statement("Allow", `{"Service": "sns.amazonaws.com"}`, ""), eventBridge, policy.Undecided},
		"the root of the account":               {statement("Allow", root, ""), member, policy.Allowed},
		"the id of the account":                 {statement("Allow", `{"AWS": "444455556666"}`, ""), member, policy.Allowed},
		"the role":                              {statement("Allow", `{"AWS": "`+roleARN+`"}`, ""), member, policy.Allowed},
		"the root of another":                   {statement("Allow", `{"AWS": "arn:aws:iam::999900001111:root"}`, ""), member, policy.Undecided},
		"the root is no service":                {statement("Allow", root, ""), eventBridge, policy.Undecided},
		"anyone":                                {statement("Allow", anyone, ""), member, policy.Allowed},
		"anyone of AWS":                         {statement("Allow", `{"AWS": "*"}`, ""), member, policy.Allowed},
		"a source":                              {statement("Allow", service, condition(`{"ArnEquals": {"aws:SourceArn": ["x", "`+ruleARN+`"]}}`)), eventBridge, policy.Allowed},
		"keys have no case":                     {statement("Allow", service, condition(`{"ArnEquals": {"AWS:sourcearn": "`+ruleARN+`"}}`)), eventBridge, policy.Allowed},
		"another source":                        {statement("Allow", service, condition(`{"ArnEquals": {"aws:SourceArn": "`+ruleARN+`2"}}`)), eventBridge, policy.Undecided},
		"all operators must match":              {statement("Allow", service, condition(`{"ArnEquals": {"aws:SourceArn": "`+ruleARN+`"}, "StringEquals": {"aws:SourceAccount": "999900001111"}}`)), eventBridge, policy.Undecided},
		"a pattern of roles":                    {statement("Allow", anyone, condition(`{"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/capstan-events-eu-west-1"}}`)), member, policy.Allowed},
		"a pattern ends at colons":              {statement("Allow", anyone, condition(`{"ArnLike": {"aws:PrincipalArn": "arn:*:role/capstan-events-eu-west-1"}}`)), member, policy.Undecided},
		"a key that is missing":                 {statement("Allow", anyone, condition(`{"StringEquals": {"aws:PrincipalOrgID": "o-a1b2c3d4e5"}}`)), eventBridge, policy.Undecided},
		"an organization":                       {statement("Allow", anyone, condition(`{"StringEquals": {"aws:PrincipalOrgID": "o-a1b2c3d4e5"}}`)), member, policy.Allowed},
		"a boolean":                             {statement("Deny", anyone, condition(`{"Bool": {"aws:SecureTransport": false}}`)), eventBridge, policy.Undecided},
		"a boolean as text":                     {statement("Deny", anyone, condition(`{"Bool": {"aws:SecureTransport": "true"}}`)), eventBridge, policy.Denied},
		"an unknown operator allows nothing":    {statement("Allow", anyone, condition(`{"StringNotEquals": {"aws:SourceAccount": "1"}}`)), eventBridge, policy.Undecided},
		"an unknown operator denies everything": {statement("Deny", anyone, condition(`{"StringNotEquals": {"aws:SourceAccount": "1"}}`)), eventBridge, policy.Denied},
		"a deny has priority": {
			`{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "SQS:*", "Resource": "*"}, {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}]}`,
			eventBridge, policy.Denied,
		},
		"one statement without a list": {`{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "sqs:send*", "Resource": "arn:aws:sqs:*:*:cap?tan"}}`, eventBridge, policy.Allowed},
		"another action":               {`{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "sqs:Receive*", "Resource": "*"}}`, eventBridge, policy.Undecided},
		"another resource":             {`{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "` + queueARN + `-dead"}}`, eventBridge, policy.Undecided},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d, err := policy.Parse(c.text, policy.Resource)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Evaluate(c.request)).To(Equal(c.want))
		})
	}
}

func TestKinds(t *testing.T) {
	g := NewWithT(t)
	identity, err := policy.Parse(`{"Statement": [{"Sid": "a", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "`+queueARN+`"}]}`, policy.Identity)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(identity.Evaluate(member)).To(Equal(policy.Allowed))
	trust, err := policy.Parse(`{"Statement": [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sts:AssumeRole"}]}`, policy.Trust)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(trust.Evaluate(policy.Request{Principal: eventBridge.Principal, Action: "sts:AssumeRole", Resource: roleARN})).To(Equal(policy.Allowed))
	g.Expect(policy.Combine()).To(Equal(policy.Undecided))
	g.Expect(policy.Combine(policy.Denied, policy.Allowed, policy.Undecided)).To(Equal(policy.Denied))
}

// What is not supported is an error that names it.
func TestRefused(t *testing.T) {
	for text, c := range map[string]struct {
		kind policy.Kind
		want string
	}{
		`nonsense`: {policy.Resource, "not valid JSON"},
		`{}`:       {policy.Resource, "Statement"},
		`{"Version": "2020-01-01", "Statement": []}`:                              {policy.Resource, "2020-01-01"},
		`{"Statement": []}`:                                                       {policy.Resource, "no Statement"},
		statement("Maybe", `"*"`, ""):                                             {policy.Resource, "Maybe"},
		statement("Allow", `"someone"`, ""):                                       {policy.Resource, "someone"},
		statement("Allow", `{"Federated": "x"}`, ""):                              {policy.Resource, "Federated"},
		statement("Allow", `"*"`, `, "NotAction": "x"`):                           {policy.Resource, "NotAction"},
		statement("Allow", `"*"`, `, "Condition": {"A": 1}`):                      {policy.Resource, "Condition"},
		statement("Allow", `"*"`, ``):                                             {policy.Identity, "Principal"},
		statement("Deny", `"*"`, ``):                                              {policy.Trust, "Resource"},
		`{"Statement": {"Effect": "Allow", "Action": "a"}}`:                       {policy.Identity, "Resource"},
		`{"Statement": {"Effect": "Allow", "Resource": "a"}}`:                     {policy.Identity, "Action"},
		`{"Statement": {"Effect": "Allow", "Resource": "a", "Action": {"a": 1}}}`: {policy.Identity, "not a text"},
		`{"Statement": {"Effect": "Allow", "Resource": "a", "Action": "b"}}`:      {policy.Resource, "Principal"},
	} {
		_, err := policy.Parse(text, c.kind)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.want)), "%s", text)
	}
}

func TestLike(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"*", "", true}, {"a*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false}, {"?", "", false},
		{"a?c", "abc", true}, {"*a*b*", "xxaxxbxx", true}, {"*ab", "aab", true}, {"abc", "ab", false}, {"[a]", "a", false},
	} {
		NewWithT(t).Expect(policy.Like(c.pattern, c.text)).To(Equal(c.want), "%s %s", c.pattern, c.text)
	}
}
