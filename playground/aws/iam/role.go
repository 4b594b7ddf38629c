package iam

import (
	"hash/fnv"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
	"github.com/capstan-hub/capstan/playground/aws/policy"
)

// role of an account. Service.mu protects it.
type role struct {
	name, arn, description string
	created                time.Time
	maxSession             int
	trust                  document
	inline                 map[string]document
	// attached are the ARNs of managed policies, sorted.
	attached []string
}

const defaultSession, maxAttached = 3600, 10

var entityName = regexp.MustCompile(`^[A-Za-z0-9_+=,.@-]{1,128}$`)

// maxRoleName is the longest name of a role; policies have longer ones.
const maxRoleName = 64

func roleARN(account, name string) string { return "arn:aws:iam::" + account + ":role/" + name }

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // It returns no error.
	return h.Sum64()
}

// roleOfLocked returns the role of a call.
func (s *Service) roleOfLocked(c *aws.Call) (*role, *aws.Fault) {
	name := c.Form.Get(roleParameter)
	if r := s.roles[roleARN(c.Account, name)]; r != nil {
		return r, nil
	}
	return nil, missing("The role with name %s cannot be found.", name)
}

func (s *Service) createRoleLocked(c *aws.Call) (any, *aws.Fault) {
	name := c.Form.Get(roleParameter)
	arn := roleARN(c.Account, name)
	if !entityName.MatchString(name) || len(name) > maxRoleName {
		return nil, wire.Bad("ValidationError", "The specified value for roleName is invalid: %s", name)
	}
	trust, fault := parse(c, trustParameter, policy.Trust)
	switch {
	case fault != nil:
		return nil, fault
	case s.roles[arn] != nil:
		return nil, conflict("EntityAlreadyExists", "Role with name %s already exists.", name)
	}
	r := &role{
		name: name, arn: arn, description: c.Form.Get(descriptionParameter), created: c.Server.Clock().Now(),
		trust: trust, inline: map[string]document{}, maxSession: defaultSession,
	}
	if fault := r.setSession(c); fault != nil {
		return nil, fault
	}
	s.roles[arn] = r
	return roleResult{r.described()}, nil
}

func (r *role) setSession(c *aws.Call) *aws.Fault {
	text := c.Form.Get(sessionParameter)
	if text == "" {
		return nil
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 3600 || seconds > 43200 {
		return wire.Bad("ValidationError", "MaxSessionDuration %s is not between 3600 and 43200", text)
	}
	r.maxSession = seconds
	return nil
}

type roleResult struct{ Role describedRole }

type describedRole struct {
	Path, RoleName           string
	RoleID                   string `xml:"RoleId"`
	Arn, CreateDate          string
	AssumeRolePolicyDocument string
	Description              string `xml:",omitempty"`
	MaxSessionDuration       int
}

func (r *role) described() describedRole {
	return describedRole{
		Path: "/", RoleName: r.name, RoleID: id("AROA", r.arn), Arn: r.arn, CreateDate: r.created.UTC().Format(time.RFC3339),
		AssumeRolePolicyDocument: url.PathEscape(r.trust.text), Description: r.description, MaxSessionDuration: r.maxSession,
	}
}

func (s *Service) getRoleLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	return roleResult{r.described()}, nil
}

func (s *Service) updateRoleLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault == nil {
		fault = r.setSession(c)
	}
	if fault != nil {
		return nil, fault
	}
	if c.Form.Has(descriptionParameter) {
		r.description = c.Form.Get(descriptionParameter)
	}
	return nil, nil
}

func (s *Service) updateTrustLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	trust, fault := parse(c, documentParameter, policy.Trust)
	if fault != nil {
		return nil, fault
	}
	r.trust = trust
	return nil, nil
}

func (s *Service) deleteRoleLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	switch {
	case fault != nil:
		return nil, fault
	case len(r.attached) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must detach all policies first.")
	case len(r.inline) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must delete policies first.")
	}
	delete(s.roles, r.arn)
	return nil, nil
}

func (s *Service) putRolePolicyLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	name := c.Form.Get(policyNameParameter)
	if !entityName.MatchString(name) {
		return nil, wire.Bad("ValidationError", "The specified value for policyName is invalid: %s", name)
	}
	d, fault := parse(c, documentParameter, policy.Identity)
	if fault != nil {
		return nil, fault
	}
	r.inline[name] = d
	return nil, nil
}

// inlineOfLocked returns the policy of a role that a call names.
func (s *Service) inlineOfLocked(c *aws.Call) (*role, document, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, document{}, fault
	}
	name := c.Form.Get(policyNameParameter)
	d, has := r.inline[name]
	if !has {
		return nil, document{}, missing("The role policy with name %s cannot be found.", name)
	}
	return r, d, nil
}

func (s *Service) getRolePolicyLocked(c *aws.Call) (any, *aws.Fault) {
	r, d, fault := s.inlineOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	return struct{ RoleName, PolicyName, PolicyDocument string }{r.name, c.Form.Get(policyNameParameter), url.PathEscape(d.text)}, nil
}

func (s *Service) deleteRolePolicyLocked(c *aws.Call) (any, *aws.Fault) {
	r, _, fault := s.inlineOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	delete(r.inline, c.Form.Get(policyNameParameter))
	return nil, nil
}

func (s *Service) listRolePoliciesLocked(c *aws.Call) (any, *aws.Fault) {
	r, fault := s.roleOfLocked(c)
	if fault != nil {
		return nil, fault
	}
	return struct {
		PolicyNames []string `xml:"PolicyNames>member"`
		IsTruncated bool
	}{slices.Sorted(maps.Keys(r.inline)), false}, nil
}
