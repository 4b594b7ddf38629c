package awsset

import (
	"context"
	"net/url"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// roles checks the roles and the policies of IAM.
func (c *checker) roles(ctx context.Context) {
	for _, r := range c.set.Of(provision.TypeRole) {
		c.role(ctx, r)
	}
	for _, p := range c.set.Of(provision.TypeManagedPolicy) {
		c.managed(ctx, p)
	}
}

func (c *checker) role(ctx context.Context, r provision.Resource) {
	item := "role " + r.Name
	if r.Name == "" {
		c.add("role "+r.Logical, Missing, "the stack has none", c.options.command("apply", c.Target))
		return
	}
	arn := c.set.ARN(r)
	out, err := c.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String(r.Name)})
	if err != nil {
		c.failedRow(item, err, "iam:GetRole", arn)
		return
	}
	c.judge(item, differences(r.Properties["AssumeRolePolicyDocument"], unescaped(out.Role.AssumeRolePolicyDocument), noTrust)...)
	policies, _ := r.Properties["Policies"].([]any)
	for _, one := range policies {
		inline, _ := one.(map[string]any)
		name, _ := inline["PolicyName"].(string)
		got, err := c.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: aws.String(r.Name), PolicyName: aws.String(name)})
		if err != nil {
			c.failedRow(item+" policy", err, "iam:GetRolePolicy", arn)
			continue
		}
		c.judge(item+" policy", differences(inline["PolicyDocument"], unescaped(got.PolicyDocument), notAll)...)
	}
	if attached := r.Properties["ManagedPolicyArns"]; attached != nil {
		c.attached(ctx, r.Name, arn, texts(attached))
	}
}

// managed checks a managed policy, and that the roles of the template have it.
func (c *checker) managed(ctx context.Context, p provision.Resource) {
	const item = "consumer policy"
	if p.Name == "" {
		c.add(item, Missing, "the stack has none", c.options.command("apply", c.Target))
		return
	}
	policy, err := c.iam.GetPolicy(ctx, &iam.GetPolicyInput{PolicyArn: aws.String(p.Name)})
	if err != nil {
		c.failedRow(item, err, "iam:GetPolicy", p.Name)
		return
	}
	out, err := c.iam.GetPolicyVersion(ctx, &iam.GetPolicyVersionInput{PolicyArn: aws.String(p.Name), VersionId: policy.Policy.DefaultVersionId})
	if err != nil {
		c.failedRow(item, err, "iam:GetPolicyVersion", p.Name)
		return
	}
	c.judge(item, differences(p.Properties["PolicyDocument"], unescaped(out.PolicyVersion.Document), notAll)...)
	if roles := p.Properties["Roles"]; roles != nil {
		for _, name := range texts(roles) {
			c.attached(ctx, name, "arn:"+c.Partition+":iam::"+c.Account+":role/"+name, []string{p.Name})
		}
	}
}

// attached checks that a role has managed policies.
func (c *checker) attached(ctx context.Context, role, arn string, policies []string) {
	item := "role " + role + " attached policy"
	var has []string
	pages := iam.NewListAttachedRolePoliciesPaginator(c.iam, &iam.ListAttachedRolePoliciesInput{RoleName: aws.String(role)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			c.failedRow(item, err, "iam:ListAttachedRolePolicies", arn)
			return
		}
		for _, one := range page.AttachedPolicies {
			has = append(has, aws.ToString(one.PolicyArn))
		}
	}
	var problems []string
	for _, one := range policies {
		if !slices.Contains(has, one) {
			problems = append(problems, "the role does not have "+one)
		}
	}
	c.judge(item, problems...)
}

// unescaped returns a policy document: IAM encodes it as in a URL.
func unescaped(document *string) string {
	text, err := url.QueryUnescape(aws.ToString(document))
	if err != nil {
		return aws.ToString(document)
	}
	return text
}
