package cloudformation_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	iamapi "github.com/aws/aws-sdk-go-v2/service/iam"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/cloudformation"
	"github.com/capstan-hub/capstan/playground/aws/events"
	"github.com/capstan-hub/capstan/playground/aws/iam"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	region = "eu-west-1"
	member = "444455556666"
	// patience is the timeout of waits, for a busy machine.
	patience = 2 * time.Minute
)

// capabilities that the templates need.
var capabilities = []types.Capability{types.CapabilityCapabilityNamedIam}

// world is a server with all services of the templates.
type world struct {
	*testing.T
	*aws.Server
	events *events.Service
	sqs    *sqs.Service
	hub    *account
}

func start(t *testing.T, o cloudformation.Options) *world {
	t.Helper()
	leaks.AtEnd(t)
	roles := iam.New()
	w := &world{T: t, sqs: sqs.New(sqs.Options{Seed: 1})}
	w.events = events.New(events.Options{Queues: w.sqs, Roles: roles})
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.events, w.sqs, roles, cloudformation.New(o)}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Server.Stop)
	w.hub = w.account(aws.Root())
	return w
}

// account is a caller with the clients of its account.
type account struct {
	*testing.T
	*api.Client
	id     string
	queues *sqsapi.Client
	rules  *eventbridge.Client
	iam    *iamapi.Client
}

func (w *world) account(key aws.Session) *account {
	config, closeConnections := w.Config(key, region)
	w.Cleanup(closeConnections)
	return &account{
		T: w.T, Client: api.NewFromConfig(config), id: aws.AccountOf(key.ARN), queues: sqsapi.NewFromConfig(config),
		rules: eventbridge.NewFromConfig(config), iam: iamapi.NewFromConfig(config),
	}
}

// template of Capstan.
func template(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../hub/instancestate/provision/testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// changeSet creates a change set with the stack's name, and waits for it.
func (a *account) changeSet(stack, body string, kind types.ChangeSetType, mode ...types.DeploymentMode) (*api.DescribeChangeSetOutput, error) {
	a.Helper()
	count++
	name := fmt.Sprintf("change-%d", count)
	in := &api.CreateChangeSetInput{
		StackName: &stack, ChangeSetName: &name, ChangeSetType: kind, TemplateBody: &body, Capabilities: capabilities,
	}
	if len(mode) > 0 {
		in.DeploymentMode = mode[0]
	}
	_, err := a.CreateChangeSet(a.Context(), in)
	if err != nil {
		return nil, err
	}
	g := NewWithT(a.T)
	var out *api.DescribeChangeSetOutput
	g.Eventually(func() types.ChangeSetStatus {
		out, err = a.DescribeChangeSet(a.Context(), &api.DescribeChangeSetInput{StackName: &stack, ChangeSetName: &name})
		g.Expect(err).NotTo(HaveOccurred())
		return out.Status
	}, patience, "5ms").ShouldNot(BeElementOf(types.ChangeSetStatusCreateInProgress, types.ChangeSetStatusCreatePending))
	return out, nil
}

// count of change sets, for their names. Tests do not run at the same time.
var count int

// deploy creates or changes a stack, and returns it when the work has ended.
func (a *account) deploy(stack, body string, kind types.ChangeSetType, mode ...types.DeploymentMode) types.Stack {
	a.Helper()
	g := NewWithT(a.T)
	set, err := a.changeSet(stack, body, kind, mode...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.Status).To(Equal(types.ChangeSetStatusCreateComplete), "%s", sdk.ToString(set.StatusReason))
	_, err = a.ExecuteChangeSet(a.Context(), &api.ExecuteChangeSetInput{ChangeSetName: set.ChangeSetId})
	g.Expect(err).NotTo(HaveOccurred())
	return a.ended(stack)
}

// ended waits until no work of a stack is in progress.
func (a *account) ended(stack string) types.Stack {
	a.Helper()
	g := NewWithT(a.T)
	var found types.Stack
	g.Eventually(func() string {
		out, err := a.DescribeStacks(a.Context(), &api.DescribeStacksInput{StackName: &stack})
		g.Expect(err).NotTo(HaveOccurred())
		found = out.Stacks[0]
		return string(found.StackStatus)
	}, patience, "5ms").ShouldNot(HaveSuffix("_IN_PROGRESS"))
	return found
}

// created creates a stack, which must succeed.
func (a *account) created(stack, body string) types.Stack {
	a.Helper()
	s := a.deploy(stack, body, types.ChangeSetTypeCreate)
	NewWithT(a.T).Expect(s.StackStatus).To(Equal(types.StackStatusCreateComplete), "%v", a.reasons(stack))
	return s
}

// reasons returns the reasons of the failed resources in a stack's events, by logical id.
func (a *account) reasons(stack string) map[string]string {
	a.Helper()
	found := map[string]string{}
	pages := api.NewDescribeStackEventsPaginator(a.Client, &api.DescribeStackEventsInput{StackName: &stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(a.Context())
		NewWithT(a.T).Expect(err).NotTo(HaveOccurred())
		for _, e := range page.StackEvents {
			if reason := sdk.ToString(e.ResourceStatusReason); reason != "" && *e.ResourceType != "AWS::CloudFormation::Stack" {
				found[*e.LogicalResourceId] = reason
			}
		}
	}
	return found
}

// resources returns the physical ids of a stack's resources, by logical id.
func (a *account) resources(stack string) map[string]string {
	a.Helper()
	found := map[string]string{}
	pages := api.NewListStackResourcesPaginator(a.Client, &api.ListStackResourcesInput{StackName: &stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(a.Context())
		NewWithT(a.T).Expect(err).NotTo(HaveOccurred())
		for _, r := range page.StackResourceSummaries {
			found[*r.LogicalResourceId] = sdk.ToString(r.PhysicalResourceId)
		}
	}
	return found
}

// names returns the queues and rules of the account.
func (a *account) names() (queues, rules []string) {
	a.Helper()
	g := NewWithT(a.T)
	listed, err := a.queues.ListQueues(a.Context(), &sqsapi.ListQueuesInput{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, url := range listed.QueueUrls {
		queues = append(queues, path.Base(url))
	}
	found, err := a.rules.ListRules(a.Context(), &eventbridge.ListRulesInput{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, r := range found.Rules {
		rules = append(rules, *r.Name)
	}
	return queues, rules
}

func codeOf(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}
