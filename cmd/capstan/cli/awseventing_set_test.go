package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
	"github.com/capstan-hub/capstan/playground/aws"
	simcloudformation "github.com/capstan-hub/capstan/playground/aws/cloudformation"
	simevents "github.com/capstan-hub/capstan/playground/aws/events"
	simiam "github.com/capstan-hub/capstan/playground/aws/iam"
	simsqs "github.com/capstan-hub/capstan/playground/aws/sqs"
	simsts "github.com/capstan-hub/capstan/playground/aws/sts"
)

const (
	queueAccount  = aws.Account
	memberAccount = "444455556666"
	oneRegion     = "eu-west-1"
	twoRegions    = "eu-west-1,us-east-1"
)

// cloud is a simulated AWS with two accounts, for the process' own environment.
type cloud struct {
	*WithT
	t      *testing.T
	server *aws.Server
	queues *simsqs.Service
	member aws.Session
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{WithT: NewWithT(t), t: t, queues: simsqs.New(simsqs.Options{Seed: 1})}
	roles := simiam.New()
	var err error
	c.server, err = aws.Start(aws.Options{Services: []aws.Service{
		c.queues, roles, simevents.New(simevents.Options{Queues: c.queues, Roles: roles}), simcloudformation.New(simcloudformation.Options{}),
		simsts.New(simsts.Role{ARN: "arn:aws:iam::" + memberAccount + ":role/admin"}),
	}})
	c.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(c.server.Stop)
	for name, value := range c.server.Env() {
		t.Setenv(name, value)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	c.member = c.server.AddKey(aws.RootOf(memberAccount))
	_, err = iam.NewFromConfig(c.config(aws.Root(), oneRegion)).CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: sdk.String("capstan-hub"), AssumeRolePolicyDocument: sdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"pods.eks.amazonaws.com"},"Action":["sts:AssumeRole","sts:TagSession"]}]}`),
	})
	c.Expect(err).NotTo(HaveOccurred())
	return c
}

func (c *cloud) config(key aws.Session, region string) sdk.Config {
	config, done := c.server.Config(key, region)
	c.t.Cleanup(done)
	return config
}

// run runs the command against the cloud.
func (c *cloud) run(args ...string) (code int, out, errOut string) {
	c.t.Helper()
	var o, e bytes.Buffer
	code = Main(c.t.Context(), append([]string{"aws-eventing"}, args...), &o, &e)
	return code, o.String(), e.String()
}

// succeeds runs the command, and returns its output.
func (c *cloud) succeeds(args ...string) string {
	c.t.Helper()
	code, out, errOut := c.run(args...)
	c.Expect(code).To(BeZero(), "%v:\n%s\n%s", args, out, errOut)
	return out
}

// fails runs the command, and returns all of its output.
func (c *cloud) fails(args ...string) string {
	c.t.Helper()
	code, out, errOut := c.run(args...)
	c.Expect(code).To(Equal(1), "%v:\n%s\n%s", args, out, errOut)
	return out + errOut
}

// bad runs check, and returns the rows that are not ok, by account, region and item.
func (c *cloud) bad(args ...string) map[string]awsset.Row {
	c.t.Helper()
	_, out, errOut := c.run(append([]string{"check", "-o=json"}, args...)...)
	var rows []awsset.Row
	c.Expect(json.Unmarshal([]byte(out), &rows)).To(Succeed(), "%s\n%s", out, errOut)
	c.Expect(rows).NotTo(BeEmpty())
	found := map[string]awsset.Row{}
	for _, r := range rows {
		if r.Bad() {
			found[r.Item] = r
		}
	}
	return found
}

// stacks returns the states of all stacks of an account in a region.
func (c *cloud) stacks(key aws.Session, region string) []string {
	c.t.Helper()
	out, err := cloudformation.NewFromConfig(c.config(key, region)).DescribeStacks(c.t.Context(), &cloudformation.DescribeStacksInput{})
	c.Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, s := range out.Stacks {
		all = append(all, *s.StackName+" "+string(s.StackStatus))
	}
	return all
}

// golden compares an output with its file.
func (c *cloud) golden(name, out string) {
	c.t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		c.Expect(os.WriteFile(file, []byte(out), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(out).To(Equal(string(want)))
}

// The life of a set: two accounts, two regions.
func TestAWSEventingSet(t *testing.T) {
	c := newCloud(t)
	set := []string{"--regions=" + twoRegions, "--hub-role=capstan-hub", "--members=" + memberAccount, "--member-role=admin"}
	with := func(verb string, more ...string) []string { return append(append([]string{verb}, set...), more...) }

	c.Expect(c.bad(append(set, "--test-event=false")...)).To(And(HaveKey("stack capstan"), HaveKey("queue capstan"), HaveKey("rule capstan-health"), HaveKey("role capstan-events-eu-west-1")))

	c.golden("aws-eventing-plan", c.succeeds(with("apply", "--dry-run")...))
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty(), "a dry run leaves no stack")
	c.Expect(c.fails(with("apply")...)).To(ContainSubstring("standard input is not a terminal"))
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty())

	_, _, progress := c.run(with("apply", "--yes")...)
	c.Expect(progress).To(And(ContainSubstring("CREATE_COMPLETE AWS::SQS::Queue Queue"), ContainSubstring("Stack capstan in account 444455556666, region us-east-1 is complete.")))
	c.Expect(strings.Index(progress, queueAccount+" us-east-1")).To(BeNumerically("<", strings.Index(progress, memberAccount+" eu-west-1")), "the account with the queue is first")
	c.golden("aws-eventing-check", c.succeeds(with("check", "--test-event=false")...))
	again := c.succeeds(with("apply", "--yes")...)
	c.Expect(strings.Count(again, "stack capstan has no changes.")).To(Equal(4), again)

	// An option that is missing is removed, and the plan warns of it.
	c.Expect(c.succeeds("apply", "--regions="+oneRegion, "--dry-run")).To(And(
		ContainSubstring("Warning: role capstan-hub loses the permissions of a consumer: is --hub-role=capstan-hub missing?"),
		ContainSubstring("Warning: these may not send to the queue any more: "+memberAccount), ContainSubstring("Modify  AWS::SQS::QueuePolicy")))

	c.Expect(c.queues.Put(oneRegion, "capstan", "one", "two")).To(BeNil())
	code, out, errOut := c.run(with("delete", "--dry-run")...)
	c.Expect(code).To(BeZero())
	c.Expect(out).To(ContainSubstring("Warning: 2 messages in queue capstan are lost"))
	c.Expect(errOut).To(ContainSubstring("it was not checked whether an EventingBackend reads the queue"))
	c.Expect(strings.Index(out, memberAccount)).To(BeNumerically("<", strings.Index(out, queueAccount)), "members are first")
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(Equal([]string{"capstan CREATE_COMPLETE"}))
	c.Expect(c.fails(with("delete")...)).To(ContainSubstring("standard input is not a terminal"))
	c.succeeds(with("delete", "--yes")...)
	for _, region := range strings.Split(twoRegions, ",") {
		c.Expect(c.stacks(aws.Root(), region)).To(BeEmpty())
		c.Expect(c.stacks(c.member, region)).To(BeEmpty())
	}
	c.Expect(c.succeeds(with("delete", "--yes")...)).To(ContainSubstring("stack capstan does not exist."))
}

// What can be wrong with a set, and what check says.
func TestAWSEventingCheckFindings(t *testing.T) {
	c := newCloud(t)
	set := []string{"--regions=" + oneRegion, "--hub-role=capstan-hub", "--members=" + memberAccount, "--member-role=admin", "--test-event=false"}
	c.succeeds(append([]string{"apply", "--yes"}, set[:4]...)...)
	c.Expect(c.bad(set...)).To(BeEmpty())
	apply := "capstan aws-eventing apply --regions=eu-west-1 --members=444455556666 --hub-role=capstan-hub --member-role=admin"

	hub, member := c.config(aws.Root(), oneRegion), c.config(c.member, oneRegion)
	events, queues := eventbridge.NewFromConfig(hub), sqsapi.NewFromConfig(hub)
	url, err := queues.GetQueueUrl(t.Context(), &sqsapi.GetQueueUrlInput{QueueName: sdk.String("capstan")})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = queues.SetQueueAttributes(t.Context(), &sqsapi.SetQueueAttributesInput{QueueUrl: url.QueueUrl, Attributes: map[string]string{
		"MessageRetentionPeriod": "3600", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:%s:capstan-dead","maxReceiveCount":5}`, queueAccount),
		"Policy": fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Sid":"Open","Effect":"Allow","Principal":"*","Action":"sqs:SendMessage","Resource":"arn:aws:sqs:eu-west-1:%s:capstan"}]}`, queueAccount),
	}})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = events.DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: sdk.String("capstan-health")})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = events.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: sdk.String("capstan-instances"), EventPattern: sdk.String(`{"source":["aws.ec2"],"detail-type":["EC2 Instance State-change Notification"]}`)})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = eventbridge.NewFromConfig(member).RemoveTargets(t.Context(), &eventbridge.RemoveTargetsInput{Rule: sdk.String("capstan-instances"), Ids: []string{"capstan"}})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = iam.NewFromConfig(member).DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: sdk.String("capstan-events-eu-west-1"), PolicyName: sdk.String("send")})
	c.Expect(err).NotTo(HaveOccurred())

	found := c.bad(set...)
	problems := map[string]string{}
	for item, row := range found {
		problems[item] = string(row.State) + " " + row.Problem
		c.Expect(row.Fix).To(Equal(apply), item)
	}
	c.Expect(problems).To(And(HaveLen(7),
		HaveKeyWithValue("queue capstan", "wrong MessageRetentionPeriod is 3600, not 86400"),
		HaveKeyWithValue("queue capstan redrive policy", "wrong maxReceiveCount is 5, not 20"),
		HaveKeyWithValue("queue capstan policy", `wrong statement RulesOfThisAccount is missing; statement RulesOfMembers is missing; statement OnlyByTLS is missing; statement "Open" allows everyone`),
		HaveKeyWithValue("rule capstan-health", "wrong it is DISABLED"),
		HaveKeyWithValue("rule capstan-instances", And(ContainSubstring(`detail-type lacks "Capstan Test"`), ContainSubstring(`source lacks "aws.autoscaling", "dev.capstan"`))),
		HaveKeyWithValue("rule capstan-instances target", "missing the rule has no target capstan"),
		HaveKeyWithValue("role capstan-events-eu-west-1 policy", "missing it does not exist"),
	))
	c.golden("aws-eventing-check-wrong", c.fails(append([]string{"check"}, set...)...))

	// Half of the set, without a stack.
	_, err = events.RemoveTargets(t.Context(), &eventbridge.RemoveTargetsInput{Rule: sdk.String("capstan-health"), Ids: []string{"capstan"}})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = events.DeleteRule(t.Context(), &eventbridge.DeleteRuleInput{Name: sdk.String("capstan-health")})
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(c.bad(set...)).To(HaveKeyWithValue("rule capstan-health", HaveField("State", awsset.Missing)))
	c.Expect(c.bad(append(set, "--stack-name=other")...)).To(HaveKeyWithValue("stack other", HaveField("State", awsset.Missing)))
}

