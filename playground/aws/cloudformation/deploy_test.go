package cloudformation_test

import (
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	iamapi "github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/cloudformation"
	"github.com/capstan-hub/capstan/playground/aws/events"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

var (
	hubQueue    = sqs.ID{Account: aws.Account, Region: region, Name: "capstan"}
	hubDead     = sqs.ID{Account: aws.Account, Region: region, Name: "capstan-dead"}
	undelivered = sqs.ID{Account: member, Region: region, Name: "capstan-undelivered"}
)

// publish puts an event of an instance of an account, and returns its id.
func (w *world) publish(account string) string {
	w.Helper()
	id, err := w.events.Publish(events.Event{
		Account: account, Region: region, Source: "aws.ec2", DetailType: "EC2 Spot Instance Interruption Warning", Time: time.Unix(1, 0),
		Detail: map[string]string{"instance-id": "i-1", "instance-action": "terminate"},
	})
	NewWithT(w.T).Expect(err).NotTo(HaveOccurred())
	return id
}

// deployed has Capstan's templates in the hub's account and in a member.
func deployed(t *testing.T, hub string) (*world, *account) {
	t.Helper()
	w := start(t, cloudformation.Options{})
	m := w.account(w.AddKey(aws.RootOf(member)))
	w.hub.created("capstan", template(t, hub))
	m.created("capstan", template(t, "member"))
	return w, m
}

func TestEventsReachTheHub(t *testing.T) {
	g := NewWithT(t)
	w, m := deployed(t, "hub-members")
	own, others := w.publish(aws.Account), w.publish(member)
	g.Expect(w.sqs.Messages(hubQueue)).To(ConsistOf(HaveField("Body", ContainSubstring(own)), HaveField("Body", ContainSubstring(others))))
	g.Expect(w.events.Stats(member, region)).To(Equal(events.Stats{Matched: 1, Delivered: 1}))
	_, err := w.events.Publish(events.Event{
		Account: member, Region: region, Source: "aws.health", DetailType: "AWS Health Event",
		Detail: map[string]string{"service": "EC2", "eventTypeCategory": "scheduledChange"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.sqs.Messages(hubQueue)).To(HaveLen(3))
	_, err = w.events.Publish(events.Event{
		Account: member, Region: region, Source: "aws.health", DetailType: "AWS Health Event",
		Detail: map[string]string{"service": "RDS", "eventTypeCategory": "scheduledChange"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.sqs.Messages(hubQueue)).To(HaveLen(3), "another service")

	_, err = m.rules.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: sdk.String("capstan-instances")})
	g.Expect(err).NotTo(HaveOccurred())
	w.publish(member)
	g.Expect(w.sqs.Messages(hubQueue)).To(HaveLen(3), "the rule is disabled")
	g.Expect(w.sqs.Messages(undelivered)).To(BeEmpty())
}

// deadLetter publishes an event of a member, and expects it in the dead-letter queue.
func (w *world) deadLetter(code string) {
	w.Helper()
	g := NewWithT(w.T)
	before := len(w.sqs.Messages(hubQueue))
	id := w.publish(member)
	g.Expect(w.sqs.Messages(hubQueue)).To(HaveLen(before))
	g.Expect(w.sqs.Messages(undelivered)).To(ContainElement(And(HaveField("Body", ContainSubstring(id)), HaveField("Attributes", And(
		HaveKeyWithValue("ERROR_CODE", code), HaveKeyWithValue("TARGET_ARN", hubQueue.ARN()),
		HaveKeyWithValue("RULE_ARN", "arn:aws:events:eu-west-1:444455556666:rule/capstan-instances"), HaveKey("ERROR_MESSAGE"),
	)))))
}

// Each part of the way that is wrong makes a dead letter.
func TestUndeliveredEvents(t *testing.T) {
	g := NewWithT(t)
	w, m := deployed(t, "hub-members")
	ctx := t.Context()
	url := hubQueue.URL(w.Server)
	got, err := w.hub.queues.GetQueueAttributes(ctx, &sqsapi.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{"Policy"}})
	g.Expect(err).NotTo(HaveOccurred())
	policy := got.Attributes["Policy"]
	setPolicy := func(text string) {
		_, err := w.hub.queues.SetQueueAttributes(ctx, &sqsapi.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{"Policy": text}})
		g.Expect(err).NotTo(HaveOccurred())
	}
	setPolicy(strings.ReplaceAll(policy, member, "999900001111"))
	w.deadLetter(events.NoPermissions)
	setPolicy(strings.ReplaceAll(policy, "capstan-events-", "other-"))
	w.deadLetter(events.NoPermissions)
	setPolicy("")
	w.deadLetter(events.NoPermissions)
	setPolicy(policy)
	w.publish(member)
	g.Expect(w.sqs.Messages(hubQueue)).To(HaveLen(1))

	role := sdk.String("capstan-events-" + region)
	_, err = m.iam.PutRolePolicy(ctx, &iamapi.PutRolePolicyInput{
		RoleName: role, PolicyName: sdk.String("send"), PolicyDocument: sdk.String(`{"Statement": {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:*:*:other"}}`),
	})
	g.Expect(err).NotTo(HaveOccurred())
	w.deadLetter(events.NoPermissions)
	_, err = m.iam.UpdateAssumeRolePolicy(ctx, &iamapi.UpdateAssumeRolePolicyInput{
		RoleName: role, PolicyDocument: sdk.String(`{"Statement": {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sts:AssumeRole"}}`),
	})
	g.Expect(err).NotTo(HaveOccurred())
	w.deadLetter(events.FailedToAssumeRole)

	// The dead-letter queue of the hub's account.
	setPolicy("")
	w.publish(aws.Account)
	g.Expect(w.sqs.Messages(hubDead)).To(ConsistOf(HaveField("Attributes", HaveKeyWithValue("ERROR_CODE", events.NoPermissions))))
}

func TestOrganization(t *testing.T) {
	g := NewWithT(t)
	w, _ := deployed(t, "hub-organization")
	w.deadLetter(events.NoPermissions)
	w.events.SetOrganization(member, "o-a1b2c3d4e5")
	w.publish(member)
	g.Expect(w.sqs.Messages(hubQueue)).To(HaveLen(1))
	w.events.SetOrganization(member, "o-0000000000")
	w.deadLetter(events.NoPermissions)
}

// The stack has the resources and outputs of its template.
func TestStack(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{PageSize: 2})
	stack := w.hub.created("capstan", template(t, "hub-members"))
	outputs := map[string]string{}
	for _, o := range stack.Outputs {
		outputs[*o.OutputKey] = *o.OutputValue
	}
	resources := w.hub.resources("capstan")
	g.Expect(outputs).To(Equal(map[string]string{
		"QueueUrl": hubQueue.URL(w.Server), "QueueArn": hubQueue.ARN(), "DeadLetterQueueUrl": hubDead.URL(w.Server),
		"ConsumerPolicyArn": resources["ConsumerPolicy"], "ConsumerRoleArn": "arn:aws:iam::111122223333:role/" + resources["ConsumerRole"],
	}))
	g.Expect(resources).To(HaveLen(8))
	g.Expect(resources["ConsumerRole"]).To(MatchRegexp("^capstan-ConsumerRole-[A-Z0-9]{12}$"))
	one, err := w.hub.DescribeStackResources(t.Context(), &api.DescribeStackResourcesInput{StackName: sdk.String("capstan"), LogicalResourceId: sdk.String("Queue")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*one.StackResources[0].PhysicalResourceId).To(Equal(hubQueue.URL(w.Server)))
	body, err := w.hub.GetTemplate(t.Context(), &api.GetTemplateInput{StackName: sdk.String("capstan")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*body.TemplateBody).To(Equal(template(t, "hub-members")))
	attached, err := w.hub.iam.ListAttachedRolePolicies(t.Context(), &iamapi.ListAttachedRolePoliciesInput{RoleName: sdk.String(resources["ConsumerRole"])})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*attached.AttachedPolicies[0].PolicyArn).To(Equal(resources["ConsumerPolicy"]))
	queue, err := w.hub.queues.GetQueueAttributes(t.Context(), &sqsapi.GetQueueAttributesInput{QueueUrl: sdk.String(hubQueue.URL(w.Server)), AttributeNames: []sqstypes.QueueAttributeName{"All"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(queue.Attributes).To(And(HaveKeyWithValue("VisibilityTimeout", "60"), HaveKeyWithValue("SqsManagedSseEnabled", "true"),
		HaveKeyWithValue("RedrivePolicy", MatchJSON(`{"deadLetterTargetArn": "`+hubDead.ARN()+`", "maxReceiveCount": 20}`))))

	// Another account and region have no such stack.
	_, err = w.account(w.AddKey(aws.RootOf(member))).DescribeStacks(t.Context(), &api.DescribeStacksInput{StackName: sdk.String("capstan")})
	g.Expect(err).To(MatchError(ContainSubstring("ValidationError: Stack with id capstan does not exist")))
	_, err = w.hub.DescribeStacks(t.Context(), &api.DescribeStacksInput{StackName: sdk.String("capstan")}, func(o *api.Options) { o.Region = "us-east-1" })
	g.Expect(codeOf(err)).To(Equal("ValidationError"))
}

// The SDK's waiters see the work in progress.
func TestWaiters(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{Pace: 5 * time.Millisecond})
	name, body := sdk.String("capstan"), sdk.String(template(t, "hub"))
	set, err := w.hub.CreateChangeSet(t.Context(), &api.CreateChangeSetInput{StackName: name, ChangeSetName: sdk.String("c"), ChangeSetType: "CREATE", TemplateBody: body, Capabilities: capabilities})
	g.Expect(err).NotTo(HaveOccurred())
	described := api.NewChangeSetCreateCompleteWaiter(w.hub, func(o *api.ChangeSetCreateCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Millisecond, time.Millisecond
	})
	g.Expect(described.Wait(t.Context(), &api.DescribeChangeSetInput{ChangeSetName: set.Id}, patience)).To(Succeed())
	_, err = w.hub.ExecuteChangeSet(t.Context(), &api.ExecuteChangeSetInput{ChangeSetName: set.Id})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.hub.ExecuteChangeSet(t.Context(), &api.ExecuteChangeSetInput{ChangeSetName: set.Id})
	g.Expect(codeOf(err)).To(Equal("InvalidChangeSetStatus"))
	out, err := w.hub.DescribeStacks(t.Context(), &api.DescribeStacksInput{StackName: name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out.Stacks[0].StackStatus)).To(Equal("CREATE_IN_PROGRESS"))
	created := api.NewStackCreateCompleteWaiter(w.hub, func(o *api.StackCreateCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Millisecond, time.Millisecond
	})
	g.Expect(created.Wait(t.Context(), &api.DescribeStacksInput{StackName: name}, patience)).To(Succeed())
}

// The end of the server ends the work of a stack.
func TestStop(t *testing.T) {
	g := NewWithT(t)
	w := start(t, cloudformation.Options{})
	w.Inject(aws.Rule{Match: aws.Match{Service: "sqs", Action: "CreateQueue"}, Hang: true})
	set, err := w.hub.changeSet("capstan", template(t, "hub"), "CREATE")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.hub.ExecuteChangeSet(t.Context(), &api.ExecuteChangeSetInput{ChangeSetName: set.ChangeSetId})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return w.UnderWay(aws.Match{Action: "CreateQueue"}) }, patience).Should(Equal(1))
	w.Server.Stop()
	g.Expect(w.Count(aws.Match{Action: "CreateQueue"})).To(Equal(1), "the stack makes no other calls")
}
