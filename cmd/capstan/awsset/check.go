package awsset

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// checker collects the rows of a target.
type checker struct {
	*Target
	rows []Row
	// set has the expected resources, and physical the ids of those of the stack.
	set      *provision.Set
	physical map[string]string
	// found are the URLs of the queues that exist, by name.
	found map[string]string
}

func (c *checker) add(item string, state State, problem, fix string) {
	c.rows = append(c.rows, Row{Account: c.Account, Region: c.Region, Item: item, State: state, Problem: problem, Fix: fix})
}

// judge adds a row: OK without problems.
func (c *checker) judge(item string, problems ...string) {
	if len(problems) == 0 {
		c.add(item, OK, "", "")
		return
	}
	c.add(item, Wrong, strings.Join(problems, "; "), c.options.command("apply", c.Target))
}

// failedRow adds a row about a call that failed. An object that does not exist is created by apply.
func (c *checker) failedRow(item string, err error, action, resource string) {
	f := c.failed(err, action, resource)
	if f.Kind == Absent {
		c.add(item, Missing, "it does not exist", c.options.command("apply", c.Target))
		return
	}
	c.rows = append(c.rows, f.row(c.Target, item))
}

// Check reads the resources of a target and compares them with the template. It sends nothing.
// The error is of the options.
func (t *Target) Check(ctx context.Context) ([]Row, error) {
	c := &checker{Target: t, found: map[string]string{}}
	c.add(ItemCaller, OK, t.Caller, "")
	c.stack(ctx)
	var err error
	if c.set, err = t.set(c.physical); err != nil {
		return nil, err
	}
	c.queues(ctx)
	c.rules(ctx)
	c.roles(ctx)
	return c.rows, nil
}

// stack checks the state of the stack, and reads the ids of its resources.
func (c *checker) stack(ctx context.Context) {
	name := c.options.stack()
	item := "stack " + name
	stack, err := c.readStack(ctx)
	if err != nil {
		c.failedRow(item, err, "cloudformation:DescribeStacks", name)
		return
	}
	apply, remove := c.options.command("apply", c.Target), c.options.command("delete", c.Target)
	switch status := stack.StackStatus; {
	case status == types.StackStatusReviewInProgress:
		c.add(item, Missing, "it has no resources yet: REVIEW_IN_PROGRESS", apply)
		return
	case status == types.StackStatusRollbackComplete, status == types.StackStatusRollbackFailed, status == types.StackStatusCreateFailed:
		c.add(item, Wrong, "its creation failed: "+string(status)+reason(stack), remove+" && "+apply)
		return
	case status == types.StackStatusDeleteFailed:
		c.add(item, Wrong, "its deletion failed: "+string(status)+reason(stack), remove)
	case status == types.StackStatusUpdateRollbackComplete:
		c.add(item, Wrong, "its last change failed and was rolled back"+reason(stack), apply)
	case strings.HasSuffix(string(status), "_IN_PROGRESS"):
		c.add(item, Wrong, "it is being changed: "+string(status), "wait for its end, and check again")
	case strings.HasSuffix(string(status), "_FAILED"):
		c.add(item, Wrong, "its state is "+string(status)+reason(stack), "aws cloudformation continue-update-rollback --region="+c.Region+" --stack-name="+name)
	default:
		c.add(item, OK, "", "")
	}
	out, err := c.stacks.DescribeStackResources(ctx, &cloudformation.DescribeStackResourcesInput{StackName: aws.String(name)})
	if err != nil {
		c.failedRow("resources of stack "+name, err, "cloudformation:DescribeStackResources", name)
		return
	}
	c.physical = map[string]string{}
	for _, r := range out.StackResources {
		c.physical[aws.ToString(r.LogicalResourceId)] = aws.ToString(r.PhysicalResourceId)
	}
}

// readStack returns the stack of the options. The error of a stack that does not exist has class Absent.
func (t *Target) readStack(ctx context.Context) (types.Stack, error) {
	out, err := t.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String(t.options.stack())})
	if err != nil {
		return types.Stack{}, err
	}
	if len(out.Stacks) == 0 {
		return types.Stack{}, &types.StackNotFoundException{Message: aws.String("Stack does not exist")}
	}
	return out.Stacks[0], nil
}

func reason(s types.Stack) string {
	if text := aws.ToString(s.StackStatusReason); text != "" {
		return ": " + text
	}
	return ""
}
