package cli

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
	"github.com/capstan-hub/capstan/playground/aws"
)

// halfMade changes and deletes resources of a set with one member, by hand.
func (c *cloud) halfMade() {
	c.t.Helper()
	ctx := c.t.Context()
	hub, member := c.config(aws.Root(), oneRegion), c.config(c.member, oneRegion)
	events, queues := eventbridge.NewFromConfig(hub), sqsapi.NewFromConfig(hub)
	_, err := events.DisableRule(ctx, &eventbridge.DisableRuleInput{Name: sdk.String("capstan-health")})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = events.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: sdk.String("capstan-instances"), Ids: []string{"capstan"}})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = events.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: sdk.String("capstan-instances")})
	c.Expect(err).NotTo(HaveOccurred())
	url, err := queues.GetQueueUrl(ctx, &sqsapi.GetQueueUrlInput{QueueName: sdk.String("capstan")})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = queues.SetQueueAttributes(ctx, &sqsapi.SetQueueAttributesInput{QueueUrl: url.QueueUrl, Attributes: map[string]string{
		"RedrivePolicy": "",
		"Policy":        fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Sid":"Own","Effect":"Allow","Principal":{"AWS":"%[1]s"},"Action":"sqs:SendMessage","Resource":"arn:aws:sqs:eu-west-1:%[1]s:capstan"}]}`, queueAccount),
	}})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = eventbridge.NewFromConfig(member).RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: sdk.String("capstan-health"), Ids: []string{"capstan"}})
	c.Expect(err).NotTo(HaveOccurred())
	_, err = iam.NewFromConfig(member).DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: sdk.String("capstan-events-eu-west-1"), PolicyName: sdk.String("send")})
	c.Expect(err).NotTo(HaveOccurred())
}

// A half-made set: check reports each part with apply as its fix, and apply repairs all of them.
func TestAWSEventingRepairsAHalfMadeSet(t *testing.T) {
	c := newCloud(t)
	set := []string{"--regions=" + oneRegion, "--hub-role=capstan-hub", "--members=" + memberAccount, "--member-role=admin"}
	check := append([]string{"--test-event=false"}, set...)
	apply := append([]string{"apply"}, set...)
	c.succeeds(append(apply, "--yes")...)
	c.Expect(c.bad(check...)).To(BeEmpty())
	c.halfMade()

	found := c.bad(check...)
	problems := map[string]string{}
	for item, row := range found {
		problems[row.Account+" "+item] = string(row.State) + " " + row.Problem
		c.Expect(row.Fix).To(Equal("capstan aws-eventing apply --regions=eu-west-1 --members=444455556666 --hub-role=capstan-hub --member-role=admin"), item)
	}
	c.Expect(problems).To(Equal(map[string]string{
		queueAccount + " queue capstan redrive policy":          "wrong there is none",
		queueAccount + " queue capstan policy":                  "wrong statement RulesOfThisAccount is missing; statement RulesOfMembers is missing; statement OnlyByTLS is missing",
		queueAccount + " rule capstan-health":                   "wrong it is DISABLED",
		queueAccount + " rule capstan-instances":                "missing it does not exist",
		memberAccount + " rule capstan-health target":           "missing the rule has no target capstan",
		memberAccount + " role capstan-events-eu-west-1 policy": "missing it does not exist",
	}))

	// The ids of queues and queue policies have a port or a random part.
	c.Expect(regexp.MustCompile(`\(\S*(/capstan|-[A-Z0-9]{12})\)`).ReplaceAllString(c.succeeds(append(apply, "--dry-run")...), "(id)")).To(Equal(`Account 111122223333, region eu-west-1, as arn:aws:iam::111122223333:root: stack capstan is changed:
  Modify  AWS::Events::Rule         HealthRule (capstan-health)
  Modify  AWS::Events::Rule         InstanceRule (capstan-instances)  Replacement: True
  Modify  AWS::SQS::Queue           Queue (id)
  Modify  AWS::SQS::QueuePolicy     QueuePolicy (id)
Account 444455556666, region eu-west-1, as arn:aws:sts::444455556666:assumed-role/admin/capstan-aws-eventing: stack capstan is changed:
  Modify  AWS::IAM::Role            EventsRole (capstan-events-eu-west-1)
  Modify  AWS::Events::Rule         HealthRule (capstan-health)
`))
	c.Expect(c.bad(check...)).To(HaveLen(len(found)), "a dry run repairs nothing")
	c.succeeds(append(apply, "--yes")...)
	c.Expect(c.bad(check...)).To(BeEmpty())
	c.Expect(strings.Count(c.succeeds(append(apply, "--yes")...), "stack capstan has no changes.")).To(Equal(2))
}

// Where CloudFormation does not know the deployment mode, apply compares templates only, and says so.
func TestAWSEventingWithoutDriftAwareChangeSets(t *testing.T) {
	const warning = "Warning: CloudFormation has no drift-aware change sets here: what was changed by hand is not set back"
	for _, says := range []string{
		"The parameter DeploymentMode is not known",
		"1 validation error detected: Value 'REVERT_DRIFT' at 'deploymentMode' failed to satisfy constraint: Member must satisfy enum value set: []",
	} {
		c := newCloud(t)
		c.succeeds("apply", "--yes", "--regions="+oneRegion)
		_, err := eventbridge.NewFromConfig(c.config(aws.Root(), oneRegion)).DisableRule(t.Context(), &eventbridge.DisableRuleInput{Name: sdk.String("capstan-health")})
		c.Expect(err).NotTo(HaveOccurred())
		// The second call of each apply has no mode. If it had, the simulator would accept it, and the rule would be repaired.
		refuse := func() {
			c.server.Inject(aws.Rule{
				Match: aws.Match{Service: "cloudformation", Action: "CreateChangeSet"}, Times: 1,
				Fault: &aws.Fault{Status: http.StatusBadRequest, Code: "ValidationError", Message: says},
			})
		}
		disabled := HaveKeyWithValue("rule capstan-health", HaveField("State", awsset.Wrong))
		refuse()
		c.Expect(c.succeeds("apply", "--yes", "--regions="+oneRegion)).To(And(ContainSubstring("stack capstan has no changes."), ContainSubstring(warning)))
		c.Expect(c.bad("--test-event=false", "--regions="+oneRegion)).To(disabled)
		refuse()
		c.Expect(c.succeeds("apply", "--yes", "--regions="+oneRegion, "--members="+memberAccount)).To(And(
			MatchRegexp(`Modify +AWS::SQS::QueuePolicy +QueuePolicy`), Not(ContainSubstring("AWS::Events::Rule")), ContainSubstring(warning)))
		c.Expect(c.bad("--test-event=false", "--regions="+oneRegion, "--members="+memberAccount)).To(And(disabled, Not(HaveKey("queue capstan policy"))))
		c.succeeds("apply", "--yes", "--regions="+oneRegion, "--members="+memberAccount)
		c.Expect(c.bad("--test-event=false", "--regions="+oneRegion, "--members="+memberAccount)).NotTo(HaveKey("rule capstan-health"))
	}
}
