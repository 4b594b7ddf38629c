package awsset

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// rules checks the rules and their targets.
func (c *checker) rules(ctx context.Context) {
	for _, r := range c.set.Of(provision.TypeRule) {
		c.rule(ctx, r)
	}
}

func (c *checker) rule(ctx context.Context, r provision.Resource) {
	item, arn := "rule "+r.Name, c.set.ARN(r)
	rule, err := c.events.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: aws.String(r.Name)})
	if err != nil {
		c.failedRow(item, err, "events:DescribeRule", arn)
		return
	}
	var problems []string
	if rule.State == types.RuleStateDisabled {
		problems = append(problems, "it is DISABLED")
	}
	c.judge(item, append(problems, pattern(r.Properties["EventPattern"], aws.ToString(rule.EventPattern))...)...)

	item += " target"
	out, err := c.events.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: aws.String(r.Name)})
	if err != nil {
		c.failedRow(item, err, "events:ListTargetsByRule", arn)
		return
	}
	want := r.Properties["Targets"].([]any)[0].(map[string]any)
	for _, got := range out.Targets {
		if aws.ToString(got.Id) == want["Id"] {
			c.judge(item, target(want, got)...)
			return
		}
	}
	c.add(item, Missing, fmt.Sprintf("the rule has no target %v", want["Id"]), c.options.command("apply", c.Target))
}

// target compares a target of a rule with that of the template.
func target(want map[string]any, got types.Target) []string {
	var problems []string
	compare := func(what string, want any, got *string) {
		text, _ := want.(string)
		switch has := aws.ToString(got); {
		case has == text:
		case text == "":
			problems = append(problems, fmt.Sprintf("%s is %s, and must not be set", what, has))
		case has == "":
			problems = append(problems, fmt.Sprintf("%s is not set, and must be %s", what, text))
		default:
			problems = append(problems, fmt.Sprintf("%s is %s, not %s", what, has, text))
		}
	}
	compare("its ARN", want["Arn"], got.Arn)
	compare("its role", want["RoleArn"], got.RoleArn)
	var dead *string
	if got.DeadLetterConfig != nil {
		dead = got.DeadLetterConfig.Arn
	}
	compare("its dead-letter queue", want["DeadLetterConfig"].(map[string]any)["Arn"], dead)
	if got.Input != nil || got.InputPath != nil || got.InputTransformer != nil {
		problems = append(problems, "it changes the event (Input, InputPath or InputTransformer), which the hub cannot read then")
	}
	return problems
}
