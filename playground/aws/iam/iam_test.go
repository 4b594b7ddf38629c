package iam_test

import (
	"errors"
	"net/url"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/iam"
	"github.com/capstan-hub/capstan/playground/aws/policy"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	queueARN  = "arn:aws:sqs:eu-west-1:111122223333:capstan"
	roleARN   = "arn:aws:iam::111122223333:role/events"
	policyARN = "arn:aws:iam::111122223333:policy/consumer"
	trust     = `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sts:AssumeRole"}]}`
	send      = `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "` + queueARN + `"}]}`
	receive   = `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:ReceiveMessage", "Resource": "` + queueARN + `"}]}`
)

var (
	name     = sdk.String("events")
	inline   = sdk.String("send")
	arn      = sdk.String(policyARN)
	toAssume = policy.Request{Principal: policy.Principal{Service: "events.amazonaws.com"}, Action: "sts:AssumeRole", Resource: roleARN}
)

type world struct {
	*aws.Server
	iam *iam.Service
	*api.Client
}

func start(t *testing.T) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{iam: iam.New()}
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.iam}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	w.Client = w.client(t, aws.Root())
	return w
}

func (w *world) client(t *testing.T, key aws.Session) *api.Client {
	config, closeConnections := w.Config(key, "eu-west-1")
	t.Cleanup(closeConnections)
	return api.NewFromConfig(config)
}

// may returns the decision of the role's policies about an action on the queue.
func (w *world) may(action string) policy.Decision {
	return w.iam.Permits(roleARN, policy.Request{Principal: policy.Principal{ARN: roleARN}, Action: action, Resource: queueARN})
}

