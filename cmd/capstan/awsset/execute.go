package awsset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// follower follows the events of a stack.
type follower struct {
	*Target
	// stack is the id, which also finds a deleted stack.
	stack string
	// since is when the change began, and seen are the events before or already reported.
	seen     map[string]bool
	progress func(string)
	// failures of resources, with AWS' reason.
	failures []string
}

// follow begins to follow a stack.
func (t *Target) follow(ctx context.Context, stack string, progress func(string)) (*follower, error) {
	f := &follower{Target: t, stack: stack, seen: map[string]bool{}, progress: func(string) {}}
	if err := f.read(ctx); err != nil {
		return nil, err
	}
	f.progress, f.failures = progress, nil
	return f, nil
}

// read reports the new events, oldest first.
func (f *follower) read(ctx context.Context) error {
	var events []types.StackEvent
	pages := cloudformation.NewDescribeStackEventsPaginator(f.stacks, &cloudformation.DescribeStackEventsInput{StackName: &f.stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return f.failed(err, "cloudformation:DescribeStackEvents", f.stack)
		}
		known := false
		for _, e := range page.StackEvents {
			known = known || f.seen[aws.ToString(e.EventId)]
			events = append(events, e)
		}
		if known {
			break
		}
	}
	for _, e := range slices.Backward(events) {
		id := aws.ToString(e.EventId)
		if f.seen[id] {
			continue
		}
		f.seen[id] = true
		text := fmt.Sprintf("%s %s %s", e.ResourceStatus, aws.ToString(e.ResourceType), aws.ToString(e.LogicalResourceId))
		if why := aws.ToString(e.ResourceStatusReason); why != "" {
			text += ": " + why
		}
		if strings.HasSuffix(string(e.ResourceStatus), "_FAILED") && !strings.Contains(aws.ToString(e.ResourceStatusReason), "cancelled") {
			f.failures = append(f.failures, text)
		}
		f.progress(text)
	}
	return nil
}

// end waits until the stack has a final state, and returns it.
func (f *follower) end(ctx context.Context) (types.StackStatus, error) {
	for {
		if err := f.read(ctx); err != nil {
			return "", err
		}
		out, err := f.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &f.stack})
		if err != nil {
			return "", f.failed(err, "cloudformation:DescribeStacks", f.stack)
		}
		if len(out.Stacks) > 0 && !strings.HasSuffix(string(out.Stacks[0].StackStatus), "_IN_PROGRESS") {
			return out.Stacks[0].StackStatus, f.read(ctx)
		}
		if err := f.wait(ctx); err != nil {
			return "", fmt.Errorf("%w; CloudFormation continues: `aws cloudformation describe-stack-events --region=%s --stack-name=%s` shows it", err, f.Region, f.options.stack())
		}
	}
}

// failedError describes a change that failed.
func (f *follower) failedError(what string, status types.StackStatus) error {
	why := "AWS gives no reason"
	if len(f.failures) > 0 {
		why = f.failures[0]
	}
	return fmt.Errorf("%s stack %s in %s failed, its state is %s: %s", what, f.options.stack(), f.Target, status, why)
}

// Execute changes the stack as prepared, and waits for its end. Progress gets each event of the
// stack. When it fails, CloudFormation rolls back, and the error has the reason. Once AWS was called,
// Discard does nothing, also after an error: AWS may have accepted the call.
func (p *Plan) Execute(ctx context.Context, progress func(string)) error {
	f, err := p.follow(ctx, p.id, progress)
	if err != nil {
		return err
	}
	id := p.changeSet
	p.changeSet = ""
	if _, err := p.stacks.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{ChangeSetName: &id}); err != nil {
		return fmt.Errorf("%w; CloudFormation may execute the change set of stack %s in %s nevertheless: `aws cloudformation describe-change-set --region=%s --change-set-name=%s` shows its ExecutionStatus; "+
			"if that is AVAILABLE, it was not executed: apply again",
			p.failed(err, "cloudformation:ExecuteChangeSet", p.Stack), p.Stack, p.Target, p.Region, id)
	}
	if err := f.started(ctx); err != nil {
		return err
	}
	status, err := f.end(ctx)
	if err != nil {
		return err
	}
	switch status { //nolint:exhaustive // The others are failures.
	case types.StackStatusCreateComplete, types.StackStatusUpdateComplete, types.StackStatusImportComplete:
		return nil
	case types.StackStatusRollbackComplete:
		return fmt.Errorf("%w; CloudFormation has removed what it created: fix the reason, run `%s`, and apply again", f.failedError("creating", status), p.options.command("delete", p.Target))
	}
	return f.failedError("changing", status)
}

// startTimeout bounds the time between a call and the first event of the stack.
const startTimeout = 10 * time.Second

// started waits until the stack has a new event: before, its state is that of the last change.
func (f *follower) started(ctx context.Context) error {
	before, deadline := len(f.seen), time.Now().Add(startTimeout)
	for len(f.seen) == before && time.Now().Before(deadline) {
		if err := f.read(ctx); err != nil {
			return err
		}
		if len(f.seen) > before {
			return nil
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