// A missing right is named, with the caller, and the rest is checked.
func TestAWSEventingMissingRights(t *testing.T) {
	c := newCloud(t)
	set := []string{"--regions=" + oneRegion, "--hub-role=capstan-hub"}
	deny := func(service, action string) func() {
		return c.server.Inject(aws.Rule{Match: aws.Match{Service: service, Action: action}, Deny: true})
	}
	restore := deny("cloudformation", "CreateChangeSet")
	c.Expect(c.fails(append([]string{"apply", "--yes"}, set...)...)).To(ContainSubstring(aws.RootARN + " may not call cloudformation:CreateChangeSet"))
	restore()
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty())
	restore = deny("cloudformation", "DescribeChangeSet")
	c.Expect(c.fails(append([]string{"apply", "--yes"}, set...)...)).To(ContainSubstring("may not call cloudformation:DescribeChangeSet"))
	restore()
	c.succeeds(append([]string{"delete", "--yes"}, set...)...) // The empty stack.
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty())

	// CloudFormation calls with the caller's rights: the creation fails and is undone.
	restore = deny("events", "PutRule")
	c.Expect(c.fails(append([]string{"apply", "--yes"}, set...)...)).To(And(ContainSubstring("events:PutRule"), ContainSubstring("ROLLBACK_COMPLETE"), ContainSubstring("run `capstan aws-eventing delete --regions=eu-west-1")))
	restore()
	c.Expect(c.bad(append(set, "--test-event=false")...)).To(HaveKeyWithValue("stack capstan", And(HaveField("State", awsset.Wrong), HaveField("Fix", ContainSubstring("capstan aws-eventing delete")))))
	c.Expect(c.fails(append([]string{"apply", "--yes"}, set...)...)).To(And(ContainSubstring("ROLLBACK_COMPLETE"), ContainSubstring("CloudFormation only allows its deletion")))
	c.succeeds(append([]string{"delete", "--yes"}, set...)...)
	c.succeeds(append([]string{"apply", "--yes"}, set...)...)

	for _, one := range []struct{ service, action, item, right string }{
		{"events", "DescribeRule", "rule capstan-health", "events:DescribeRule"},
		{"events", "ListTargetsByRule", "rule capstan-health target", "events:ListTargetsByRule"},
		{"sqs", "GetQueueAttributes", "queue capstan", "sqs:GetQueueAttributes"},
		{"iam", "ListAttachedRolePolicies", "role capstan-hub attached policy", "iam:ListAttachedRolePolicies"},
		{"cloudformation", "DescribeStackResources", "resources of stack capstan", "cloudformation:DescribeStackResources"},
	} {
		restore := deny(one.service, one.action)
		found := c.bad(append(set, "--test-event=false")...)
		restore()
		c.Expect(found).To(HaveKeyWithValue(one.item, And(HaveField("State", awsset.Refused),
			HaveField("Problem", aws.RootARN+" may not call "+one.right), HaveField("Fix", ContainSubstring("allow "+one.right+" on ")))), one.right)
		c.Expect(found).NotTo(HaveKey("stack capstan"))
	}
}

