package cloudformation_test

import (
	"errors"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	iamapi "github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/cloudformation"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

// small is a template with a queue, and the queues of its dead letters.
const small = `
Resources:
  Queue:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: jobs
      VisibilityTimeout: 60
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 3}
  Dead:
    Type: AWS::SQS::Queue
    Properties: {QueueName: !Sub "${AWS::StackName}-dead"}
Outputs:
  Url: {Value: !Ref Queue}
`

func (a *account) attribute(queue, name string) string {
	a.Helper()
	g := NewWithT(a.T)
	url, err := a.queues.GetQueueUrl(a.Context(), &sqsapi.GetQueueUrlInput{QueueName: &queue})
	g.Expect(err).NotTo(HaveOccurred())
	out, err := a.queues.GetQueueAttributes(a.Context(), &sqsapi.GetQueueAttributesInput{QueueUrl: url.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeName(name)}})
	g.Expect(err).NotTo(HaveOccurred())
	return out.Attributes[name]
}

func TestNoChanges(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	w.hub.created("s", template(t, "hub-members"))
	set, err := w.hub.changeSet("s", "# A comment is no change.\n"+template(t, "hub-members"), "UPDATE")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.Status).To(Equal(types.ChangeSetStatusFailed))
	g.Expect(set.ExecutionStatus).To(Equal(types.ExecutionStatusUnavailable))
	g.Expect(*set.StatusReason).To(Equal("The submitted information didn't contain changes. Submit different information to create a change set."))
	_, err = w.hub.ExecuteChangeSet(t.Context(), &api.ExecuteChangeSetInput{ChangeSetName: set.ChangeSetId})
	var status *types.InvalidChangeSetStatusException
	g.Expect(errors.As(err, &status)).To(BeTrue())
	_, err = w.hub.DeleteChangeSet(t.Context(), &api.DeleteChangeSetInput{ChangeSetName: set.ChangeSetId})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.hub.DescribeChangeSet(t.Context(), &api.DescribeChangeSetInput{ChangeSetName: set.ChangeSetId})
	g.Expect(errors.As(err, new(*types.ChangeSetNotFoundException))).To(BeTrue())
}

// changes of a change set: action, logical id and replacement.
func (a *account) changes(set *api.DescribeChangeSetOutput) []string {
	a.Helper()
	var all []string
	pages := api.NewDescribeChangeSetPaginator(a.Client, &api.DescribeChangeSetInput{ChangeSetName: set.ChangeSetId})
	for pages.HasMorePages() {
		page, err := pages.NextPage(a.Context())
		NewWithT(a.T).Expect(err).NotTo(HaveOccurred())
		for _, c := range page.Changes {
			r := c.ResourceChange
			all = append(all, strings.TrimSpace(string(r.Action)+" "+*r.LogicalResourceId+" "+string(r.Replacement)))
		}
	}
	return all
}

