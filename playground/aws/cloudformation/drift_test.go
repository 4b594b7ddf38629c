package cloudformation_test

import (
	"net/url"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	iamapi "github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/cloudformation"
)

const revert = types.DeploymentModeRevertDrift

// set sets attributes of a queue by hand.
func (a *account) set(queue string, attributes map[string]string) {
	a.Helper()
	g := NewWithT(a.T)
	found, err := a.queues.GetQueueUrl(a.Context(), &sqsapi.GetQueueUrlInput{QueueName: &queue})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = a.queues.SetQueueAttributes(a.Context(), &sqsapi.SetQueueAttributesInput{QueueUrl: found.QueueUrl, Attributes: attributes})
	g.Expect(err).NotTo(HaveOccurred())
}

// targets returns the targets of a rule: id and ARN.
func (a *account) targets(rule string) []string {
	a.Helper()
	out, err := a.rules.ListTargetsByRule(a.Context(), &eventbridge.ListTargetsByRuleInput{Rule: &rule})
	NewWithT(a.T).Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, t := range out.Targets {
		all = append(all, *t.Id+" "+*t.Arn)
	}
	return all
}

func (a *account) expectNoChanges(stack, body string) {
	a.Helper()
	g := NewWithT(a.T)
	set, err := a.changeSet(stack, body, "UPDATE", revert)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.Status).To(Equal(types.ChangeSetStatusFailed))
	g.Expect(*set.StatusReason).To(ContainSubstring("didn't contain changes"))
	g.Expect(a.changes(set)).To(BeEmpty())
}

// A drift-aware change set has what was changed by hand, and its execution reverts it. Another
// one does not.
func TestRevertDrift(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	ctx, hub := t.Context(), w.hub
	body := template(t, "hub-members")
	hub.created("s", body)
	hub.expectNoChanges("s", body)
	before := hub.resources("s")
	role, policy := before["ConsumerRole"], before["ConsumerPolicy"]
	wanted := map[string]string{"Policy": hub.attribute("capstan", "Policy"), "RedrivePolicy": hub.attribute("capstan", "RedrivePolicy")}

	hub.set("capstan", map[string]string{
		"RedrivePolicy": "", "VisibilityTimeout": "5", "DelaySeconds": "7",
		"Policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}]}`,
	})
	_, err := hub.rules.PutRule(ctx, &eventbridge.PutRuleInput{Name: sdk.String("capstan-health"), EventPattern: sdk.String(`{"source":["x"]}`), State: eventtypes.RuleStateDisabled})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.rules.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: sdk.String("capstan-instances"), Ids: []string{"capstan"}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.rules.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: sdk.String("capstan-instances"), Targets: []eventtypes.Target{{Id: sdk.String("more"), Arn: sdk.String("arn:aws:sqs:eu-west-1:" + hub.id + ":capstan-dead")}}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.iam.UpdateAssumeRolePolicy(ctx, &iamapi.UpdateAssumeRolePolicyInput{RoleName: &role, PolicyDocument: sdk.String(`{"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`)})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.iam.DetachRolePolicy(ctx, &iamapi.DetachRolePolicyInput{RoleName: &role, PolicyArn: &policy})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.iam.CreatePolicyVersion(ctx, &iamapi.CreatePolicyVersionInput{PolicyArn: &policy, SetAsDefault: true, PolicyDocument: sdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sqs:*","Resource":"*"}]}`)})
	g.Expect(err).NotTo(HaveOccurred())

	plain, err := hub.changeSet("s", body, "UPDATE")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plain.Status).To(Equal(types.ChangeSetStatusFailed), "templates only are compared")
	g.Expect(plain.DeploymentMode).To(BeEmpty())

	set, err := hub.changeSet("s", body, "UPDATE", revert)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.DeploymentMode).To(Equal(revert))
	g.Expect(hub.changes(set)).To(ConsistOf("Modify Queue False", "Modify QueuePolicy False", "Modify HealthRule False", "Modify InstanceRule False", "Modify ConsumerRole False", "Modify ConsumerPolicy False"))
	for _, c := range set.Changes {
		var names []string
		for _, d := range c.ResourceChange.Details {
			g.Expect(d.ChangeSource).To(Equal(types.ChangeSourceNoModification))
			names = append(names, *d.Target.Name)
		}
		g.Expect(c.ResourceChange.ResourceDriftStatus).To(Equal(types.StackResourceDriftStatusModified))
		g.Expect(names).To(Equal(map[string][]string{
			"Queue": {"RedrivePolicy", "VisibilityTimeout"}, "QueuePolicy": {"PolicyDocument"}, "HealthRule": {"Description", "EventPattern", "State"},
			"InstanceRule": {"Targets"}, "ConsumerRole": {"AssumeRolePolicyDocument", "ManagedPolicyArns"}, "ConsumerPolicy": {"PolicyDocument"},
		}[*c.ResourceChange.LogicalResourceId]))
	}
	stack := hub.deploy("s", body, "UPDATE", revert)
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateComplete), "%v", hub.reasons("s"))
	g.Expect(hub.resources("s")).To(Equal(before))
	for name, value := range wanted {
		g.Expect(hub.attribute("capstan", name)).To(MatchJSON(value))
	}
	g.Expect(hub.attribute("capstan", "VisibilityTimeout")).To(Equal("60"))
	g.Expect(hub.attribute("capstan", "DelaySeconds")).To(Equal("7"), "the template does not have it")
	rule, err := hub.rules.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: sdk.String("capstan-health")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rule.State).To(Equal(eventtypes.RuleStateEnabled))
	g.Expect(*rule.EventPattern).To(ContainSubstring("aws.health"))
	g.Expect(hub.targets("capstan-instances")).To(Equal([]string{"capstan arn:aws:sqs:eu-west-1:" + hub.id + ":capstan"}))
	read, err := hub.iam.GetRole(ctx, &iamapi.GetRoleInput{RoleName: &role})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(url.PathUnescape(*read.Role.AssumeRolePolicyDocument)).To(ContainSubstring("role/capstan-hub"))
	attached, err := hub.iam.ListAttachedRolePolicies(ctx, &iamapi.ListAttachedRolePoliciesInput{RoleName: &role})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(attached.AttachedPolicies).To(HaveLen(1))
	version, err := hub.iam.GetPolicyVersion(ctx, &iamapi.GetPolicyVersionInput{PolicyArn: &policy, VersionId: sdk.String("v3")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.PolicyVersion.IsDefaultVersion).To(BeTrue())
	g.Expect(url.PathUnescape(*version.PolicyVersion.Document)).To(ContainSubstring("ReadTheQueue"))
	hub.expectNoChanges("s", body)
}

