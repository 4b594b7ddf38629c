package awsset

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// discardTimeout bounds Discard, which also runs after an interrupt.
const discardTimeout = 20 * time.Second

// Discard deletes the change set, if there is one that Execute has not used. It never deletes a
// stack: another user may use it since. The error says what remains, also an empty stack, and how
// to delete it. Discard also works after the context has ended.
func (p *Plan) Discard(ctx context.Context) error {
	if p.changeSet == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	changeSet := p.changeSet
	p.changeSet, p.Changes = "", nil
	stack := cmp.Or(p.id, p.Stack)
	_, err := p.stacks.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: &changeSet, StackName: &stack})
	if err != nil {
		if f := p.failed(err, "cloudformation:DeleteChangeSet", p.Stack); f.Kind != Absent {
			return fmt.Errorf("change set %s remains: %w; run `aws cloudformation delete-change-set --region=%s --stack-name=%s --change-set-name=%s`", changeSet, f, p.Region, stack, changeSet)
		}
	}
	if p.existed {
		return nil
	}
	out, err := p.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &stack})
	switch {
	case err != nil:
		if p.failed(err, "", "").Kind == Absent {
			return nil
		}
	case len(out.Stacks) == 0 || out.Stacks[0].StackStatus != types.StackStatusReviewInProgress:
		return nil // It is gone, or another user has changed it.
	default:
		stack = aws.ToString(out.Stacks[0].StackId)
	}
	return fmt.Errorf("the empty stack %s in %s remains, because another user may use it: apply uses it, and `%s` deletes it (%s)", p.Stack, p.Target, p.options.command("delete", p.Target), stack)
}
