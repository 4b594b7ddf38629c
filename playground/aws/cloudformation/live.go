package cloudformation

import (
	"context"
	"net/url"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// The functions in this file are kind.read of their kinds. Documents are texts.

func readQueue(ctx context.Context, w *worker, physical string, p map[string]any) (map[string]any, error) {
	attributes, err := w.queueAttributes(ctx, physical)
	if err != nil {
		return nil, err
	}
	tags, err := w.queues.ListQueueTags(ctx, &sqsapi.ListQueueTagsInput{QueueUrl: &physical})
	if err != nil {
		return nil, err
	}
	live := map[string]any{queueNameKey: queueNameOf(physical), tagsKey: listOf(tags.Tags)}
	for name := range queueAttributes(p) {
		live[name] = attributes[name]
	}
	return live, nil
}

func (w *worker) queueAttributes(ctx context.Context, queue string) (map[string]string, error) {
	out, err := w.queues.GetQueueAttributes(ctx, &sqsapi.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameAll}})
	if err != nil {
		return nil, err
	}
	return out.Attributes, nil
}

// readQueuePolicy returns the policy of the first queue that has another one.
func readQueuePolicy(ctx context.Context, w *worker, _ string, p map[string]any) (map[string]any, error) {
	var in struct {
		Queues         []string
		PolicyDocument any
	}
	if err := into(p, &in); err != nil {
		return nil, err
	}
	live := map[string]any{"Queues": in.Queues, documentKey: in.PolicyDocument}
	for _, queue := range in.Queues {
		attributes, err := w.queueAttributes(ctx, queue)
		if err != nil {
			return nil, err
		}
		if policy := attributes["Policy"]; !equal(canonical(policy), canonical(in.PolicyDocument)) {
			live[documentKey] = policy
			break
		}
	}
	return live, nil
}

func readRule(ctx context.Context, w *worker, physical string, _ map[string]any) (map[string]any, error) {
	rule, err := w.events.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: &physical})
	if err != nil {
		return nil, err
	}
	out, err := w.events.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: &physical})
	if err != nil {
		return nil, err
	}
	var targets []map[string]any
	for _, t := range out.Targets {
		target := map[string]any{"Id": sdk.ToString(t.Id), "Arn": sdk.ToString(t.Arn)}
		if t.RoleArn != nil {
			target["RoleArn"] = *t.RoleArn
		}
		if t.DeadLetterConfig != nil {
			target["DeadLetterConfig"] = map[string]any{"Arn": sdk.ToString(t.DeadLetterConfig.Arn)}
		}
		targets = append(targets, target)
	}
	return map[string]any{
		"Name": physical, descriptionKey: sdk.ToString(rule.Description), "State": string(rule.State),
		"EventPattern": sdk.ToString(rule.EventPattern), "Targets": targets,
	}, nil
}

func readRole(ctx context.Context, w *worker, physical string, _ map[string]any) (map[string]any, error) {
	out, err := w.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &physical})
	if err != nil {
		return nil, err
	}
	var policies []map[string]any
	inline := iam.NewListRolePoliciesPaginator(w.iam, &iam.ListRolePoliciesInput{RoleName: &physical})
	for inline.HasMorePages() {
		page, err := inline.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range page.PolicyNames {
			policy, err := w.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &physical, PolicyName: &name})
			if err != nil {
				return nil, err
			}
			policies = append(policies, map[string]any{"PolicyName": name, documentKey: unescaped(policy.PolicyDocument)})
		}
	}
	var managed []string
	attached := iam.NewListAttachedRolePoliciesPaginator(w.iam, &iam.ListAttachedRolePoliciesInput{RoleName: &physical})
	for attached.HasMorePages() {
		page, err := attached.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, policy := range page.AttachedPolicies {
			managed = append(managed, sdk.ToString(policy.PolicyArn))
		}
	}
	return map[string]any{
		"RoleName": physical, descriptionKey: sdk.ToString(out.Role.Description), "AssumeRolePolicyDocument": unescaped(out.Role.AssumeRolePolicyDocument),
		"MaxSessionDuration": sdk.ToInt32(out.Role.MaxSessionDuration), "Policies": policies, "ManagedPolicyArns": managed,
	}, nil
}

func readManagedPolicy(ctx context.Context, w *worker, physical string, _ map[string]any) (map[string]any, error) {
	out, err := w.iam.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: &physical})
	if err != nil {
		return nil, err
	}
	version, err := w.iam.GetPolicyVersion(ctx, &iam.GetPolicyVersionInput{PolicyArn: &physical, VersionId: out.Policy.DefaultVersionId})
	if err != nil {
		return nil, err
	}
	var roles []string
	entities := iam.NewListEntitiesForPolicyPaginator(w.iam, &iam.ListEntitiesForPolicyInput{PolicyArn: &physical})
	for entities.HasMorePages() {
		page, err := entities.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, role := range page.PolicyRoles {
			roles = append(roles, sdk.ToString(role.RoleName))
		}
	}
	return map[string]any{
		"ManagedPolicyName": sdk.ToString(out.Policy.PolicyName), descriptionKey: sdk.ToString(out.Policy.Description),
		documentKey: unescaped(version.PolicyVersion.Document), "Roles": roles,
	}, nil
}

// unescaped returns a document of IAM, which encodes it as in a URL.
func unescaped(document *string) string {
	text, err := url.PathUnescape(sdk.ToString(document))
	if err != nil {
		return sdk.ToString(document)
	}
	return text
}
