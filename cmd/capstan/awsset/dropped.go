package awsset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"go.yaml.in/yaml/v3"
)

// deployed are the options that can be seen in a template.
type deployed struct {
	Resources map[string]struct {
		Properties struct {
			QueueName      string   `yaml:"QueueName"`
			Roles          []string `yaml:"Roles"`
			PolicyDocument struct {
				Statement []struct {
					Sid       string         `yaml:"Sid"`
					Principal any            `yaml:"Principal"`
					Condition map[string]any `yaml:"Condition"`
				} `yaml:"Statement"`
			} `yaml:"PolicyDocument"`
		} `yaml:"Properties"`
	} `yaml:"Resources"`
}

// dropped warns of options that the deployed template has and the new one has not. A template that
// this program did not write has no warnings.
func (t *Target) dropped(ctx context.Context, template string) ([]string, error) {
	out, err := t.stacks.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: aws.String(t.options.stack())})
	if err != nil {
		return nil, t.failed(err, "cloudformation:GetTemplate", t.options.stack())
	}
	var before, after deployed
	if yaml.Unmarshal([]byte(aws.ToString(out.TemplateBody)), &before) != nil || yaml.Unmarshal([]byte(template), &after) != nil {
		return nil, nil //nolint:nilerr // Another program wrote it; the changes show what becomes of it.
	}
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if was, is := before.queue(), after.queue(); was != is && was != "" {
		warn("the queue %s is replaced by %s, and its messages are lost: is --name=%s missing?", was, is, was)
	}
	for _, role := range without(before.roles(), after.roles()) {
		warn("role %s loses the permissions of a consumer: is --hub-role=%s missing?", role, role)
	}
	if before.has("ConsumerRole") && !after.has("ConsumerRole") {
		warn("the role that the hub of another account assumes is removed: is --assumed-by missing?")
	}
	if lost := without(before.senders(), after.senders()); len(lost) > 0 {
		warn("these may not send to the queue any more: %s: are they missing in --members or --organization?", strings.Join(lost, ", "))
	}
	return warnings, nil
}

func (d deployed) has(logical string) bool { _, is := d.Resources[logical]; return is }

func (d deployed) queue() string { return d.Resources["Queue"].Properties.QueueName }

func (d deployed) roles() []string { return d.Resources["ConsumerPolicy"].Properties.Roles }

// senders returns the accounts and the organization that may send to the queue.
func (d deployed) senders() []string {
	var all []string
	for _, s := range d.Resources["QueuePolicy"].Properties.PolicyDocument.Statement {
		if s.Sid != "RulesOfMembers" {
			continue
		}
		if equals, is := s.Condition["StringEquals"].(map[string]any); is {
			all = append(all, "organization "+fmt.Sprint(equals["aws:PrincipalOrgID"]))
			continue
		}
		principal, _ := s.Principal.(map[string]any)
		roots, _ := principal["AWS"].([]any)
		for _, root := range roots {
			function, _ := root.(map[string]any)
			arn := strings.Split(fmt.Sprint(function["Fn::Sub"]), ":")
			const account = 5 // After the two colons of ${AWS::Partition} one more than in an ARN.
			if i := slices.IndexFunc(arn, accountIDs.MatchString); i >= account-1 {
				all = append(all, arn[i])
			}
		}
	}
	return all
}