// Inline policies of roles: missing, changed and further ones.
func TestRevertDriftOfInlinePolicies(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	ctx, name := t.Context(), sdk.String("capstan-events-eu-west-1")
	m := w.account(w.AddKey(aws.RootOf(member)))
	body := template(t, "member")
	m.created("s", body)
	document := sdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`)
	_, err := m.iam.PutRolePolicy(ctx, &iamapi.PutRolePolicyInput{RoleName: name, PolicyName: sdk.String("more"), PolicyDocument: document})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = m.iam.DeleteRolePolicy(ctx, &iamapi.DeleteRolePolicyInput{RoleName: name, PolicyName: sdk.String("send")})
	g.Expect(err).NotTo(HaveOccurred())
	set, err := m.changeSet("s", body, "UPDATE", revert)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.changes(set)).To(Equal([]string{"Modify EventsRole False"}))
	m.deploy("s", body, "UPDATE", revert)
	out, err := m.iam.ListRolePolicies(ctx, &iamapi.ListRolePoliciesInput{RoleName: name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.PolicyNames).To(Equal([]string{"send"}))
	_, err = m.iam.PutRolePolicy(ctx, &iamapi.PutRolePolicyInput{RoleName: name, PolicyName: sdk.String("send"), PolicyDocument: document})
	g.Expect(err).NotTo(HaveOccurred())
	m.deploy("s", body, "UPDATE", revert)
	m.expectNoChanges("s", body)
}

// What was deleted by hand is created again, also if a resource that refers to it was.
func TestRevertDriftOfMissingResources(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	ctx, hub := t.Context(), w.hub
	body := template(t, "hub-members")
	hub.created("s", body)
	before := hub.resources("s")
	hub.deleteRule("capstan-health")
	role, policy := before["ConsumerRole"], before["ConsumerPolicy"]
	_, err := hub.iam.DetachRolePolicy(ctx, &iamapi.DetachRolePolicyInput{RoleName: &role, PolicyArn: &policy})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.iam.DeleteRole(ctx, &iamapi.DeleteRoleInput{RoleName: &role})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.iam.DeletePolicy(ctx, &iamapi.DeletePolicyInput{PolicyArn: &policy})
	g.Expect(err).NotTo(HaveOccurred())
	set, err := hub.changeSet("s", body, "UPDATE", revert)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hub.changes(set)).To(ConsistOf("Modify HealthRule True", "Modify ConsumerRole True", "Modify ConsumerPolicy True"))
	for _, c := range set.Changes {
		g.Expect(c.ResourceChange.ResourceDriftStatus).To(Equal(types.StackResourceDriftStatusDeleted))
	}
	stack := hub.deploy("s", body, "UPDATE", revert)
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateComplete), "%v", hub.reasons("s"))
	after := hub.resources("s")
	g.Expect(after["ConsumerRole"]).NotTo(Equal(role), "AWS generates another name")
	attached, err := hub.iam.ListAttachedRolePolicies(ctx, &iamapi.ListAttachedRolePoliciesInput{RoleName: sdk.String(after["ConsumerRole"])})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*attached.AttachedPolicies[0].PolicyArn).To(Equal(after["ConsumerPolicy"]))
	for _, logical := range []string{"ConsumerRole", "ConsumerPolicy"} {
		before[logical] = after[logical]
	}
	g.Expect(after).To(Equal(before))
	g.Expect(hub.targets("capstan-health")).To(HaveLen(1))
	hub.expectNoChanges("s", body)

	// A queue takes its policy with it.
	found, err := hub.queues.GetQueueUrl(ctx, &sqsapi.GetQueueUrlInput{QueueName: sdk.String("capstan")})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = hub.queues.DeleteQueue(ctx, &sqsapi.DeleteQueueInput{QueueUrl: found.QueueUrl})
	g.Expect(err).NotTo(HaveOccurred())
	stack = hub.deploy("s", body, "UPDATE", revert)
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateComplete), "%v", hub.reasons("s"))
	g.Expect(hub.attribute("capstan", "Policy")).To(ContainSubstring("RulesOfMembers"))
	hub.expectNoChanges("s", body)
}

func (a *account) deleteRule(name string) {
	a.Helper()
	g := NewWithT(a.T)
	_, err := a.rules.RemoveTargets(a.Context(), &eventbridge.RemoveTargetsInput{Rule: &name, Ids: []string{"capstan"}})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = a.rules.DeleteRule(a.Context(), &eventbridge.DeleteRuleInput{Name: &name})
	g.Expect(err).NotTo(HaveOccurred())
}

// A failure restores the live state from before, and the stack still has all resources.
func TestRollbackOfRevertedDrift(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	hub := w.hub
	body := template(t, "hub-members")
	hub.created("s", body)
	before := hub.resources("s")
	hub.deleteRule("capstan-health")
	hub.set("capstan", map[string]string{"RedrivePolicy": "", "VisibilityTimeout": "5"})
	failing := strings.ReplaceAll(body, "Outputs:", "  ZTaken:\n    Type: AWS::SQS::Queue\n    DependsOn: [Queue, HealthRule]\n    Properties: {QueueName: taken}\nOutputs:")
	_, err := hub.queues.CreateQueue(t.Context(), &sqsapi.CreateQueueInput{QueueName: sdk.String("taken")})
	g.Expect(err).NotTo(HaveOccurred())
	stack := hub.deploy("s", failing, "UPDATE", revert)
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateRollbackComplete), "%v", hub.reasons("s"))
	g.Expect(hub.attribute("capstan", "VisibilityTimeout")).To(Equal("5"))
	g.Expect(hub.attribute("capstan", "RedrivePolicy")).To(BeEmpty())
	_, rules := hub.names()
	g.Expect(rules).To(Equal([]string{"capstan-instances"}))
	g.Expect(hub.resources("s")).To(Equal(before))

	restore := w.Inject(aws.Rule{Match: aws.Match{Service: "events", Action: "PutRule"}, Deny: true})
	g.Expect(hub.deploy("s", body, "UPDATE", revert).StackStatus).To(Equal(types.StackStatusUpdateRollbackComplete))
	restore()
	g.Expect(hub.resources("s")).To(Equal(before))
	g.Expect(hub.deploy("s", body, "UPDATE", revert).StackStatus).To(Equal(types.StackStatusUpdateComplete), "%v", hub.reasons("s"))
	g.Expect(hub.attribute("capstan", "VisibilityTimeout")).To(Equal("60"))
	hub.expectNoChanges("s", body)
}

// The live state is read with the rights of the caller, and other modes are refused.
func TestRefusedDeploymentModes(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	w.hub.created("s", small)
	_, err := w.hub.changeSet("s", small, "UPDATE", "IGNORE_DRIFT")
	g.Expect(codeOf(err)).To(Equal("ValidationError"))
	g.Expect(err).To(MatchError(ContainSubstring("'IGNORE_DRIFT' at 'deploymentMode'")))
	const caller = "arn:aws:iam::" + aws.Account + ":user/deployer"
	w.Inject(aws.Rule{Match: aws.Match{Service: "sqs", Action: "GetQueueAttributes", Caller: caller}, Deny: true})
	set, err := w.account(w.AddKey(caller)).changeSet("s", small, "UPDATE", revert)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.Status).To(Equal(types.ChangeSetStatusFailed))
	g.Expect(*set.StatusReason).To(And(ContainSubstring("the live state of resource Dead cannot be read"), ContainSubstring(caller+" is not authorized to perform: sqs:getqueueattributes")))
}