func codeOf(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

func TestRoles(t *testing.T) {
	g, w := NewWithT(t), start(t)
	ctx := t.Context()
	_, err := w.GetRole(ctx, &api.GetRoleInput{RoleName: name})
	g.Expect(errors.As(err, new(*types.NoSuchEntityException))).To(BeTrue())
	g.Expect(w.iam.Trusts(roleARN, toAssume)).To(Equal(policy.Undecided))
	_, err = w.CreateRole(ctx, &api.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: sdk.String(send)})
	g.Expect(errors.As(err, new(*types.MalformedPolicyDocumentException))).To(BeTrue())
	create := &api.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: sdk.String(trust), Description: sdk.String("d")}
	created, err := w.CreateRole(ctx, create)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*created.Role.Arn).To(Equal(roleARN))
	_, err = w.CreateRole(ctx, create)
	g.Expect(errors.As(err, new(*types.EntityAlreadyExistsException))).To(BeTrue())
	got, err := w.GetRole(ctx, &api.GetRoleInput{RoleName: name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*got.Role.Description).To(Equal("d"))
	g.Expect(url.PathUnescape(*got.Role.AssumeRolePolicyDocument)).To(Equal(trust))
	g.Expect(w.iam.Trusts(roleARN, toAssume)).To(Equal(policy.Allowed))

	_, err = w.PutRolePolicy(ctx, &api.PutRolePolicyInput{RoleName: name, PolicyName: inline, PolicyDocument: sdk.String(send)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.may("sqs:SendMessage")).To(Equal(policy.Allowed))
	g.Expect(w.may("sqs:ReceiveMessage")).To(Equal(policy.Undecided))
	read, err := w.GetRolePolicy(ctx, &api.GetRolePolicyInput{RoleName: name, PolicyName: inline})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(url.PathUnescape(*read.PolicyDocument)).To(Equal(send))
	listed, err := w.ListRolePolicies(ctx, &api.ListRolePoliciesInput{RoleName: name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listed.PolicyNames).To(Equal([]string{"send"}))

	_, err = w.client(t, w.AddKey(aws.RootOf("444455556666"))).GetRole(ctx, &api.GetRoleInput{RoleName: name})
	g.Expect(codeOf(err)).To(Equal("NoSuchEntity"), "another account")
	_, err = w.DeleteRole(ctx, &api.DeleteRoleInput{RoleName: name})
	g.Expect(errors.As(err, new(*types.DeleteConflictException))).To(BeTrue())
	_, err = w.DeleteRolePolicy(ctx, &api.DeleteRolePolicyInput{RoleName: name, PolicyName: inline})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.DeleteRole(ctx, &api.DeleteRoleInput{RoleName: name})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.GetRole(ctx, &api.GetRoleInput{RoleName: name})
	g.Expect(codeOf(err)).To(Equal("NoSuchEntity"))
}

func TestManagedPolicies(t *testing.T) {
	g, w := NewWithT(t), start(t)
	ctx := t.Context()
	_, err := w.CreateRole(ctx, &api.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: sdk.String(trust)})
	g.Expect(err).NotTo(HaveOccurred())
	created, err := w.CreatePolicy(ctx, &api.CreatePolicyInput{PolicyName: sdk.String("consumer"), PolicyDocument: sdk.String(receive)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*created.Policy.Arn).To(Equal(policyARN))
	_, err = w.AttachRolePolicy(ctx, &api.AttachRolePolicyInput{RoleName: name, PolicyArn: arn})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.may("sqs:ReceiveMessage")).To(Equal(policy.Allowed))
	attached, err := w.ListAttachedRolePolicies(ctx, &api.ListAttachedRolePoliciesInput{RoleName: name})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(attached.AttachedPolicies).To(Equal([]types.AttachedPolicy{{PolicyName: sdk.String("consumer"), PolicyArn: arn}}))
	entities, err := w.ListEntitiesForPolicy(ctx, &api.ListEntitiesForPolicyInput{PolicyArn: arn})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entities.PolicyRoles).To(ConsistOf(HaveField("RoleName", HaveValue(Equal("events")))))

	version, err := w.CreatePolicyVersion(ctx, &api.CreatePolicyVersionInput{PolicyArn: arn, PolicyDocument: sdk.String(send), SetAsDefault: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*version.PolicyVersion.VersionId).To(Equal("v2"))
	g.Expect(w.may("sqs:ReceiveMessage")).To(Equal(policy.Undecided))
	g.Expect(w.may("sqs:SendMessage")).To(Equal(policy.Allowed))
	got, err := w.GetPolicy(ctx, &api.GetPolicyInput{PolicyArn: arn})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*got.Policy.DefaultVersionId).To(Equal("v2"))
	g.Expect(*got.Policy.AttachmentCount).To(BeEquivalentTo(1))
	old, err := w.GetPolicyVersion(ctx, &api.GetPolicyVersionInput{PolicyArn: arn, VersionId: sdk.String("v1")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(url.PathUnescape(*old.PolicyVersion.Document)).To(Equal(receive))

	remove := func() error {
		_, err := w.DeletePolicy(ctx, &api.DeletePolicyInput{PolicyArn: arn})
		return err
	}
	g.Expect(remove()).To(MatchError(ContainSubstring("attached to entities")))
	_, err = w.DetachRolePolicy(ctx, &api.DetachRolePolicyInput{RoleName: name, PolicyArn: arn})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.may("sqs:SendMessage")).To(Equal(policy.Undecided))
	g.Expect(remove()).To(MatchError(ContainSubstring("more than one version")))
	_, err = w.DeletePolicyVersion(ctx, &api.DeletePolicyVersionInput{PolicyArn: arn, VersionId: sdk.String("v2")})
	g.Expect(codeOf(err)).To(Equal("DeleteConflict"))
	_, err = w.DeletePolicyVersion(ctx, &api.DeletePolicyVersionInput{PolicyArn: arn, VersionId: sdk.String("v1")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remove()).To(Succeed())
	_, err = w.GetPolicy(ctx, &api.GetPolicyInput{PolicyArn: arn})
	g.Expect(codeOf(err)).To(Equal("NoSuchEntity"))
}

func TestRefused(t *testing.T) {
	g, w := NewWithT(t), start(t)
	_, err := w.GetUser(t.Context(), &api.GetUserInput{})
	g.Expect(codeOf(err)).To(Equal("InvalidAction"))
	_, err = w.CreateRole(t.Context(), &api.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: sdk.String(trust), Path: sdk.String("/x/")})
	g.Expect(err).To(MatchError(ContainSubstring("The parameter Path of CreateRole is not simulated")))
	w.Inject(aws.Rule{Match: aws.Match{Service: "iam", Action: "GetRole"}, Deny: true})
	_, err = w.GetRole(t.Context(), &api.GetRoleInput{RoleName: name})
	g.Expect(codeOf(err)).To(Equal("AccessDenied"))
	g.Expect(err).To(MatchError(ContainSubstring("User: arn:aws:iam::111122223333:root is not authorized to perform: iam:GetRole on resource: role events because")))
	w.Inject(aws.Rule{Match: aws.Match{Service: "iam"}, Fault: &aws.Throttled})
	_, err = w.GetRole(t.Context(), &api.GetRoleInput{RoleName: name})
	g.Expect(codeOf(err)).To(Equal("Throttling"))
}
