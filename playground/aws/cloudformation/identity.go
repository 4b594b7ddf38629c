package cloudformation

import (
	"context"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

const (
	maxRoleName   = 64
	maxPolicyName = 128
	// maxVersions of a managed policy, as in IAM.
	maxVersions = 5
	documentKey = "PolicyDocument"
)

var roleKind = kind{
	properties: map[string]bool{
		"RoleName": true, "Description": false, "AssumeRolePolicyDocument": false, "ManagedPolicyArns": false, "Policies": false, "MaxSessionDuration": false,
	},
	attributes: []string{"Arn"},
	attribute: func(e environment, physical, _ string) string {
		return "arn:aws:iam::" + e.account + ":role/" + physical
	},
	iam: true, named: "RoleName",
	create: createRole, update: updateRole, read: readRole, remove: removeRole,
}

// roleProperties of AWS::IAM::Role.
type roleProperties struct {
	RoleName, Description    string
	AssumeRolePolicyDocument any
	ManagedPolicyArns        []string
	Policies                 []struct {
		PolicyName     string
		PolicyDocument any
	}
	MaxSessionDuration any
}

// session returns the maximum duration of a session in seconds; nil if it is not set.
func (in roleProperties) session() *int32 {
	n, err := strconv.ParseInt(strings.Trim(text(in.MaxSessionDuration), `"`), 10, 32)
	if err != nil {
		return nil
	}
	return sdk.Int32(int32(n))
}

func (in roleProperties) inline() []string {
	var names []string
	for _, p := range in.Policies {
		names = append(names, p.PolicyName)
	}
	return names
}

func createRole(ctx context.Context, w *worker, logical string, p map[string]any) (string, error) {
	var in roleProperties
	if err := into(p, &in); err != nil {
		return "", err
	}
	name := in.RoleName
	if name == "" {
		name = w.name(logical, maxRoleName)
	}
	create := &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: sdk.String(text(in.AssumeRolePolicyDocument)), MaxSessionDuration: in.session()}
	if in.Description != "" {
		create.Description = &in.Description
	}
	if _, err := w.iam.CreateRole(ctx, create); err != nil {
		return "", err
	}
	return name, in.putPolicies(ctx, w, name, roleProperties{})
}

// putPolicies sets the policies of a role, and removes those that only the old properties
// have.
func (in roleProperties) putPolicies(ctx context.Context, w *worker, name string, old roleProperties) error {
	for _, p := range in.Policies {
		if _, err := w.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &name, PolicyName: sdk.String(p.PolicyName), PolicyDocument: sdk.String(text(p.PolicyDocument))}); err != nil {
			return err
		}
	}
	for _, inline := range without(old.inline(), in.inline()) {
		if _, err := w.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: &name, PolicyName: &inline}); ignoreMissing(err) != nil {
			return err
		}
	}
	for _, arn := range in.ManagedPolicyArns {
		if _, err := w.iam.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: &name, PolicyArn: &arn}); err != nil {
			return err
		}
	}
	for _, arn := range without(old.ManagedPolicyArns, in.ManagedPolicyArns) {
		if _, err := w.iam.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: &name, PolicyArn: &arn}); ignoreMissing(err) != nil {
			return err
		}
	}
	return nil
}

func updateRole(ctx context.Context, w *worker, physical string, before, p map[string]any) error {
	var old, in roleProperties
	if err := into(before, &old); err != nil {
		return err
	}
	if err := into(p, &in); err != nil {
		return err
	}
	if _, err := w.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &physical, PolicyDocument: sdk.String(text(in.AssumeRolePolicyDocument))}); err != nil {
		return err
	}
	if _, err := w.iam.UpdateRole(ctx, &iam.UpdateRoleInput{RoleName: &physical, Description: &in.Description, MaxSessionDuration: in.session()}); err != nil {
		return err
	}
	return in.putPolicies(ctx, w, physical, old)
}

func removeRole(ctx context.Context, w *worker, physical string, p map[string]any) error {
	var in roleProperties
	if err := into(p, &in); err != nil {
		return err
	}
	if err := (roleProperties{}).putPolicies(ctx, w, physical, in); err != nil {
		return err
	}
	_, err := w.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &physical})
	return ignoreMissing(err)
}

