package cli

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/cmd/capstan/awsset"
	"github.com/capstan-hub/capstan/hub/instancestate/provision"
	"github.com/capstan-hub/capstan/playground/aws"
)

// foreignTemplate is that of another program, whose queue has the logical name of Capstan's.
const foreignTemplate = `{"Resources":{"Queue":{"Type":"AWS::SQS::Queue","Properties":{"QueueName":"orders"}}}}`

// loses puts a proxy before the cloud that loses the first responses of an action: AWS does it, and
// the caller does not know.
func (c *cloud) loses(action string, times int32) {
	c.t.Helper()
	target, err := url.Parse(c.server.Env()["AWS_ENDPOINT_URL"])
	c.Expect(err).NotTo(HaveOccurred())
	var left atomic.Int32
	left.Store(times)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		records := c.server.Records(aws.Match{Service: "cloudformation"})
		if r.Request.Header.Get("X-Of") == "cloudformation" && records[len(records)-1].Action == action && left.Add(-1) >= 0 {
			return http.ErrAbortHandler
		}
		return nil
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "/cloudformation/") {
			r.Header.Set("X-Of", "cloudformation")
		}
		proxy.ServeHTTP(w, r)
	}))
	c.t.Cleanup(front.Close)
	c.t.Setenv("AWS_ENDPOINT_URL", front.URL)
}

// target returns the region of the caller's account.
func (c *cloud) target(o awsset.Options) *awsset.Target {
	c.t.Helper()
	o.Regions, o.Poll = []string{oneRegion}, 10*time.Millisecond
	session, err := awsset.Open(c.t.Context(), o)
	c.Expect(err).NotTo(HaveOccurred())
	c.t.Cleanup(session.Close)
	targets, _ := session.Targets(c.t.Context())
	return targets[0]
}

// changeSet creates a change set of another user in the stack capstan, and waits for it.
func (c *cloud) changeSet(template string, create bool) string {
	c.t.Helper()
	in := &cloudformation.CreateChangeSetInput{
		StackName: sdk.String("capstan"), ChangeSetName: sdk.String("another"), ChangeSetType: types.ChangeSetTypeUpdate, TemplateBody: &template,
		Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam},
	}
	if create {
		in.ChangeSetType = types.ChangeSetTypeCreate
	}
	out, err := c.cloudFormation().CreateChangeSet(c.t.Context(), in)
	c.Expect(err).NotTo(HaveOccurred())
	c.Eventually(func() types.ChangeSetStatus { return c.changeSetStatus(*out.Id) }).Should(Equal(types.ChangeSetStatusCreateComplete))
	return *out.Id
}

func (c *cloud) cloudFormation() *cloudformation.Client {
	return cloudformation.NewFromConfig(c.config(aws.Root(), oneRegion))
}

// changeSetStatus returns the status of a change set of the stack capstan, by id or name; empty if it does not exist.
func (c *cloud) changeSetStatus(id string) types.ChangeSetStatus {
	out, err := c.cloudFormation().DescribeChangeSet(c.t.Context(), &cloudformation.DescribeChangeSetInput{ChangeSetName: &id, StackName: sdk.String("capstan")})
	if err != nil {
		c.Expect(err).To(MatchError(ContainSubstring("ChangeSetNotFound")))
		return ""
	}
	return out.Status
}

// execute executes a change set of another user.
func (c *cloud) execute(id string) {
	c.t.Helper()
	_, err := c.cloudFormation().ExecuteChangeSet(c.t.Context(), &cloudformation.ExecuteChangeSetInput{ChangeSetName: &id})
	c.Expect(err).NotTo(HaveOccurred())
	c.Eventually(func() []string { return c.stacks(aws.Root(), oneRegion) }, time.Minute).Should(ConsistOf("capstan CREATE_COMPLETE"))
}

func (c *cloud) calls(action string) int {
	return len(c.server.Records(aws.Match{Service: "cloudformation", Action: action}))
}

