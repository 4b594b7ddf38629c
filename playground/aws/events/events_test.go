package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/events"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	region  = "eu-west-1"
	member  = "444455556666"
	ruleARN = "arn:aws:events:eu-west-1:111122223333:rule/instances"
	ofEC2   = `{"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"], "detail": {"state": ["running", "stopped"]}}`
)

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(2 * time.Minute) // A machine may be busy.
	os.Exit(m.Run())
}

// world is a server with EventBridge and SQS, and clients of aws.Account.
type world struct {
	t *testing.T
	*aws.Server
	events *events.Service
	sqs    *sqs.Service
	rules  *eventbridge.Client
	queues *sqsapi.Client
}

func start(t *testing.T) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{t: t, sqs: sqs.New(sqs.Options{Seed: 1})}
	w.events = events.New(events.Options{Queues: w.sqs})
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.events, w.sqs}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	w.rules, w.queues = w.clients(aws.Root())
	return w
}

func (w *world) clients(key aws.Session) (*eventbridge.Client, *sqsapi.Client) {
	config, closeConnections := w.Config(key, region)
	w.t.Cleanup(closeConnections)
	return eventbridge.NewFromConfig(config), sqsapi.NewFromConfig(config)
}

// queue creates a queue that allows a rule to send.
func (w *world) queue(name, allowedRule string) sqs.ID {
	w.t.Helper()
	id := sqs.ID{Account: aws.Account, Region: region, Name: name}
	attributes := map[string]string{}
	if allowedRule != "" {
		attributes["Policy"] = fmt.Sprintf(`{"Statement": [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage",
			"Resource": %q, "Condition": {"ArnEquals": {"aws:SourceArn": %q}, "StringEquals": {"aws:SourceAccount": %q}}}]}`, id.ARN(), allowedRule, aws.Account)
	}
	if _, err := w.queues.CreateQueue(w.t.Context(), &sqsapi.CreateQueueInput{QueueName: &name, Attributes: attributes}); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// rule creates a rule with a target, and with a dead-letter queue unless it has no name.
func (w *world) rule(name, pattern string, target, dead sqs.ID) {
	w.t.Helper()
	g := NewWithT(w.t)
	_, err := w.rules.PutRule(w.t.Context(), &eventbridge.PutRuleInput{Name: &name, EventPattern: &pattern})
	g.Expect(err).NotTo(HaveOccurred())
	t := types.Target{Id: sdk.String("capstan"), Arn: sdk.String(target.ARN())}
	if dead.Name != "" {
		t.DeadLetterConfig = &types.DeadLetterConfig{Arn: sdk.String(dead.ARN())}
	}
	_, err = w.rules.PutTargets(w.t.Context(), &eventbridge.PutTargetsInput{Rule: &name, Targets: []types.Target{t}})
	g.Expect(err).NotTo(HaveOccurred())
}

// publish puts a state change of an instance on the bus of aws.Account.
func (w *world) publish(state string) string {
	w.t.Helper()
	id, err := w.events.Publish(events.Event{
		Account: aws.Account, Region: region, Source: "aws.ec2", DetailType: "EC2 Instance State-change Notification",
		Time: time.Unix(1, 0), Detail: map[string]string{"state": state},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func TestDelivery(t *testing.T) {
	g, w := NewWithT(t), start(t)
	target := w.queue("capstan", ruleARN)
	w.rule("instances", ofEC2, target, sqs.ID{})
	w.publish("pending")
	g.Expect(w.sqs.Messages(target)).To(BeEmpty(), "the pattern does not match")
	id := w.publish("running")
	got := w.sqs.Messages(target)
	g.Expect(got).To(HaveLen(1))
	g.Expect(got[0].Body).To(MatchJSON(`{"version": "0", "id": "` + id + `", "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
		"account": "111122223333", "region": "eu-west-1", "time": "1970-01-01T00:00:01Z", "resources": [], "detail": {"state": "running"}}`))

	_, err := w.rules.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: sdk.String("instances")})
	g.Expect(err).NotTo(HaveOccurred())
	w.publish("running")
	g.Expect(w.sqs.Messages(target)).To(HaveLen(1), "the rule is disabled")
	_, err = w.rules.EnableRule(t.Context(), &eventbridge.EnableRuleInput{Name: sdk.String("instances")})
	g.Expect(err).NotTo(HaveOccurred())
	w.publish("stopped")
	g.Expect(w.sqs.Messages(target)).To(HaveLen(2))
	g.Expect(w.events.Stats(aws.Account, region)).To(Equal(events.Stats{Matched: 2, Delivered: 2}))
	g.Expect(w.events.Stats(member, region)).To(BeZero())
}

func TestDeadLetters(t *testing.T) {
	g, w := NewWithT(t), start(t)
	target, dead, closed := w.queue("capstan", ruleARN+"-of-another"), w.queue("dead", ruleARN), w.queue("closed", "")
	w.rule("instances", ofEC2, target, dead)
	id := w.publish("running")
	g.Expect(w.sqs.Messages(target)).To(BeEmpty())
	letters := w.sqs.Messages(dead)
	g.Expect(letters).To(HaveLen(1))
	g.Expect(letters[0].Body).To(ContainSubstring(id))
	g.Expect(letters[0].Attributes).To(Equal(map[string]string{
		"ERROR_CODE": events.NoPermissions, "RULE_ARN": ruleARN, "TARGET_ARN": target.ARN(),
		"ERROR_MESSAGE": "User: events.amazonaws.com is not authorized to perform: sqs:SendMessage on resource: " + target.ARN(),
	}))

	w.rule("instances", ofEC2, sqs.ID{Account: aws.Account, Region: region, Name: "missing"}, dead)
	w.publish("running")
	g.Expect(w.sqs.Messages(dead)).To(ContainElement(HaveField("Attributes", HaveKeyWithValue("ERROR_CODE", events.NoResource))))

	w.rule("instances", ofEC2, sqs.ID{Account: member, Region: region, Name: "capstan"}, closed)
	w.publish("running")
	g.Expect(w.sqs.Messages(closed)).To(BeEmpty(), "the dead-letter queue does not allow the rule either")
	g.Expect(w.events.Stats(aws.Account, region)).To(Equal(events.Stats{Matched: 3, DeadLettered: 2, Dropped: 1}))

	_, err := w.queues.SetQueueAttributes(t.Context(), &sqsapi.SetQueueAttributesInput{
		QueueUrl: sdk.String(dead.URL(w.Server)), Attributes: map[string]string{"KmsMasterKeyId": "alias/aws/sqs"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	w.rule("instances", ofEC2, dead, sqs.ID{})
	w.publish("running")
	g.Expect(w.events.Stats(aws.Account, region).Dropped).To(Equal(2), "the key of the queue does not allow EventBridge")
}

// A role that does not exist cannot be assumed.
func TestRoleIsMissing(t *testing.T) {
	g, w := NewWithT(t), start(t)
	target, dead := w.queue("capstan", ruleARN), w.queue("dead", ruleARN)
	w.rule("instances", ofEC2, target, dead)
	put := func(role string) error {
		_, err := w.rules.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: sdk.String("instances"), Targets: []types.Target{{
			Id: sdk.String("capstan"), Arn: sdk.String(target.ARN()), RoleArn: &role, DeadLetterConfig: &types.DeadLetterConfig{Arn: sdk.String(dead.ARN())},
		}}})
		return err
	}
	g.Expect(codeOf(put("arn:aws:iam::444455556666:role/events"))).To(Equal("ValidationException"))
	g.Expect(put("arn:aws:iam::111122223333:role/events")).To(Succeed())
	w.publish("running")
	g.Expect(w.sqs.Messages(dead)).To(ConsistOf(HaveField("Attributes", HaveKeyWithValue("ERROR_CODE", events.FailedToAssumeRole))))
}

func TestPutEvents(t *testing.T) {
	g, w := NewWithT(t), start(t)
	target := w.queue("capstan", ruleARN)
	w.rule("instances", `{"source": ["app", "aws.ec2"], "resources": ["r2"]}`, target, sqs.ID{})
	at := time.Unix(100, 0).UTC()
	entry := func(source, detail string) types.PutEventsRequestEntry {
		return types.PutEventsRequestEntry{Source: &source, DetailType: sdk.String("d"), Detail: &detail, Resources: []string{"r1", "r2"}, Time: &at}
	}
	out, err := w.rules.PutEvents(t.Context(), &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{
		entry("app", `{"a": 1}`), entry("aws.ec2", `{}`), entry("app", `[]`), {DetailType: sdk.String("d"), Detail: sdk.String("{}")},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.FailedEntryCount).To(BeEquivalentTo(3))
	g.Expect(out.Entries[0].EventId).NotTo(BeNil())
	var codes []string
	for _, e := range out.Entries[1:] {
		codes = append(codes, *e.ErrorCode)
	}
	g.Expect(codes).To(Equal([]string{"NotAuthorizedForSourceException", "MalformedDetail", "InvalidArgument"}))
	got := w.sqs.Messages(target)
	g.Expect(got).To(HaveLen(1))
	var event struct {
		Time   time.Time
		Detail map[string]int
	}
	g.Expect(json.Unmarshal([]byte(got[0].Body), &event)).To(Succeed())
	g.Expect(event.Time).To(Equal(at))
	g.Expect(event.Detail).To(Equal(map[string]int{"a": 1}))
}

func TestRules(t *testing.T) {
	g, w := NewWithT(t), start(t)
	ctx, name := t.Context(), sdk.String("instances")
	describe := func(client *eventbridge.Client) (*eventbridge.DescribeRuleOutput, error) {
		return client.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: name})
	}
	_, err := describe(w.rules)
	var missing *types.ResourceNotFoundException
	g.Expect(errors.As(err, &missing)).To(BeTrue())
	put, err := w.rules.PutRule(ctx, &eventbridge.PutRuleInput{Name: name, Description: sdk.String("d"), State: types.RuleStateDisabled, EventPattern: sdk.String(ofEC2)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*put.RuleArn).To(Equal(ruleARN))
	got, err := describe(w.rules)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.State).To(Equal(types.RuleStateDisabled))
	g.Expect(*got.Description).To(Equal("d"))
	g.Expect(*got.EventPattern).To(Equal(ofEC2))

	// Another account, and another region, have no such rule.
	others, _ := w.clients(w.AddKey(aws.RootOf(member)))
	_, err = describe(others)
	g.Expect(codeOf(err)).To(Equal("ResourceNotFoundException"))
	_, err = w.rules.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: name}, func(o *eventbridge.Options) { o.Region = "us-east-1" })
	g.Expect(codeOf(err)).To(Equal("ResourceNotFoundException"))

	target := types.Target{Id: sdk.String("capstan"), Arn: sdk.String(sqs.ARN(region, "capstan"))}
	_, err = w.rules.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: name, Targets: []types.Target{target}})
	g.Expect(err).NotTo(HaveOccurred())
	listed, err := w.rules.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed.Targets).To(Equal([]types.Target{target}))
	_, err = w.rules.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: name})
	g.Expect(err).To(MatchError(ContainSubstring("Rule can't be deleted since it has targets.")))
	removed, err := w.rules.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: name, Ids: []string{"capstan", "other"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(removed.FailedEntryCount).To(BeEquivalentTo(1))
	_, err = w.rules.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: name})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = describe(w.rules)
	g.Expect(codeOf(err)).To(Equal("ResourceNotFoundException"))
	_, err = w.rules.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: name})
	g.Expect(err).NotTo(HaveOccurred(), "as in AWS")
	_, err = w.rules.PutRule(ctx, &eventbridge.PutRuleInput{Name: name, EventPattern: sdk.String(ofEC2), RoleArn: sdk.String("x")})
	g.Expect(err).To(MatchError(ContainSubstring("RoleArn")), "a parameter that is not simulated is refused")
}

