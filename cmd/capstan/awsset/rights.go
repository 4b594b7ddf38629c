package awsset

import (
	"encoding/json"
	"fmt"
)

// Rights are the actions that the caller needs, by command. Those of apply and delete include what
// CloudFormation calls with the caller's credentials.
type Rights struct{ Check, Apply, Delete []string }

// CallerRights returns the actions that the caller needs.
func CallerRights() Rights {
	return Rights{
		Check: []string{
			"cloudformation:DescribeStackResources", "cloudformation:DescribeStacks",
			"events:DescribeRule", "events:ListTargetsByRule", "events:PutEvents",
			"iam:GetPolicy", "iam:GetPolicyVersion", "iam:GetRole", "iam:GetRolePolicy", "iam:ListAttachedRolePolicies",
			"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage",
			"sts:GetCallerIdentity",
		},
		Apply: []string{
			"cloudformation:CreateChangeSet", "cloudformation:DeleteChangeSet", "cloudformation:DescribeChangeSet",
			"cloudformation:DescribeStackEvents", "cloudformation:ExecuteChangeSet", "cloudformation:GetTemplate",
			"events:PutRule", "events:PutTargets", "events:RemoveTargets",
			"iam:AttachRolePolicy", "iam:CreatePolicy", "iam:CreatePolicyVersion", "iam:CreateRole", "iam:DeletePolicyVersion", "iam:DetachRolePolicy",
			"iam:ListEntitiesForPolicy", "iam:ListPolicyVersions", "iam:ListRolePolicies", "iam:PassRole", "iam:PutRolePolicy", "iam:UpdateAssumeRolePolicy", "iam:UpdateRole",
			"sqs:CreateQueue", "sqs:ListQueueTags", "sqs:SetQueueAttributes",
		},
		Delete: []string{
			"cloudformation:DeleteStack", "cloudformation:DescribeStackEvents", "cloudformation:GetTemplate",
			"events:DeleteRule", "events:RemoveTargets",
			"iam:DeletePolicy", "iam:DeletePolicyVersion", "iam:DeleteRole", "iam:DeleteRolePolicy", "iam:DetachRolePolicy", "iam:ListPolicyVersions",
			"sqs:DeleteQueue", "sqs:SetQueueAttributes",
		},
	}
}

// CallerPolicy returns an IAM policy with the rights of the caller. Apply and delete also need the
// statement of check; apply needs that of delete, which a rollback uses.
func CallerPolicy() ([]byte, error) {
	type statement struct {
		Sid, Effect string
		Action      []string
		Resource    string
	}
	r := CallerRights()
	out, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", []statement{
		{"Check", "Allow", r.Check, "*"}, {"Apply", "Allow", r.Apply, "*"}, {"Delete", "Allow", r.Delete, "*"},
	}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the policy: %w", err)
	}
	return append(out, '\n'), nil
}