// A plan that is discarded deletes its own change set, and never a stack.
func TestAWSEventingDiscardDeletesNoStack(t *testing.T) {
	c := newCloud(t)
	template, err := provision.Hub(provision.Options{})
	c.Expect(err).NotTo(HaveOccurred())
	// Another user executes his change set of the stack that this plan created.
	p, err := c.target(awsset.Options{}).Plan(t.Context())
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(BeEmpty(), "a plan creates no stack")
	c.Expect(p.Prepare(t.Context())).To(Succeed())
	c.Expect(p.Discard(t.Context())).To(MatchError(ContainSubstring("the empty stack capstan in account " + queueAccount + ", region eu-west-1 remains, because another user may use it: apply uses it, and `capstan aws-eventing delete --regions=eu-west-1` deletes it")))
	c.Expect(p.Discard(t.Context())).To(Succeed(), "nothing is left")
	another := c.changeSet(string(template), true)

	// The stack in review is now that of another user: neither a dry run nor a failure deletes it.
	c.succeeds("apply", "--dry-run", "--regions="+oneRegion)
	restore := c.server.Inject(aws.Rule{Match: aws.Match{Service: "cloudformation", Action: "DescribeChangeSet"}, Deny: true})
	c.Expect(c.fails("apply", "--yes", "--regions="+oneRegion)).NotTo(ContainSubstring("remains"))
	restore()
	c.Expect(c.changeSetStatus(another)).To(Equal(types.ChangeSetStatusCreateComplete))

	p, err = c.target(awsset.Options{}).Plan(t.Context())
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(p.Create).To(BeTrue())
	c.Expect(p.Prepare(t.Context())).To(Succeed())
	c.execute(another)
	c.Expect(p.Discard(t.Context())).To(Succeed())
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(Equal([]string{"capstan CREATE_COMPLETE"}))
	c.Expect(c.calls("DeleteStack")).To(BeZero())
}

// The responses to ExecuteChangeSet are lost: the stack that CloudFormation creates is kept.
func TestAWSEventingExecuteIsNotKnown(t *testing.T) {
	c := newCloud(t)
	c.loses("ExecuteChangeSet", 1000)
	c.Expect(c.fails("apply", "--yes", "--regions="+oneRegion)).To(And(
		ContainSubstring("CloudFormation may execute the change set of stack capstan in account "+queueAccount+", region eu-west-1 nevertheless"),
		ContainSubstring("aws cloudformation describe-change-set --region=eu-west-1 --change-set-name=arn:")))
	c.Eventually(func() []string { return c.stacks(aws.Root(), oneRegion) }, time.Minute).Should(ConsistOf("capstan CREATE_COMPLETE"))
	c.Expect(c.calls("DeleteStack") + c.calls("DeleteChangeSet")).To(BeZero())
}

// The responses to CreateChangeSet are lost: no change set remains.
func TestAWSEventingCreateIsNotKnown(t *testing.T) {
	c := newCloud(t)
	c.succeeds("apply", "--yes", "--regions="+oneRegion)
	name := func() string {
		records := c.server.Records(aws.Match{Service: "cloudformation", Action: "CreateChangeSet"})
		return records[len(records)-1].Form.Get("ChangeSetName")
	}
	c.loses("CreateChangeSet", 1)
	before := c.calls("CreateChangeSet")
	c.Expect(c.succeeds("apply", "--dry-run", "--regions="+oneRegion, "--hub-role=capstan-hub")).To(ContainSubstring("stack capstan is changed"))
	c.Expect(c.calls("CreateChangeSet")).To(BeNumerically(">", before+1), "the SDK repeats the call")
	c.Expect(c.changeSetStatus(name())).To(BeEmpty())

	c.loses("CreateChangeSet", 1000)
	c.fails("apply", "--dry-run", "--regions="+oneRegion, "--hub-role=capstan-hub")
	c.Expect(c.changeSetStatus(name())).To(BeEmpty())
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(Equal([]string{"capstan CREATE_COMPLETE"}))
}

