package awsset

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

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

// Plan of a stack. It is empty if there is nothing to change. Otherwise it is discarded, or prepared and executed.
type Plan struct {
	*Target
	Stack string
	// Create reports that there is no stack yet, or one without resources.
	Create   bool
	Changes  []Change
	Warnings []string

	template string
	// existed reports that there was a stack of this name, with or without resources.
	existed bool
	// id of the stack, once it is known.
	id string
	// changeSet is the id or, before it is known, the name; empty if there is none to discard.
	changeSet string
}

// Empty reports whether there is nothing to change.
func (p *Plan) Empty() bool { return !p.Create && p.changeSet == "" }

// Plan creates a change set of an existing stack. All resources of a new stack are added: it has no
// change set before Prepare, because AWS would create an empty stack with it. Errors: of class
// ErrStack, a Failure, or that of the context. No change set remains after an error.
func (t *Target) Plan(ctx context.Context) (*Plan, error) {
	template, err := t.template()
	if err != nil {
		return nil, err
	}
	p := &Plan{Target: t, Stack: t.options.stack(), template: template}
	stack, err := t.readStack(ctx)
	switch {
	case err == nil:
		if err := t.changeable(stack); err != nil {
			return nil, err
		}
		p.existed, p.id = true, aws.ToString(stack.StackId)
		p.Create = stack.StackStatus == types.StackStatusReviewInProgress
	case t.failed(err, "", "").Kind == Absent:
		p.Create = true
	default:
		return nil, t.failed(err, "cloudformation:DescribeStacks", p.Stack)
	}
	if p.Create {
		if err := p.addAll(); err != nil {
			return nil, err
		}
		return p, t.foreign(ctx, p.Changes)
	}
	deployed, err := t.deployed(ctx, p.id)
	if err != nil {
		return nil, err
	}
	p.Warnings = dropped(deployed, template)
	if err := p.create(ctx); err != nil {
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

// addAll sets the changes of a new stack.
func (p *Plan) addAll() error {
	set, err := p.set(nil)
	if err != nil {
		return err
	}
	for _, logical := range slices.Sorted(maps.Keys(set.Resources)) {
		r := set.Resources[logical]
		p.Changes = append(p.Changes, Change{Action: string(types.ChangeActionAdd), Type: r.Type, Logical: logical, Physical: r.Name})
	}
	return nil
}

// Prepare creates the change set of a new stack. All plans are prepared before the first is
// executed, so that what CloudFormation refuses is known before anything is changed. The errors are
// those of Plan.
func (p *Plan) Prepare(ctx context.Context) error {
	if !p.Create {
		return nil
	}
	return p.create(ctx)
}

// create creates the change set, and reads its changes. No change set remains after an error.
func (p *Plan) create(ctx context.Context) error {
	name := "capstan-" + rand.Text()
	in := &cloudformation.CreateChangeSetInput{
		StackName: aws.String(cmp.Or(p.id, p.Stack)), ChangeSetName: &name, ChangeSetType: types.ChangeSetTypeCreate,
		TemplateBody: aws.String(p.template), Capabilities: []types.Capability{types.CapabilityCapabilityIam, types.CapabilityCapabilityNamedIam},
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
	var exists *types.AlreadyExistsException
	switch {
	case err == nil:
		p.changeSet, p.id = aws.ToString(out.Id), aws.ToString(out.StackId)
	case errors.As(err, &exists): // The name is random: this was a repetition of a call whose response was lost.
		p.changeSet = name
	case refused(err):
		return p.failed(err, "cloudformation:CreateChangeSet", p.Stack)
	default: // AWS may have accepted it.
		p.changeSet = name
		return errors.Join(p.failed(err, "cloudformation:CreateChangeSet", p.Stack), p.Discard(ctx))
	}
	for {
		read, err := p.describe(ctx, nil)
		if err != nil {
			return errors.Join(err, p.Discard(ctx))
		}
		p.changeSet, p.id = aws.ToString(read.ChangeSetId), aws.ToString(read.StackId)
		if read.Status == types.ChangeSetStatusCreateComplete {
			if p.Create {
				return nil
			}
			if err := p.readChanges(ctx, read); err != nil {
				return errors.Join(err, p.Discard(ctx))
			}
			return nil
		}
		if read.Status == types.ChangeSetStatusFailed {
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

// refused reports whether AWS answered that it did not do what was called.
func refused(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorFault() != smithy.FaultServer && status(err) < http.StatusInternalServerError
}

// status of the response; 0 without one.
func status(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

// describe reads a page of the change set.
func (p *Plan) describe(ctx context.Context, next *string) (*cloudformation.DescribeChangeSetOutput, error) {
	in := &cloudformation.DescribeChangeSetInput{ChangeSetName: &p.changeSet, StackName: aws.String(cmp.Or(p.id, p.Stack)), NextToken: next}
	out, err := p.stacks.DescribeChangeSet(ctx, in)
	if err != nil {
		return nil, p.failed(err, "cloudformation:DescribeChangeSet", p.Stack)
	}
	return out, nil
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
		if read, err = p.describe(ctx, read.NextToken); err != nil {
			return err
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
