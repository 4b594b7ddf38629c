package iam

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
	"github.com/capstan-hub/capstan/playground/aws/policy"
)

// maxVersions of a managed policy, as in AWS.
const maxVersions = 5

// managed is a managed policy of an account. Service.mu protects it.
type managed struct {
	name, arn, description string
	created, updated       time.Time
	// versions, oldest first; last is the number of the newest one ever.
	versions []version
	last     int
}

type version struct {
	document
	id        string
	created   time.Time
	isDefault bool
}

// current returns the default version.
func (m *managed) current() version {
	return m.versions[slices.IndexFunc(m.versions, func(v version) bool { return v.isDefault })]
}

func (m *managed) add(d document, now time.Time) version {
	m.last++
	v := version{document: d, id: fmt.Sprintf("v%d", m.last), created: now}
	m.versions, m.updated = append(m.versions, v), now
	return v
}

func (m *managed) setDefault(id string) {
	for i := range m.versions {
		m.versions[i].isDefault = m.versions[i].id == id
	}
}

// policyOfLocked returns the managed policy of a call. Policies of other accounts do not exist for
// the caller.
func (s *Service) policyOfLocked(c *aws.Call) (*managed, *aws.Fault) {
	arn := c.Form.Get(policyARNParameter)
	if m := s.policies[arn]; m != nil && aws.AccountOf(arn) == c.Account {
		return m, nil
	}
	return nil, missing("Policy %s does not exist or is not attachable.", arn)
}

func (s *Service) createPolicyLocked(c *aws.Call) (any, *aws.Fault) {
	name := c.Form.Get(policyNameParameter)
	if !entityName.MatchString(name) {
		return nil, wire.Bad("ValidationError", "The specified value for policyName is invalid: %s", name)
	}
	arn := "arn:aws:iam::" + c.Account + ":policy/" + name
	d, fault := parse(c, documentParameter, policy.Identity)
	switch {
	case fault != nil:
		return nil, fault
	case s.policies[arn] != nil:
		return nil, conflict("EntityAlreadyExists", "A policy called %s already exists. Duplicate names are not allowed.", name)
	}
	m := &managed{name: name, arn: arn, description: c.Form.Get(descriptionParameter), created: c.Server.Clock().Now()}
	m.setDefault(m.add(d, m.created).id)
	s.policies[arn] = m
	return policyResult{s.describedLocked(m)}, nil
}

type policyResult struct{ Policy describedPolicy }

type describedPolicy struct {
	PolicyName, Arn, Path    string
	PolicyID                 string `xml:"PolicyId"`
	DefaultVersionID         string `xml:"DefaultVersionId"`
	AttachmentCount          int
	IsAttachable             bool
	Description              string `xml:",omitempty"`
	CreateDate, UpdateDate   string
	PermissionsBoundaryUsage int `xml:"PermissionsBoundaryUsageCount"`
}

func (s *Service) describedLocked(m *managed) describedPolicy {
	return describedPolicy{
		PolicyName: m.name, Arn: m.arn, Path: "/", PolicyID: id("ANPA", m.arn), DefaultVersionID: m.current().id,
		AttachmentCount: len(s.attachedToLocked(m)), IsAttachable: true, Description: m.description,
		CreateDate: m.created.UTC().Format(time.RFC3339), UpdateDate: m.updated.UTC().Format(time.RFC3339),
	}
}

// attachedToLocked returns the roles with a policy, sorted by name.
func (s *Service) attachedToLocked(m *managed) []*role {
	var roles []*role
	for _, r := range s.roles {
		if slices.Contains(r.attached, m.arn) {
			roles = append(roles, r)
		}
	}
	slices.SortFunc(roles, func(a, b *role) int { return strings.Compare(a.name, b.name) })
	return roles
}

func (s *Service) getPolicyLocked(c *aws.Call) (any, *aws.Fault) {
	m, fault := s.policyOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	return policyResult{s.describedLocked(m)}, nil
}

type describedVersion struct {
	Document         string `xml:",omitempty"`
	VersionID        string `xml:"VersionId"`
	IsDefaultVersion bool
	CreateDate       string
}

func (v version) described(text string) describedVersion {
	return describedVersion{url.PathEscape(text), v.id, v.isDefault, v.created.UTC().Format(time.RFC3339)}
}

type versionResult struct{ PolicyVersion describedVersion }