// A stack of another program is neither changed nor deleted.
func TestAWSEventingRefusesForeignStacks(t *testing.T) {
	c := newCloud(t)
	c.execute(c.changeSet(foreignTemplate, true))
	for _, args := range [][]string{{"apply", "--dry-run"}, {"apply", "--yes"}, {"delete", "--dry-run"}, {"delete", "--yes", "--force"}} {
		c.Expect(c.fails(append(args, "--regions="+oneRegion)...)).To(And(
			ContainSubstring("stack capstan in account "+queueAccount+", region eu-west-1 is not one of Capstan"), ContainSubstring("--stack-name")), "%v", args)
	}
	c.Expect(c.calls("CreateChangeSet")).To(Equal(1))
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(Equal([]string{"capstan CREATE_COMPLETE"}))
	c.succeeds("apply", "--yes", "--regions="+oneRegion, "--stack-name=events")
}

// The stack that is deleted is the one that was shown.
func TestAWSEventingDeletesWhatWasShown(t *testing.T) {
	c := newCloud(t)
	c.succeeds("apply", "--yes", "--regions="+oneRegion, "--name=events")
	i, err := c.target(awsset.Options{}).Inventory(t.Context())
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(i.Queues()).To(ConsistOf("events", "events-dead"), "those of the stack, not of --name")
	c.succeeds("delete", "--yes", "--regions="+oneRegion)
	c.succeeds("apply", "--yes", "--regions="+oneRegion)
	before := c.calls("DeleteStack")
	c.Expect(i.Delete(t.Context(), func(string) {})).To(MatchError(ContainSubstring("was changed after it was shown")))
	c.Expect(c.calls("DeleteStack")).To(Equal(before))
	c.Expect(c.stacks(aws.Root(), oneRegion)).To(Equal([]string{"capstan CREATE_COMPLETE"}))

	c.succeeds("delete", "--yes", "--regions="+oneRegion)
	records := c.server.Records(aws.Match{Service: "cloudformation", Action: "DeleteStack"})
	c.Expect(records[len(records)-1].Form.Get("StackName")).To(HavePrefix("arn:"))
}

// Who may assume the consumer's role: the plan warns of a change, and check of further principals.
func TestAWSEventingTrust(t *testing.T) {
	c := newCloud(t)
	const one, two = "arn:aws:iam::999900001111:role/one", "arn:aws:iam::999900001111:role/two"
	set := []string{"--regions=" + oneRegion, "--assumed-by=" + one, "--external-id=abc"}
	c.succeeds(append([]string{"apply", "--yes"}, set...)...)
	plan := func(args ...string) string {
		return c.succeeds(append([]string{"apply", "--dry-run", "--regions=" + oneRegion}, args...)...)
	}
	c.Expect(plan("--assumed-by="+two, "--external-id=abc")).To(And(ContainSubstring(one+" may not assume the role that reads the queue any more, but "+two+" may: is --assumed-by="+two+" right?"), Not(ContainSubstring("external id"))))
	c.Expect(plan("--assumed-by=" + one)).To(And(ContainSubstring("is --external-id=abc missing?"), Not(ContainSubstring("may not assume"))))
	c.Expect(plan("--assumed-by="+one, "--external-id=def")).To(ContainSubstring(`requires the external id def, not "abc"`))
	c.Expect(plan("--assumed-by="+one, "--external-id=abc", "--members="+memberAccount)).NotTo(MatchRegexp("the role that reads the queue"))

	roles := iam.NewFromConfig(c.config(aws.Root(), oneRegion))
	stack, err := c.cloudFormation().DescribeStackResources(t.Context(), &cloudformation.DescribeStackResourcesInput{StackName: sdk.String("capstan"), LogicalResourceId: sdk.String(provision.LogicalConsumerRole)})
	c.Expect(err).NotTo(HaveOccurred())
	role := stack.StackResources[0].PhysicalResourceId
	c.Expect(c.bad(append(set, "--test-event=false")...)).To(BeEmpty())
	_, err = roles.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: sdk.String(`{"Version":"2012-10-17","Statement":[
		{"Sid":"Hub","Effect":"Allow","Principal":{"AWS":"` + one + `"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":"abc"}}},
		{"Sid":"More","Effect":"Allow","Principal":{"AWS":"` + two + `"},"Action":"sts:AssumeRole"}]}`)})
	c.Expect(err).NotTo(HaveOccurred())
	c.Expect(c.bad(append(set, "--test-event=false")...)).To(HaveKeyWithValue("role "+*role, HaveField("Problem", `statement "More" also allows AWS `+two+" to assume the role")))
}
