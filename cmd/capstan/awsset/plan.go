package awsset

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// ErrStack is wrapped by errors about the state of a stack. They say what to do.
var ErrStack = errors.New("the stack cannot be changed")

// Change of a resource.
type Change struct {
	// Action is Add, Modify, Remove or another one of CloudFormation.
	Action  string `json:"action"`
	Type    string `json:"type"`
	Logical string `json:"logical"`
	// Physical is empty before the resource exists, if AWS generates its name.
	Physical    string `json:"physical,omitempty"`
	Replacement string `json:"replacement,omitempty"`
}

// Plan of a stack. It is empty if there is nothing to change. Otherwise Discard or Execute must be called.
type Plan struct {
	*Target
	Stack string
	// Create reports that there is no stack yet.
	Create   bool
	Changes  []Change
	Warnings []string

	changeSet string
}

// Empty reports whether there is nothing to change.
func (p *Plan) Empty() bool { return p.changeSet == "" }

// Plan creates a change set. Errors: of class ErrStack, a Failure, or that of the context. No change
// set remains after an error.
func (t *Target) Plan(ctx context.Context) (*Plan, error) {
	template, err := t.template()
	if err != nil {
		return nil, err
	}
	p := &Plan{Target: t, Stack: t.options.stack()}
	stack, err := t.readStack(ctx)
	switch {
	case err == nil:
		if err := t.changeable(stack); err != nil {
			return nil, err
		}
		p.Create = stack.StackStatus == types.StackStatusReviewInProgress
	case t.failed(err, "", "").Kind == Absent:
		p.Create = true
	default:
		return nil, t.failed(err, "cloudformation:DescribeStacks", p.Stack)
	}
	if !p.Create {
		if p.Warnings, err = t.dropped(ctx, template); err != nil {
			return nil, err
		}
	}
	if err := p.create(ctx, template); err != nil {
		return nil, err
	}
	if p.Empty() {
		return p, nil
	}
	if err := t.foreign(ctx, p.Changes); err != nil {
		return nil, errors.Join(err, p.Discard(ctx))
	}
	return p, nil
}

// changeable returns an error of class ErrStack while a stack cannot be changed.
func (t *Target) changeable(s types.Stack) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: stack %s in %s is %s%s: %s", ErrStack, t.options.stack(), t, s.StackStatus, reason(s), fmt.Sprintf(format, args...))
	}
	switch status := s.StackStatus; {
	case status == types.StackStatusReviewInProgress:
		return nil
	case status == types.StackStatusRollbackComplete, status == types.StackStatusRollbackFailed, status == types.StackStatusCreateFailed, status == types.StackStatusDeleteFailed:
		return refuse("CloudFormation only allows its deletion: run `%s`, and apply again", t.options.command("delete", t))
	case strings.HasSuffix(string(status), "_IN_PROGRESS"):
		return refuse("wait for its end, and apply again")
	case strings.HasSuffix(string(status), "_FAILED"):
		return refuse("run `aws cloudformation continue-update-rollback --region=%s --stack-name=%s`, and apply again", t.Region, t.options.stack())
	}
	return nil
}

// create creates the change set, and reads its changes.
func (p *Plan) create(ctx context.Context, template string) error {
	in := &cloudformation.CreateChangeSetInput{
		StackName: aws.String(p.Stack), ChangeSetName: aws.String("capstan-" + rand.Text()), ChangeSetType: types.ChangeSetTypeCreate,
		TemplateBody: aws.String(template), Capabilities: []types.Capability{types.CapabilityCapabilityIam, types.CapabilityCapabilityNamedIam},
		Description: aws.String("capstan aws-eventing apply"),
	}
	if !p.Create {
		in.ChangeSetType, in.DeploymentMode = types.ChangeSetTypeUpdate, types.DeploymentModeRevertDrift
	}
	out, err := p.stacks.CreateChangeSet(ctx, in)
	if err != nil && in.DeploymentMode != "" && strings.Contains(strings.ToLower(err.Error()), "deploymentmode") {
		p.Warnings = append(p.Warnings, "CloudFormation has no drift-aware change sets here: what was changed by hand is not set back; if check reports such a change, undo it by hand, or delete and apply")
		in.DeploymentMode = ""
		out, err = p.stacks.CreateChangeSet(ctx, in)
	}
	if err != nil {
		return p.failed(err, "cloudformation:CreateChangeSet", p.Stack)
	}
	p.changeSet = aws.ToString(out.Id)
	for {
		read, err := p.stacks.DescribeChangeSet(ctx, &cloudformation.DescribeChangeSetInput{ChangeSetName: &p.changeSet})
		if err != nil {
			return errors.Join(p.failed(err, "cloudformation:DescribeChangeSet", p.Stack), p.Discard(ctx))
		}
		switch read.Status {
		case types.ChangeSetStatusCreateComplete:
			return p.readChanges(ctx, read)
		case types.ChangeSetStatusFailed:
			text := aws.ToString(read.StatusReason)
			discarded := p.Discard(ctx)
			if strings.Contains(text, "didn't contain changes") || strings.Contains(text, "No updates are to be performed") {
				return discarded
			}
			return errors.Join(fmt.Errorf("%w: the change set of stack %s in %s failed: %s", ErrStack, p.Stack, p.Target, text), discarded)
		}
		if err := p.wait(ctx); err != nil {
			return errors.Join(err, p.Discard(ctx))
		}
	}
}

