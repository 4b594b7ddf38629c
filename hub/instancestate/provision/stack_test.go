package provision_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
)

// stack is a template as CloudFormation would deploy it to an account and region.
type stack struct {
	t               *testing.T
	account, region string
	resources       map[string]map[string]any
	outputs         map[string]any
}

func deploy(t *testing.T, template []byte, account, region string) *stack {
	t.Helper()
	g := NewWithT(t)
	var read struct {
		Version   string                    `yaml:"AWSTemplateFormatVersion"`
		Resources map[string]map[string]any `yaml:"Resources"`
		Outputs   map[string]any            `yaml:"Outputs"`
	}
	g.Expect(yaml.Unmarshal(template, &read)).To(Succeed())
	g.Expect(read.Version).To(Equal("2010-09-09"))
	s := &stack{t: t, account: account, region: region, resources: read.Resources, outputs: read.Outputs}
	for _, r := range read.Resources {
		for _, before := range list(r["DependsOn"]) {
			g.Expect(read.Resources).To(HaveKey(before))
		}
		r["Properties"] = s.resolve(r["Properties"])
	}
	s.outputs = s.resolve(s.outputs).(map[string]any)
	return s
}

// resolve the functions in a value.
func (s *stack) resolve(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, is := v["Fn::Sub"].(string); is {
			return strings.NewReplacer("${AWS::AccountId}", s.account, "${AWS::Region}", s.region, "${AWS::Partition}", "aws").Replace(text)
		}
		if logical, is := v["Ref"].(string); is {
			if logical == "AWS::AccountId" {
				return s.account
			}
			return s.arn(logical) // Of a queue it is the URL, of a policy the ARN: as good as each other here.
		}
		if of, is := v["Fn::GetAtt"].([]any); is {
			NewWithT(s.t).Expect(of).To(HaveLen(2))
			NewWithT(s.t).Expect(of[1]).To(Equal("Arn"))
			return s.arn(of[0].(string))
		}
		resolved := map[string]any{}
		for key, value := range v {
			resolved[key] = s.resolve(value)
		}
		return resolved
	case []any:
		resolved := make([]any, len(v))
		for i, value := range v {
			resolved[i] = s.resolve(value)
		}
		return resolved
	}
	return v
}

// arn of a resource.
func (s *stack) arn(logical string) string {
	r, there := s.resources[logical]
	NewWithT(s.t).Expect(there).To(BeTrue(), "a reference to %s, which is not in the template", logical)
	properties, _ := r["Properties"].(map[string]any)
	switch r["Type"] {
	case "AWS::SQS::Queue":
		return fmt.Sprintf("arn:aws:sqs:%s:%s:%s", s.region, s.account, s.resolve(properties["QueueName"]))
	case "AWS::IAM::Role":
		return fmt.Sprintf("arn:aws:iam::%s:role/%v", s.account, s.resolve(properties["RoleName"]))
	case "AWS::Events::Rule":
		return fmt.Sprintf("arn:aws:events:%s:%s:rule/%s", s.region, s.account, s.resolve(properties["Name"]))
	}
	return fmt.Sprintf("%s of %s/%s", logical, s.account, s.region)
}

func (s *stack) properties(logical string) map[string]any {
	NewWithT(s.t).Expect(s.resources).To(HaveKey(logical))
	return s.resources[logical]["Properties"].(map[string]any)
}

func (s *stack) of(kind string) map[string]map[string]any {
	found := map[string]map[string]any{}
	for logical, r := range s.resources {
		if r["Type"] == kind {
			found[logical] = r["Properties"].(map[string]any)
		}
	}
	return found
}

// statements of a policy, by Sid.
func statements(document any) map[string]map[string]any {
	found := map[string]map[string]any{}
	for _, s := range document.(map[string]any)["Statement"].([]any) {
		found[s.(map[string]any)["Sid"].(string)] = s.(map[string]any)
	}
	return found
}

func list(v any) []string {
	var texts []string
	all, _ := v.([]any)
	for _, one := range all {
		texts = append(texts, one.(string))
	}
	return texts
}

// matches is EventBridge's matching, as far as the patterns have it: every field of the
// pattern has one of the values that are listed for it.
func matches(pattern, event map[string]any) bool {
	for field, wanted := range pattern {
		switch wanted := wanted.(type) {
		case map[string]any:
			inner, is := event[field].(map[string]any)
			if !is || !matches(wanted, inner) {
				return false
			}
		case []any:
			if !among(wanted, event[field]) {
				return false
			}
		default:
			panic(fmt.Sprintf("a pattern with %T", wanted))
		}
	}
	return true
}

func among(wanted []any, got any) bool {
	for _, w := range wanted {
		if w == got {
			return true
		}
	}
	return false
}
