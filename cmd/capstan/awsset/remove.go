package awsset

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// Inventory is what a deletion removes.
type Inventory struct {
	*Target
	Stack string
	// Exists is false if there is no stack.
	Exists    bool
	Status    string
	Resources []Change
	// Messages that are lost, by the name of the queue.
	Messages map[string]int

	id string
}

// Inventory reads the stack. Errors: of class ErrStack if it is not one of Capstan, or a Failure.
func (t *Target) Inventory(ctx context.Context) (*Inventory, error) {
	i := &Inventory{Target: t, Stack: t.options.stack(), Messages: map[string]int{}}
	stack, err := t.readStack(ctx)
	if err != nil {
		if f := t.failed(err, "cloudformation:DescribeStacks", i.Stack); f.Kind != Absent {
			return nil, f
		}
		return i, nil
	}
	i.Exists, i.Status, i.id = true, string(stack.StackStatus), aws.ToString(stack.StackId)
	if stack.StackStatus == types.StackStatusReviewInProgress {
		return i, nil // It has neither a template nor resources.
	}
	if _, err := t.deployed(ctx, i.id); err != nil {
		return nil, err
	}
	out, err := t.stacks.DescribeStackResources(ctx, &cloudformation.DescribeStackResourcesInput{StackName: &i.id})
	if err != nil {
		return nil, t.failed(err, "cloudformation:DescribeStackResources", i.Stack)
	}
	for _, r := range out.StackResources {
		if r.ResourceStatus == types.ResourceStatusDeleteComplete {
			continue
		}
		one := Change{Action: "Remove", Type: aws.ToString(r.ResourceType), Logical: aws.ToString(r.LogicalResourceId), Physical: aws.ToString(r.PhysicalResourceId)}
		i.Resources = append(i.Resources, one)
		if one.Type == provision.TypeQueue && one.Physical != "" {
			name := queueName(one.Physical)
			_, attributes, failed := t.readQueue(ctx, name, "arn:"+t.Partition+":sqs:"+t.Region+":"+t.Account+":"+name)
			switch {
			case failed == nil:
				i.Messages[name] = count(attributes)
			case failed.Kind != Absent:
				return nil, failed
			}
		}
	}
	slices.SortFunc(i.Resources, func(a, b Change) int { return strings.Compare(a.Logical, b.Logical) })
	return i, nil
}

// queueName returns the name in the URL of a queue, which is its physical id.
func queueName(physical string) string { return physical[strings.LastIndexByte(physical, '/')+1:] }

// Queues returns the names of the queues of the stack.
func (i *Inventory) Queues() []string {
	var names []string
	for _, r := range i.Resources {
		if r.Type == provision.TypeQueue && r.Physical != "" {
			names = append(names, queueName(r.Physical))
		}
	}
	return names
}

// count returns the number of messages of a queue, visible and in flight.
func count(attributes map[string]string) int {
	n := 0
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		one, _ := strconv.Atoi(attributes[name])
		n += one
	}
	return n
}

// Delete deletes the stack that was read, and waits for its end. It refuses a stack whose state is
// not that of the inventory any more. Errors: of class ErrStack, or a Failure.
func (i *Inventory) Delete(ctx context.Context, progress func(string)) error {
	f, err := i.follow(ctx, i.id, progress)
	if err != nil {
		return err
	}
	out, err := i.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &i.id})
	if err != nil {
		return i.failed(err, "cloudformation:DescribeStacks", i.Stack)
	}
	if len(out.Stacks) == 0 || string(out.Stacks[0].StackStatus) != i.Status {
		return fmt.Errorf("%w: stack %s in %s was changed after it was shown: delete again", ErrStack, i.Stack, i.Target)
	}
	if _, err := i.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &i.id}); err != nil {
		return i.failed(err, "cloudformation:DeleteStack", i.Stack)
	}
	if err := f.started(ctx); err != nil {
		return err
	}
	status, err := f.end(ctx)
	if err != nil {
		if gone, is := err.(*Failure); is && gone.Kind == Absent { //nolint:errorlint // It is not wrapped.
			return nil
		}
		return err
	}
	if status != types.StackStatusDeleteComplete {
		return fmt.Errorf("%w; fix the reason and run `%s`", f.failedError("deleting", status), i.options.command("delete", i.Target))
	}
	return nil
}