// readChanges reads all pages of the changes.
func (p *Plan) readChanges(ctx context.Context, read *cloudformation.DescribeChangeSetOutput) error {
	set, err := p.set(nil)
	if err != nil {
		return err
	}
	for {
		for _, c := range read.Changes {
			if r := c.ResourceChange; r != nil {
				logical := aws.ToString(r.LogicalResourceId)
				p.Changes = append(p.Changes, Change{
					Action: string(r.Action), Type: aws.ToString(r.ResourceType), Logical: logical, Physical: cmp.Or(aws.ToString(r.PhysicalResourceId), set.Resources[logical].Name), Replacement: string(r.Replacement),
				})
			}
		}
		if aws.ToString(read.NextToken) == "" {
			slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Logical, b.Logical) })
			return nil
		}
		if read, err = p.stacks.DescribeChangeSet(ctx, &cloudformation.DescribeChangeSetInput{ChangeSetName: &p.changeSet, NextToken: read.NextToken}); err != nil {
			return errors.Join(p.failed(err, "cloudformation:DescribeChangeSet", p.Stack), p.Discard(ctx))
		}
	}
}

// wait for the next poll. Errors: that of the context.
func (t *Target) wait(ctx context.Context) error {
	select {
	case <-time.After(t.options.poll()):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for stack %s in %s: %w", t.options.stack(), t, ctx.Err())
	}
}

// discardTimeout bounds Discard, which also runs after an interrupt.
const discardTimeout = 20 * time.Second

// Discard deletes the change set, and the empty stack that it may have created. It also works after
// the context has ended.
func (p *Plan) Discard(ctx context.Context) error {
	if p.Empty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	id := p.changeSet
	p.changeSet, p.Changes = "", nil
	if _, err := p.stacks.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{ChangeSetName: &id}); err != nil {
		return fmt.Errorf("change set %s remains: %w", id, p.failed(err, "cloudformation:DeleteChangeSet", p.Stack))
	}
	if !p.Create {
		return nil
	}
	if _, err := p.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &p.Stack}); err != nil {
		return fmt.Errorf("the empty stack %s in %s remains: %w", p.Stack, p.Target, p.failed(err, "cloudformation:DeleteStack", p.Stack))
	}
	return nil
}

// foreign returns an error of class ErrStack if a resource that the stack would create exists
// outside of it. CloudFormation would fail in the middle.
func (t *Target) foreign(ctx context.Context, changes []Change) error {
	set, err := t.set(nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, change := range changes {
		r, is := set.Resources[change.Logical]
		if change.Action != string(types.ChangeActionAdd) || !is || r.Name == "" {
			continue
		}
		arn := set.ARN(r)
		var action string
		switch r.Type {
		case provision.TypeQueue:
			action = "sqs:GetQueueUrl"
			_, err = t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &r.Name})
		case provision.TypeRule:
			action = "events:DescribeRule"
			_, err = t.events.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: &r.Name})
		case provision.TypeRole:
			action = "iam:GetRole"
			_, err = t.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &r.Name})
		default:
			continue
		}
		switch {
		case err == nil:
			errs = append(errs, fmt.Errorf("%w: %s exists, and stack %s in %s does not have it: delete it, or choose other names with --name, or name the stack that has it with --stack-name", ErrStack, arn, t.options.stack(), t))
		case t.failed(err, action, arn).Kind != Absent:
			errs = append(errs, t.failed(err, action, arn))
		}
	}
	return errors.Join(errs...)
}