var managedPolicyKind = kind{
	properties: map[string]bool{"ManagedPolicyName": true, "Description": true, documentKey: false, "Roles": false},
	attributes: []string{"PolicyArn"},
	attribute:  func(_ environment, physical, _ string) string { return physical },
	iam:        true, named: "ManagedPolicyName",
	create: createManagedPolicy, update: updateManagedPolicy, read: readManagedPolicy, remove: removeManagedPolicy,
}

// managedPolicyProperties of AWS::IAM::ManagedPolicy.
type managedPolicyProperties struct {
	ManagedPolicyName, Description string
	PolicyDocument                 any
	Roles                          []string
}

func createManagedPolicy(ctx context.Context, w *worker, logical string, p map[string]any) (string, error) {
	var in managedPolicyProperties
	if err := into(p, &in); err != nil {
		return "", err
	}
	name := in.ManagedPolicyName
	if name == "" {
		name = w.name(logical, maxPolicyName)
	}
	create := &iam.CreatePolicyInput{PolicyName: &name, PolicyDocument: sdk.String(text(in.PolicyDocument))}
	if in.Description != "" {
		create.Description = &in.Description
	}
	out, err := w.iam.CreatePolicy(ctx, create)
	if err != nil {
		return "", err
	}
	return *out.Policy.Arn, in.attach(ctx, w, *out.Policy.Arn, nil)
}

// attach attaches a policy to its roles, and detaches it from old ones.
func (in managedPolicyProperties) attach(ctx context.Context, w *worker, arn string, old []string) error {
	for _, role := range in.Roles {
		if _, err := w.iam.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: &role, PolicyArn: &arn}); err != nil {
			return err
		}
	}
	for _, role := range without(old, in.Roles) {
		if _, err := w.iam.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: &role, PolicyArn: &arn}); ignoreMissing(err) != nil {
			return err
		}
	}
	return nil
}

func updateManagedPolicy(ctx context.Context, w *worker, physical string, before, p map[string]any) error {
	var old, in managedPolicyProperties
	if err := into(before, &old); err != nil {
		return err
	}
	if err := into(p, &in); err != nil {
		return err
	}
	if document := text(in.PolicyDocument); document != text(old.PolicyDocument) {
		if err := deleteVersions(ctx, w, physical, maxVersions-1); err != nil {
			return err
		}
		if _, err := w.iam.CreatePolicyVersion(ctx, &iam.CreatePolicyVersionInput{PolicyArn: &physical, PolicyDocument: &document, SetAsDefault: true}); err != nil {
			return err
		}
	}
	return in.attach(ctx, w, physical, old.Roles)
}

// deleteVersions deletes the oldest versions of a policy that are not its default, until it
// has at most a number of versions.
func deleteVersions(ctx context.Context, w *worker, arn string, left int) error {
	out, err := w.iam.ListPolicyVersions(ctx, &iam.ListPolicyVersionsInput{PolicyArn: &arn})
	if err != nil {
		return err
	}
	n := len(out.Versions)
	for _, v := range slices.Backward(out.Versions) {
		if n <= left {
			break
		}
		if v.IsDefaultVersion {
			continue
		}
		if _, err := w.iam.DeletePolicyVersion(ctx, &iam.DeletePolicyVersionInput{PolicyArn: &arn, VersionId: v.VersionId}); err != nil {
			return err
		}
		n--
	}
	return nil
}

func removeManagedPolicy(ctx context.Context, w *worker, physical string, p map[string]any) error {
	var in managedPolicyProperties
	if err := into(p, &in); err != nil {
		return err
	}
	if err := (managedPolicyProperties{}).attach(ctx, w, physical, in.Roles); err != nil {
		return err
	}
	if err := deleteVersions(ctx, w, physical, 1); err != nil {
		return ignoreMissing(err)
	}
	_, err := w.iam.DeletePolicy(ctx, &iam.DeletePolicyInput{PolicyArn: &physical})
	return ignoreMissing(err)
}