// Patterns of other forms are refused, and not ignored.
func TestPatterns(t *testing.T) {
	g, w := NewWithT(t), start(t)
	for _, pattern := range []string{
		`nonsense`, `{}`, `{"source": []}`, `{"source": "aws.ec2"}`, `{"source": [{"prefix": "aws."}]}`, `{"source": [null]}`, `{"time": ["x"]}`,
		`{"detail": ["x"]}`, `{"detail": {"n": [1]}}`, `{"detail": {"a": {}}}`, `{"source": {"a": ["x"]}}`, `{"$or": [{"source": ["a"]}]}`,
	} {
		_, err := w.rules.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: sdk.String("r"), EventPattern: &pattern})
		g.Expect(codeOf(err)).To(Equal("InvalidEventPatternException"), pattern)
	}
}

// A denied call has the code and text of AWS in each protocol.
func TestDenied(t *testing.T) {
	g, w := NewWithT(t), start(t)
	const user = "arn:aws:iam::444455556666:user/reader"
	rules, queues := w.clients(w.AddKey(user))
	w.Inject(aws.Rule{Match: aws.Match{Caller: user}, Deny: true})
	_, err := rules.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: sdk.String("instances"), EventPattern: sdk.String(ofEC2)})
	g.Expect(codeOf(err)).To(Equal("AccessDeniedException"))
	g.Expect(err).To(MatchError(ContainSubstring("User: " + user + " is not authorized to perform: events:PutRule on resource: " +
		"arn:aws:events:eu-west-1:444455556666:rule/instances because no identity-based policy allows the events:PutRule action")))
	_, err = queues.CreateQueue(t.Context(), &sqsapi.CreateQueueInput{QueueName: sdk.String("q")})
	g.Expect(codeOf(err)).To(Equal("AccessDenied"))
	g.Expect(err).To(MatchError(ContainSubstring("sqs:createqueue on resource: arn:aws:sqs:eu-west-1:444455556666:q")), "SQS writes actions in lower case")
	w.Inject(aws.Rule{Match: aws.Match{Service: "events"}, Fault: &aws.Throttling})
	_, err = rules.ListRules(t.Context(), &eventbridge.ListRulesInput{})
	g.Expect(codeOf(err)).To(Equal("ThrottlingException"))
	stranger, _ := w.clients(aws.Session{AccessKeyID: "AKIASOMEBODY", SecretAccessKey: "x"})
	_, err = stranger.ListRules(t.Context(), &eventbridge.ListRulesInput{})
	g.Expect(codeOf(err)).To(Equal("UnrecognizedClientException"))
}
