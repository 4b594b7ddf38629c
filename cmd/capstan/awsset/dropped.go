package awsset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"go.yaml.in/yaml/v3"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// document is a policy.
type document struct {
	Statement []struct {
		Sid       string         `yaml:"Sid"`
		Principal any            `yaml:"Principal"`
		Condition map[string]any `yaml:"Condition"`
	} `yaml:"Statement"`
}

// deployed are the options that can be seen in a template.
type deployed struct {
	Resources map[string]struct {
		Properties struct {
			QueueName                string   `yaml:"QueueName"`
			Roles                    []string `yaml:"Roles"`
			PolicyDocument           document `yaml:"PolicyDocument"`
			AssumeRolePolicyDocument document `yaml:"AssumeRolePolicyDocument"`
		} `yaml:"Properties"`
	} `yaml:"Resources"`
}

// deployed returns the template of a stack. Errors: of class ErrStack if the stack is not one of
// Capstan, or a Failure.
func (t *Target) deployed(ctx context.Context, id string) (string, error) {
	out, err := t.stacks.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: &id})
	if err != nil {
		return "", t.failed(err, "cloudformation:GetTemplate", t.options.stack())
	}
	template := aws.ToString(out.TemplateBody)
	set, err := t.set(nil)
	if err != nil {
		return "", err
	}
	var read struct {
		Resources map[string]struct {
			Type string `yaml:"Type"`
		} `yaml:"Resources"`
	}
	if err := yaml.Unmarshal([]byte(template), &read); err != nil {
		read.Resources = nil
	}
	// Each template of Capstan has queues and rules by these logical names.
	for _, kind := range []string{provision.TypeQueue, provision.TypeRule} {
		if !slices.ContainsFunc(set.Of(kind), func(r provision.Resource) bool { return read.Resources[r.Logical].Type == kind }) {
			return "", fmt.Errorf("%w: stack %s in %s is not one of Capstan: its template has no %s of Capstan's template; name Capstan's stack with --stack-name", ErrStack, t.options.stack(), t, kind)
		}
	}
	return template, nil
}

// dropped warns of options that the deployed template has and the new one has not. A template that
// this program did not write has no warnings.
func dropped(old, template string) []string {
	var before, after deployed
	if yaml.Unmarshal([]byte(old), &before) != nil || yaml.Unmarshal([]byte(template), &after) != nil {
		return nil // It was edited; the changes show what becomes of it.
	}
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if was, is := before.queue(), after.queue(); was != is && was != "" {
		warn("the queue %s is replaced by %s, and its messages are lost: is --name=%s missing?", was, is, was)
	}
	for _, role := range without(before.roles(), after.roles()) {
		warn("role %s loses the permissions of a consumer: is --hub-role=%s missing?", role, role)
	}
	if before.has(provision.LogicalConsumerRole) && !after.has(provision.LogicalConsumerRole) {
		warn("the role that the hub of another account assumes is removed: is --assumed-by missing?")
	} else if was, is := before.trusted(); was != "" {
		now, required := after.trusted()
		if was != now {
			warn("%s may not assume the role that reads the queue any more, but %s may: is --assumed-by=%s right?", was, now, now)
		}
		switch {
		case is == required:
		case required == "":
			warn("the role that reads the queue does not require the external id %s any more: is --external-id=%s missing?", is, is)
		default:
			warn("the role that reads the queue requires the external id %s, not %q: externalId of the EventingBackend must be the same", required, is)
		}
	}
	if lost := without(before.senders(), after.senders()); len(lost) > 0 {
		warn("these may not send to the queue any more: %s: are they missing in --members or --organization?", strings.Join(lost, ", "))
	}
	return warnings
}

// trusted returns who may assume the role of a hub of another account, and the external id that this
// requires; empty without.
func (d deployed) trusted() (principal, externalID string) {
	for _, s := range d.Resources[provision.LogicalConsumerRole].Properties.AssumeRolePolicyDocument.Statement {
		if s.Sid != "Hub" {
			continue
		}
		if of, is := s.Principal.(map[string]any); is {
			principal = fmt.Sprint(of["AWS"])
		}
		if equals, is := s.Condition["StringEquals"].(map[string]any); is && equals["sts:ExternalId"] != nil {
			externalID = fmt.Sprint(equals["sts:ExternalId"])
		}
	}
	return principal, externalID
}

func (d deployed) has(logical string) bool { _, is := d.Resources[logical]; return is }

func (d deployed) queue() string { return d.Resources["Queue"].Properties.QueueName }

func (d deployed) roles() []string {
	return d.Resources[provision.LogicalConsumerPolicy].Properties.Roles
}

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