func TestUpdate(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{PageSize: 1})
	create, err := w.hub.changeSet("s", small, "CREATE")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.hub.changes(create)).To(Equal([]string{"Add Dead", "Add Queue"}))
	w.hub.created("s", small)
	g.Expect(w.hub.attribute("jobs", "VisibilityTimeout")).To(Equal("60"))

	// A change, a removed attribute, another queue, and a replaced one that the queue refers to.
	const changed = `
Resources:
  Queue:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: jobs
      ReceiveMessageWaitTimeSeconds: 20
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 3}
  Dead:
    Type: AWS::SQS::Queue
    Properties: {QueueName: other-dead}
  More:
    Type: AWS::SQS::Queue
    DependsOn: Queue
`
	set, err := w.hub.changeSet("s", changed, "UPDATE")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.hub.changes(set)).To(Equal([]string{"Modify Dead True", "Modify Queue False", "Add More"}))
	var details []string
	all, err := w.hub.DescribeChangeSet(t.Context(), &api.DescribeChangeSetInput{ChangeSetName: set.ChangeSetId, NextToken: sdk.String("1")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*all.Changes[0].ResourceChange.PhysicalResourceId).To(HaveSuffix("/jobs"))
	for _, d := range all.Changes[0].ResourceChange.Details {
		details = append(details, *d.Target.Name+" "+string(d.Evaluation))
	}
	g.Expect(details).To(Equal([]string{"ReceiveMessageWaitTimeSeconds Static", "RedrivePolicy Dynamic", "VisibilityTimeout Static"}))
	stack := w.hub.deploy("s", changed, "UPDATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateComplete))
	g.Expect(stack.Outputs).To(BeEmpty())
	queues, _ := w.hub.names()
	g.Expect(queues).To(ConsistOf("jobs", "other-dead", MatchRegexp("^s-More-[A-Z0-9]{12}$")), "the replaced queue is deleted")
	g.Expect(w.hub.attribute("jobs", "VisibilityTimeout")).To(Equal("30"), "the default")
	g.Expect(w.hub.attribute("jobs", "ReceiveMessageWaitTimeSeconds")).To(Equal("20"))
	g.Expect(w.hub.attribute("jobs", "RedrivePolicy")).To(ContainSubstring(":other-dead"))

	stack = w.hub.deploy("s", small, "UPDATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateComplete))
	queues, _ = w.hub.names()
	g.Expect(queues).To(ConsistOf("jobs", "s-dead"), "the removed queue is deleted")
	g.Expect(w.hub.resources("s")).To(HaveLen(2))
}

// An update changes policies and rules where they are, and a removed rule is deleted.
func TestUpdateOfTheHub(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	ctx := t.Context()
	w.hub.created("s", template(t, "hub-members"))
	before := w.hub.resources("s")
	changed := strings.ReplaceAll(template(t, "hub-members"), "777788889999", "123412341234")
	changed = strings.ReplaceAll(changed, "sts:ExternalId: capstan", "sts:ExternalId: other")
	changed = strings.ReplaceAll(changed, "              - sqs:DeleteMessage\n", "")
	changed = strings.ReplaceAll(changed, "- aws.autoscaling", "- aws.other")
	from, to := strings.Index(changed, "  HealthRule:"), strings.Index(changed, "  InstanceRule:")
	changed = changed[:from] + changed[to:]
	set, err := w.hub.changeSet("s", changed, "UPDATE")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.hub.changes(set)).To(ConsistOf("Modify QueuePolicy False", "Modify ConsumerRole False", "Modify ConsumerPolicy False", "Modify InstanceRule False", "Remove HealthRule"))
	stack := w.hub.deploy("s", changed, "UPDATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateComplete), "%v", w.hub.reasons("s"))
	delete(before, "HealthRule")
	g.Expect(w.hub.resources("s")).To(Equal(before))
	_, rules := w.hub.names()
	g.Expect(rules).To(Equal([]string{"capstan-instances"}))
	g.Expect(w.hub.attribute("capstan", "Policy")).To(ContainSubstring("123412341234"))
	rule, err := w.hub.rules.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: sdk.String("capstan-instances")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*rule.EventPattern).To(ContainSubstring("aws.other"))
	role, err := w.hub.iam.GetRole(ctx, &iamapi.GetRoleInput{RoleName: sdk.String(before["ConsumerRole"])})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*role.Role.AssumeRolePolicyDocument).To(ContainSubstring("other"))
	version, err := w.hub.iam.GetPolicyVersion(ctx, &iamapi.GetPolicyVersionInput{PolicyArn: sdk.String(before["ConsumerPolicy"]), VersionId: sdk.String("v2")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version.PolicyVersion.IsDefaultVersion).To(BeTrue())
	g.Expect(*version.PolicyVersion.Document).NotTo(ContainSubstring("DeleteMessage"))
}

func TestRollbackOfCreation(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	_, err := w.hub.rules.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: sdk.String("capstan-instances"), EventPattern: sdk.String(`{"source": ["x"]}`)})
	g.Expect(err).NotTo(HaveOccurred())
	stack := w.hub.deploy("capstan", template(t, "hub-members"), "CREATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusRollbackComplete))
	g.Expect(w.hub.reasons("capstan")).To(HaveKeyWithValue("InstanceRule", MatchRegexp(
		`^Resource handler returned message: "Resource of type 'AWS::Events::Rule' with identifier 'capstan-instances' already exists." .*HandlerErrorCode: AlreadyExists`)))
	queues, rules := w.hub.names()
	g.Expect(queues).To(BeEmpty())
	g.Expect(rules).To(Equal([]string{"capstan-instances"}), "only the one of another owner is left")
	rule, err := w.hub.rules.DescribeRule(t.Context(), &eventbridge.DescribeRuleInput{Name: sdk.String("capstan-instances")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*rule.EventPattern).To(Equal(`{"source": ["x"]}`))

	_, err = w.hub.changeSet("capstan", template(t, "hub"), "UPDATE")
	g.Expect(err).To(MatchError(MatchRegexp(`Stack:arn.* is in ROLLBACK_COMPLETE state and can not be updated`)))
	_, err = w.hub.changeSet("capstan", template(t, "hub"), "CREATE")
	g.Expect(err).To(MatchError(ContainSubstring("already exists")))
	_, err = w.hub.DeleteStack(t.Context(), &api.DeleteStackInput{StackName: sdk.String("capstan")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.hub.ended(*stack.StackId).StackStatus).To(Equal(types.StackStatusDeleteComplete))
	_, err = w.hub.rules.DeleteRule(t.Context(), &eventbridge.DeleteRuleInput{Name: sdk.String("capstan-instances")})
	g.Expect(err).NotTo(HaveOccurred())
	w.hub.created("capstan", template(t, "hub-members"))
}

// Each queue, role or policy that cannot be created rolls the stack back.
func TestCreationFails(t *testing.T) {
	for name, c := range map[string]struct {
		rule    aws.Match
		logical string
		reason  string
	}{
		"a queue":           {aws.Match{Service: "sqs", Action: "CreateQueue"}, "DeadLetterQueue", "sqs:createqueue on resource: arn:aws:sqs:eu-west-1:444455556666:capstan-undelivered"},
		"a queue's policy":  {aws.Match{Service: "sqs", Action: "SetQueueAttributes"}, "DeadLetterQueuePolicy", "sqs:setqueueattributes"},
		"a role":            {aws.Match{Service: "iam", Action: "CreateRole"}, "EventsRole", "iam:CreateRole on resource: role capstan-events-eu-west-1"},
		"a part of a role":  {aws.Match{Service: "iam", Action: "PutRolePolicy"}, "EventsRole", "iam:PutRolePolicy"},
		"a rule":            {aws.Match{Service: "events", Action: "PutRule"}, "HealthRule", "events:PutRule on resource: arn:aws:events:eu-west-1:444455556666:rule/capstan-health"},
		"a part of a rule":  {aws.Match{Service: "events", Action: "PutTargets"}, "HealthRule", "events:PutTargets"},
		"a look at a queue": {aws.Match{Service: "sqs", Action: "GetQueueUrl"}, "DeadLetterQueue", "sqs:getqueueurl"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := start(t, cloudformation.Options{})
			m := w.account(w.AddKey("arn:aws:iam::444455556666:user/deployer"))
			c.rule.Caller = "arn:aws:iam::444455556666:user/deployer"
			allow := w.Inject(aws.Rule{Match: c.rule, Deny: true})
			stack := m.deploy("capstan", template(t, "member"), "CREATE")
			g.Expect(stack.StackStatus).To(Equal(types.StackStatusRollbackComplete), "%v", m.reasons("capstan"))
			g.Expect(m.reasons("capstan")).To(HaveKeyWithValue(c.logical, And(
				ContainSubstring("User: arn:aws:iam::444455556666:user/deployer is not authorized to perform: "+c.reason), ContainSubstring("HandlerErrorCode: AccessDenied"))))
			allow()
			queues, rules := m.names()
			g.Expect(queues).To(BeEmpty())
			g.Expect(rules).To(BeEmpty())
			_, err := m.iam.GetRole(t.Context(), &iamapi.GetRoleInput{RoleName: sdk.String("capstan-events-eu-west-1")})
			g.Expect(codeOf(err)).To(Equal("NoSuchEntity"))
		})
	}
}

func TestRollbackOfUpdate(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	w.hub.created("s", small)
	_, err := w.hub.queues.CreateQueue(t.Context(), &sqsapi.CreateQueueInput{QueueName: sdk.String("taken")})
	g.Expect(err).NotTo(HaveOccurred())
	changed := strings.ReplaceAll(small, "VisibilityTimeout: 60", "VisibilityTimeout: 90")
	changed = strings.ReplaceAll(changed, `!Sub "${AWS::StackName}-dead"`, "new-dead")
	changed = strings.ReplaceAll(changed, "Outputs:", "  ZNew: {Type: AWS::SQS::Queue}\n  ZTaken: {Type: AWS::SQS::Queue, DependsOn: [ZNew], Properties: {QueueName: taken}}\nOutputs:")
	stack := w.hub.deploy("s", changed, "UPDATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateRollbackComplete))
	g.Expect(w.hub.reasons("s")).To(HaveKeyWithValue("ZTaken", ContainSubstring("already exists")))
	queues, _ := w.hub.names()
	g.Expect(queues).To(ConsistOf("jobs", "s-dead", "taken"))
	g.Expect(w.hub.attribute("jobs", "VisibilityTimeout")).To(Equal("60"))
	g.Expect(w.hub.attribute("jobs", "RedrivePolicy")).To(ContainSubstring(":s-dead"))
	g.Expect(w.hub.resources("s")).To(HaveLen(2))
	body, err := w.hub.GetTemplate(t.Context(), &api.GetTemplateInput{StackName: sdk.String("s")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*body.TemplateBody).To(Equal(small))

	var statuses []string
	out, err := w.hub.DescribeStackEvents(t.Context(), &api.DescribeStackEventsInput{StackName: sdk.String("s")})
	g.Expect(err).NotTo(HaveOccurred())
	for _, e := range out.StackEvents {
		if *e.ResourceType == "AWS::CloudFormation::Stack" {
			statuses = append(statuses, string(e.ResourceStatus))
		}
	}
	g.Expect(statuses).To(Equal([]string{
		"UPDATE_ROLLBACK_COMPLETE", "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_IN_PROGRESS",
		"CREATE_COMPLETE", "CREATE_IN_PROGRESS", "REVIEW_IN_PROGRESS",
	}))

	// A rollback that fails leaves a stack that can only be deleted.
	w.Inject(aws.Rule{Match: aws.Match{Service: "sqs", Action: "SetQueueAttributes"}, Times: 2, Deny: true})
	stack = w.hub.deploy("s", strings.ReplaceAll(small, "VisibilityTimeout: 60", "VisibilityTimeout: 90"), "UPDATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusUpdateRollbackFailed))
	_, err = w.hub.changeSet("s", small, "UPDATE")
	g.Expect(codeOf(err)).To(Equal("ValidationError"))
}

func TestDelete(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	ctx, name := t.Context(), sdk.String("capstan")
	remove := func() {
		_, err := w.hub.DeleteStack(ctx, &api.DeleteStackInput{StackName: name})
		g.Expect(err).NotTo(HaveOccurred())
	}
	remove() // It does not exist.
	_, err := w.hub.iam.CreateRole(ctx, &iamapi.CreateRoleInput{
		RoleName: sdk.String("capstan-hub"), AssumeRolePolicyDocument: sdk.String(`{"Statement": {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}}`),
	})
	g.Expect(err).NotTo(HaveOccurred())
	stack := w.hub.created("capstan", template(t, "hub-alone"))
	policy := w.hub.resources("capstan")["ConsumerPolicy"]
	attached, err := w.hub.iam.ListEntitiesForPolicy(ctx, &iamapi.ListEntitiesForPolicyInput{PolicyArn: &policy})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(attached.PolicyRoles).To(HaveLen(1))

	deny := w.Inject(aws.Rule{Match: aws.Match{Service: "sqs", Action: "DeleteQueue"}, Deny: true})
	remove()
	g.Expect(w.hub.ended("capstan").StackStatus).To(Equal(types.StackStatusDeleteFailed))
	g.Expect(w.hub.reasons("capstan")).To(HaveKeyWithValue("Queue", ContainSubstring("sqs:deletequeue")))
	deny()
	remove()
	g.Expect(w.hub.ended(*stack.StackId).StackStatus).To(Equal(types.StackStatusDeleteComplete))
	_, err = w.hub.DescribeStacks(ctx, &api.DescribeStacksInput{StackName: name})
	g.Expect(err).To(MatchError(ContainSubstring("Stack with id capstan does not exist")))
	queues, rules := w.hub.names()
	g.Expect(queues).To(BeEmpty())
	g.Expect(rules).To(BeEmpty())
	_, err = w.hub.iam.GetPolicy(ctx, &iamapi.GetPolicyInput{PolicyArn: &policy})
	g.Expect(codeOf(err)).To(Equal("NoSuchEntity"))
	_, err = w.hub.iam.GetRole(ctx, &iamapi.GetRoleInput{RoleName: sdk.String("capstan-hub")})
	g.Expect(err).NotTo(HaveOccurred(), "the hub's own role stays")

	// A stack that was never created is deleted at once.
	_, err = w.hub.changeSet("capstan", small, "CREATE")
	g.Expect(err).NotTo(HaveOccurred())
	remove()
	_, err = w.hub.DescribeStacks(ctx, &api.DescribeStacksInput{StackName: name})
	g.Expect(codeOf(err)).To(Equal("ValidationError"))
}

func TestCapabilities(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	create := func(name string, capabilities ...types.Capability) error {
		_, err := w.hub.CreateChangeSet(t.Context(), &api.CreateChangeSetInput{
			StackName: sdk.String(name), ChangeSetName: sdk.String("c"), ChangeSetType: "CREATE", TemplateBody: sdk.String(template(t, name)), Capabilities: capabilities,
		})
		return err
	}
	err := create("member", types.CapabilityCapabilityIam)
	g.Expect(errors.As(err, new(*types.InsufficientCapabilitiesException))).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("Requires capabilities : [CAPABILITY_NAMED_IAM]")))
	g.Expect(create("hub")).To(MatchError(ContainSubstring("Requires capabilities : [CAPABILITY_IAM]")))
	_, err = w.hub.DescribeStacks(t.Context(), &api.DescribeStacksInput{StackName: sdk.String("hub")})
	g.Expect(codeOf(err)).To(Equal("ValidationError"), "a refused change set makes no stack")
	g.Expect(create("hub", types.CapabilityCapabilityIam)).To(Succeed())
	g.Expect(create("hub", types.CapabilityCapabilityIam)).To(MatchError(ContainSubstring("AlreadyExistsException")))
	g.Expect(create("member", types.CapabilityCapabilityNamedIam)).To(Succeed())
}

func TestDenied(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	w.Inject(aws.Rule{Match: aws.Match{Service: "cloudformation", Action: "CreateChangeSet"}, Deny: true})
	_, err := w.hub.changeSet("capstan", template(t, "hub"), "CREATE")
	g.Expect(codeOf(err)).To(Equal("AccessDenied"))
	g.Expect(err).To(MatchError(ContainSubstring("User: arn:aws:iam::111122223333:root is not authorized to perform: cloudformation:CreateChangeSet on resource: arn:aws:cloudformation:eu-west-1:111122223333:stack/capstan/*")))
}

// The tags of a stack are on its queues.
func TestTags(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	put := func(set string, kind types.ChangeSetType, tags ...types.Tag) {
		_, err := w.hub.CreateChangeSet(t.Context(), &api.CreateChangeSetInput{StackName: sdk.String("s"), ChangeSetName: &set, ChangeSetType: kind, TemplateBody: sdk.String(small), Tags: tags})
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(func() error {
			_, err := w.hub.ExecuteChangeSet(t.Context(), &api.ExecuteChangeSetInput{StackName: sdk.String("s"), ChangeSetName: &set})
			return err
		}, patience, "5ms").Should(Succeed())
		w.hub.ended("s")
	}
	tags := func() map[string]string {
		out, err := w.hub.queues.ListQueueTags(t.Context(), &sqsapi.ListQueueTagsInput{QueueUrl: sdk.String(sqs.URL(w.Server, "jobs"))})
		g.Expect(err).NotTo(HaveOccurred())
		return out.Tags
	}
	put("a", "CREATE", types.Tag{Key: sdk.String("owner"), Value: sdk.String("capstan")}, types.Tag{Key: sdk.String("old"), Value: sdk.String("1")})
	g.Expect(tags()).To(Equal(map[string]string{"owner": "capstan", "old": "1"}))
	put("b", "UPDATE", types.Tag{Key: sdk.String("owner"), Value: sdk.String("other")})
	g.Expect(tags()).To(Equal(map[string]string{"owner": "other"}))
}

// What is not simulated, or not valid, is refused with its name.
func TestRefusedTemplates(t *testing.T) {
	w := start(t, cloudformation.Options{})
	queue := func(properties string) string {
		return "Resources:\n  Queue:\n    Type: AWS::SQS::Queue\n    Properties: " + properties + "\n"
	}
	for text, want := range map[string]string{
		"a: [":           "YAML not well-formed",
		"[]":             "unsupported structure",
		"Resources: {}":  "At least one Resources member",
		"Parameters: {}": "Invalid template property or properties [Parameters]",
		"Resources: {A: {Type: AWS::SNS::Topic}}":                                                      "Unrecognized resource types: [AWS::SNS::Topic]",
		"Resources: {A: {Type: AWS::SQS::Queue, DeletionPolicy: Retain}}":                              "DeletionPolicy",
		"Resources: {A: {Type: AWS::SQS::Queue, DependsOn: B}}":                                        "Unresolved resource dependencies [B]",
		"Resources: {A: {Type: AWS::SQS::Queue}, A: {Type: AWS::SQS::Queue}}":                          "duplicate",
		"Resources: {A: {Type: AWS::SQS::Queue, DependsOn: A}}":                                        "Circular dependency between resources: [A]",
		"Resources: {A: {Type: AWS::SQS::Queue}}\nOutputs: {B: {Value: 1, Export: {}}}":                "Export",
		"Resources: {A: {Type: AWS::SQS::Queue}}\nOutputs: {B: {Value: !Ref AWS::Part}}":               "Unresolved resource dependencies [AWS::Part]",
		queue("{FifoQueue: true}"):                                                                     "unsupported property FifoQueue of resource Queue",
		queue("{QueueName: !Join ['-', [a, b]]}"):                                                      "!Join",
		queue("{QueueName: {'Fn::Join': ['-', [a, b]]}}"):                                              "Fn::Join",
		queue("{QueueName: !Ref Other}"):                                                               "[Other]",
		queue("{QueueName: !Sub '${Other.Arn}'}"):                                                      "[Other]",
		queue("{QueueName: {'Fn::Sub': ['${a}', {a: b}]}}"):                                            "Fn::Sub is not simulated",
		queue("{QueueName: !GetAtt Queue.Name}"):                                                       "attribute type Name",
		queue("{QueueName: !Sub '${!Literal}${AWS::Region}', RedrivePolicy: {'Ref': 'AWS::NoValue'}}"): "AWS::NoValue",
	} {
		_, err := w.hub.changeSet("s", text, "CREATE")
		g := NewWithT(t)
		g.Expect(codeOf(err)).To(Equal("ValidationError"), text)
		g.Expect(err).To(MatchError(ContainSubstring(want)), text)
	}
	g := NewWithT(t)
	_, err := w.hub.CreateChangeSet(t.Context(), &api.CreateChangeSetInput{
		StackName: sdk.String("s"), ChangeSetName: sdk.String("c"), TemplateBody: sdk.String(small), ChangeSetType: "CREATE", RoleARN: sdk.String("arn:aws:iam::111122223333:role/deployer"),
	})
	g.Expect(err).To(MatchError(ContainSubstring("The parameter RoleARN of CreateChangeSet is not simulated")))
	_, err = w.hub.changeSet("s", small, "UPDATE")
	g.Expect(err).To(MatchError(ContainSubstring("Stack [s] does not exist")))

	// A nested property that is not valid fails when the resource is created.
	stack := w.hub.deploy("s", `
Resources:
  Rule:
    Type: AWS::Events::Rule
    Properties:
      EventPattern: {source: [a]}
      Targets: [{Id: a, Arn: 'arn:aws:sqs:eu-west-1:111122223333:q', InputPath: $.detail}]
`, "CREATE")
	g.Expect(stack.StackStatus).To(Equal(types.StackStatusRollbackComplete))
	g.Expect(w.hub.reasons("s")).To(HaveKeyWithValue("Rule", ContainSubstring("InputPath")))
}