// Resources that exist outside of the stack are named before anything is changed.
func TestAWSEventingForeignResources(t *testing.T) {
	c := newCloud(t)
	_, err := sqsapi.NewFromConfig(c.config(aws.Root(), oneRegion)).CreateQueue(t.Context(), &sqsapi.CreateQueueInput{QueueName: sdk.String("capstan")})
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(c.fails("apply", "--yes", "--regions="+oneRegion)).To(And(
		ContainSubstring("arn:aws:sqs:eu-west-1:"+queueAccount+":capstan exists, and stack capstan"), ContainSubstring("--name")))
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty())
	c.succeeds("apply", "--yes", "--regions="+oneRegion, "--name=events")
}

// Callers and flags that are refused, before anything is changed.
func TestAWSEventingRefusesCallers(t *testing.T) {
	c := newCloud(t)
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--account=" + memberAccount}, "--account: the credentials are those of " + aws.RootARN + " in account " + queueAccount},
		{[]string{"--member-of=" + queueAccount}, "--member-of: account " + queueAccount + " is the caller's own"},
		{[]string{"--members=" + queueAccount}, "--members: account " + queueAccount + " is the caller's own"},
		{[]string{"--regions=Ireland"}, `--regions: "Ireland" is not the name of a region`},
		{[]string{"--regions=eu-west-1,eu-west-1"}, "--regions: eu-west-1 is listed twice"},
		{[]string{"--member-role=admin"}, "--member-role: it is assumed in the accounts of --members"},
		{[]string{"--output=wide"}, `--output: "wide" is not one of table, json`},
		{[]string{"--name=a b", "--stack-name=1"}, "--stack-name"},
		{[]string{"--role-arn=arn:aws:iam::" + queueAccount + ":role/missing"}, "may not call sts:AssumeRole"},
	} {
		for _, verb := range []string{"check", "apply", "delete"} {
			args := append([]string{verb}, tc.args...)
			if verb != "check" {
				args = append(args, "--yes")
			}
			c.Expect(c.fails(args...)).To(ContainSubstring(tc.says), "%v", args)
		}
	}
	c.Expect(c.fails("apply", "--yes", "--members=999900001111", "--member-role=admin")).To(And(ContainSubstring("account 999900001111"), ContainSubstring("sts:AssumeRole")))
	c.Expect(c.stacks(aws.Root(), aws.HomeRegion)).To(BeEmpty())
	t.Setenv("AWS_REGION", "")
	c.Expect(c.fails("check")).To(ContainSubstring("--regions: no region is set"))
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	c.Expect(c.fails("check", "--regions="+oneRegion)).To(ContainSubstring("no AWS credentials were found"))
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
	c.Expect(c.fails("check", "--regions=eu-nowhere-1")).To(ContainSubstring("AWS does not accept the credentials in region eu-nowhere-1"))
}

