package cloudformation

import (
	"context"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
)

const (
	ruleType    = "AWS::Events::Rule"
	maxRuleName = 64
)

var ruleKind = kind{
	properties: map[string]bool{"Name": true, "Description": false, "State": false, "EventPattern": false, "Targets": false},
	attributes: []string{"Arn"},
	attribute: func(e environment, physical, _ string) string {
		return "arn:aws:events:" + e.region + ":" + e.account + ":rule/" + physical
	},
	create: createRule, read: readRule,
	update: func(ctx context.Context, w *worker, physical string, before, p map[string]any) error {
		old, err := ruleOf(before)
		if err != nil {
			return err
		}
		in, err := ruleOf(p)
		if err != nil {
			return err
		}
		if err := in.put(ctx, w, physical); err != nil {
			return err
		}
		return removeTargets(ctx, w, physical, without(old.ids(), in.ids()))
	},
	remove: func(ctx context.Context, w *worker, physical string, p map[string]any) error {
		in, err := ruleOf(p)
		if err == nil {
			err = ignoreMissing(removeTargets(ctx, w, physical, in.ids()))
		}
		if err != nil {
			return err
		}
		_, err = w.events.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: &physical})
		return ignoreMissing(err)
	},
}

// ruleProperties of AWS::Events::Rule.
type ruleProperties struct {
	Name, Description, State string
	EventPattern             any
	Targets                  []struct {
		ID               string `json:"Id"`
		Arn, RoleArn     string
		DeadLetterConfig *struct{ Arn string }
	}
}

func ruleOf(p map[string]any) (ruleProperties, error) {
	var in ruleProperties
	err := into(p, &in)
	return in, err
}

func (in ruleProperties) ids() []string {
	var ids []string
	for _, t := range in.Targets {
		ids = append(ids, t.ID)
	}
	return ids
}

func createRule(ctx context.Context, w *worker, logical string, p map[string]any) (string, error) {
	in, err := ruleOf(p)
	if err != nil {
		return "", err
	}
	name := in.Name
	if name == "" {
		name = w.name(logical, maxRuleName)
	}
	_, err = w.events.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: &name})
	switch {
	case err == nil:
		return "", alreadyExists(ruleType, name)
	case !notFound(err):
		return "", err
	}
	return name, in.put(ctx, w, name)
}

// put creates or changes a rule and its targets.
func (in ruleProperties) put(ctx context.Context, w *worker, name string) error {
	rule := &eventbridge.PutRuleInput{Name: &name, EventPattern: sdk.String(text(in.EventPattern)), State: types.RuleState(in.State)}
	if in.Description != "" {
		rule.Description = &in.Description
	}
	if _, err := w.events.PutRule(ctx, rule); err != nil {
		return err
	}
	if len(in.Targets) == 0 {
		return nil
	}
	var targets []types.Target
	for _, t := range in.Targets {
		target := types.Target{Id: sdk.String(t.ID), Arn: sdk.String(t.Arn)}
		if t.RoleArn != "" {
			target.RoleArn = sdk.String(t.RoleArn)
		}
		if t.DeadLetterConfig != nil {
			target.DeadLetterConfig = &types.DeadLetterConfig{Arn: sdk.String(t.DeadLetterConfig.Arn)}
		}
		targets = append(targets, target)
	}
	out, err := w.events.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &name, Targets: targets})
	if err == nil && out.FailedEntryCount > 0 {
		err = fmt.Errorf("%s", sdk.ToString(out.FailedEntries[0].ErrorMessage))
	}
	return err
}

func removeTargets(ctx context.Context, w *worker, name string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := w.events.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: &name, Ids: ids})
	return err
}