// versionOfLocked returns the version of a managed policy that a call names.
func (s *Service) versionOfLocked(c *aws.Call) (*managed, version, *aws.Fault) {
	m, fault := s.policyOfLocked(c)
	if fault != nil {
		return nil, version{}, fault
	}
	id := c.Form.Get(versionParameter)
	at := slices.IndexFunc(m.versions, func(v version) bool { return v.id == id })
	if at < 0 {
		return nil, version{}, missing("Policy %s version %s does not exist or is not attachable.", m.arn, id)
	}
	return m, m.versions[at], nil
}

func (s *Service) getPolicyVersionLocked(c *aws.Call) (any, *aws.Fault) {
	_, v, fault := s.versionOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	return versionResult{v.described(v.text)}, nil
}

func (s *Service) listPolicyVersionsLocked(c *aws.Call) (any, *aws.Fault) {
	m, fault := s.policyOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	var versions []describedVersion
	for _, v := range slices.Backward(m.versions) {
		versions = append(versions, v.described(""))
	}
	return struct {
		Versions    []describedVersion `xml:"Versions>member"`
		IsTruncated bool
	}{versions, false}, nil
}

func (s *Service) createPolicyVersionLocked(c *aws.Call) (any, *aws.Fault) {
	m, fault := s.policyOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	d, fault := parse(c, documentParameter, policy.Identity)
	switch {
	case fault != nil:
		return nil, fault
	case len(m.versions) >= maxVersions:
		return nil, conflict("LimitExceeded", "A managed policy can have up to %d versions. Before you create a new version, you must delete an existing version.", maxVersions)
	}
	v := m.add(d, c.Server.Clock().Now())
	if v.isDefault = c.Form.Get(defaultParameter) == "true"; v.isDefault {
		m.setDefault(v.id)
	}
	return versionResult{v.described("")}, nil
}

func (s *Service) deletePolicyVersionLocked(c *aws.Call) (any, *aws.Fault) {
	m, v, fault := s.versionOfLocked(c)
	switch {
	case fault != nil:
		return nil, fault
	case v.isDefault:
		return nil, conflict("DeleteConflict", "Cannot delete the default version of a policy.")
	}
	m.versions = slices.DeleteFunc(m.versions, func(other version) bool { return other.id == v.id })
	return nil, nil
}

func (s *Service) deletePolicyLocked(c *aws.Call) (any, *aws.Fault) {
	m, fault := s.policyOfLocked(c)
	switch {
	case fault != nil:
		return nil, fault
	case len(s.attachedToLocked(m)) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete a policy attached to entities.")
	case len(m.versions) > 1:
		return nil, conflict("DeleteConflict", "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. The default version is deleted with the policy.")
	}
	delete(s.policies, m.arn)
	return nil, nil
}

func (s *Service) attachLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	m, fault := s.policyOfLocked(c)
	switch {
	case fault != nil:
		return nil, fault
	case slices.Contains(r.attached, m.arn):
		return nil, nil
	case len(r.attached) >= maxAttached:
		return nil, conflict("LimitExceeded", "Cannot exceed quota for PoliciesPerRole: %d", maxAttached)
	}
	r.attached = append(r.attached, m.arn)
	slices.Sort(r.attached)
	return nil, nil
}

func (s *Service) detachLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	arn := c.Form.Get(policyARNParameter)
	at := slices.Index(r.attached, arn)
	if at < 0 {
		return nil, missing("Policy %s was not found.", arn)
	}
	r.attached = slices.Delete(r.attached, at, at+1)
	return nil, nil
}

type attachedPolicy struct{ PolicyName, PolicyArn string }

func (s *Service) listAttachedLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	var all []attachedPolicy
	for _, arn := range r.attached {
		all = append(all, attachedPolicy{s.policies[arn].name, arn})
	}
	return struct {
		AttachedPolicies []attachedPolicy `xml:"AttachedPolicies>member"`
		IsTruncated      bool
	}{all, false}, nil
}

type policyRole struct {
	RoleName string
	RoleID   string `xml:"RoleId"`
}

func (s *Service) listEntitiesLocked(c *aws.Call) (any, *aws.Fault) {
	m, fault := s.policyOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	var all []policyRole
	for _, r := range s.attachedToLocked(m) {
		all = append(all, policyRole{r.name, id("AROA", r.arn)})
	}
	return struct {
		PolicyRoles []policyRole `xml:"PolicyRoles>member"`
		IsTruncated bool
	}{all, false}, nil
}