// A member with its own credentials, and one that is not included.
func TestAWSEventingMember(t *testing.T) {
	c := newCloud(t)
	_, _, errOut := c.run("apply", "--yes", "--regions="+oneRegion, "--members="+memberAccount)
	c.Expect(errOut).To(ContainSubstring("run `capstan aws-eventing apply --regions=eu-west-1 --member-of=" + queueAccount + "` with its credentials"))
	out := c.succeeds("check", "--regions="+oneRegion, "--members="+memberAccount, "--test-event=false")
	c.Expect(out).To(And(ContainSubstring("skipped"), ContainSubstring("capstan aws-eventing check --regions=eu-west-1 --member-of="+queueAccount)))
	t.Setenv("AWS_ACCESS_KEY_ID", c.member.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", c.member.SecretAccessKey)
	c.succeeds("apply", "--yes", "--regions="+oneRegion, "--member-of="+queueAccount, "--account="+memberAccount)
	c.Expect(c.bad("--regions="+oneRegion, "--member-of="+queueAccount, "--test-event=false")).To(BeEmpty())
	row := c.succeeds("check", "--regions="+oneRegion, "--member-of="+queueAccount)
	c.Expect(row).To(MatchRegexp(`test event +skipped +the management cluster cannot be read`))
}

// The printed policy has the calls that the commands make, and no others.
func TestAWSEventingCallerPolicy(t *testing.T) {
	c := newCloud(t)
	set := []string{"--regions=" + oneRegion, "--hub-role=capstan-hub", "--members=" + memberAccount, "--member-role=admin"}
	used := func(args ...string) []string {
		before := len(c.server.Records(aws.Match{}))
		c.run(append(args, set...)...)
		var all []string
		for _, r := range c.server.Records(aws.Match{})[before:] {
			all = append(all, r.Service+":"+r.Action)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	rights := awsset.CallerRights()
	allowed := func(more ...[]string) []string { return append(slices.Concat(more...), "sts:AssumeRole") }
	c.Expect(allowed(rights.Check, rights.Apply, rights.Delete)).To(ContainElements(used("apply", "--yes")))
	// What was changed by hand is read, and set back.
	c.halfMade()
	c.Expect(allowed(rights.Check, rights.Apply, rights.Delete)).To(ContainElements(used("apply", "--yes")))
	checked := used("check")
	c.Expect(allowed(rights.Check)).To(ContainElements(checked))
	for _, right := range rights.Check {
		if right != "sqs:ReceiveMessage" && right != "events:PutEvents" { // The test event calls them.
			c.Expect(checked).To(ContainElement(right))
		}
	}
	c.Expect(allowed(rights.Check, rights.Apply, rights.Delete)).To(ContainElements(used("delete", "--yes")))

	out := c.succeeds("print", "--caller-policy")
	var policy struct {
		Statement []struct {
			Sid    string
			Action []string
		}
	}
	c.Expect(json.Unmarshal([]byte(out), &policy)).To(Succeed())
	c.Expect(policy.Statement).To(HaveLen(3))
	c.Expect(policy.Statement[0].Action).To(Equal(rights.Check))
}

// A question is answered by yes, or nothing happens.
func TestConfirmation(t *testing.T) {
	g := NewWithT(t)
	for answer, want := range map[string]error{"y\n": nil, "YES\n": nil, "n\n": errUnconfirmed, "": errUnconfirmed, "yesterday\n": errUnconfirmed} {
		var out bytes.Buffer
		err := (&confirmation{}).ask(t.Context(), strings.NewReader(answer), &out, "Change 2 stacks?")
		if want == nil {
			g.Expect(err).NotTo(HaveOccurred(), answer)
		} else {
			g.Expect(err).To(MatchError(want), answer)
		}
		g.Expect(out.String()).To(Equal("Change 2 stacks? [y/N] "))
	}
}
