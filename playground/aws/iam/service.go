package iam

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
	"github.com/capstan-hub/capstan/playground/aws/policy"
)

const namespace = "https://iam.amazonaws.com/doc/2010-05-08/"

// Service simulates IAM.
type Service struct {
	// mu guards the fields that follow, and what they have.
	mu sync.Mutex
	// roles and policies by ARN.
	roles    map[string]*role
	policies map[string]*managed
}

var _ aws.Service = &Service{}

// New returns an IAM without roles and policies.
func New() *Service {
	return &Service{roles: map[string]*role{}, policies: map[string]*managed{}}
}

// Trusts implements events.Roles.
func (s *Service) Trusts(arn string, r policy.Request) policy.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	role := s.roles[arn]
	if role == nil {
		return policy.Undecided
	}
	return role.trust.parsed.Evaluate(r)
}

// Permits implements events.Roles.
func (s *Service) Permits(arn string, r policy.Request) policy.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	role := s.roles[arn]
	if role == nil {
		return policy.Undecided
	}
	var decisions []policy.Decision
	for _, d := range role.inline {
		decisions = append(decisions, d.parsed.Evaluate(r))
	}
	for _, attached := range role.attached {
		decisions = append(decisions, s.policies[attached].current().parsed.Evaluate(r))
	}
	return policy.Combine(decisions...)
}

// Name implements aws.Service.
func (s *Service) Name() string { return "iam" }

// Anonymous implements aws.Service.
func (s *Service) Anonymous(string) bool { return false }

const (
	roleParameter        = "RoleName"
	policyNameParameter  = "PolicyName"
	policyARNParameter   = "PolicyArn"
	documentParameter    = "PolicyDocument"
	trustParameter       = "AssumeRolePolicyDocument"
	descriptionParameter = "Description"
	sessionParameter     = "MaxSessionDuration"
	versionParameter     = "VersionId"
	defaultParameter     = "SetAsDefault"
)

var actions = map[string]wire.Action[*Service]{
	"CreateRole":               wire.Do((*Service).createRoleLocked, roleParameter, trustParameter, descriptionParameter, sessionParameter),
	"GetRole":                  wire.Do((*Service).getRoleLocked, roleParameter),
	"UpdateRole":               wire.Do((*Service).updateRoleLocked, roleParameter, descriptionParameter, sessionParameter),
	"UpdateAssumeRolePolicy":   wire.Do((*Service).updateTrustLocked, roleParameter, documentParameter),
	"DeleteRole":               wire.Do((*Service).deleteRoleLocked, roleParameter),
	"PutRolePolicy":            wire.Do((*Service).putRolePolicyLocked, roleParameter, policyNameParameter, documentParameter),
	"GetRolePolicy":            wire.Do((*Service).getRolePolicyLocked, roleParameter, policyNameParameter),
	"ListRolePolicies":         wire.Do((*Service).listRolePoliciesLocked, roleParameter, "Marker", "MaxItems"),
	"DeleteRolePolicy":         wire.Do((*Service).deleteRolePolicyLocked, roleParameter, policyNameParameter),
	"CreatePolicy":             wire.Do((*Service).createPolicyLocked, policyNameParameter, documentParameter, descriptionParameter),
	"GetPolicy":                wire.Do((*Service).getPolicyLocked, policyARNParameter),
	"GetPolicyVersion":         wire.Do((*Service).getPolicyVersionLocked, policyARNParameter, versionParameter),
	"ListPolicyVersions":       wire.Do((*Service).listPolicyVersionsLocked, policyARNParameter, "Marker", "MaxItems"),
	"CreatePolicyVersion":      wire.Do((*Service).createPolicyVersionLocked, policyARNParameter, documentParameter, defaultParameter),
	"DeletePolicyVersion":      wire.Do((*Service).deletePolicyVersionLocked, policyARNParameter, versionParameter),
	"DeletePolicy":             wire.Do((*Service).deletePolicyLocked, policyARNParameter),
	"AttachRolePolicy":         wire.Do((*Service).attachLocked, roleParameter, policyARNParameter),
	"DetachRolePolicy":         wire.Do((*Service).detachLocked, roleParameter, policyARNParameter),
	"ListAttachedRolePolicies": wire.Do((*Service).listAttachedLocked, roleParameter, "Marker", "MaxItems"),
	"ListEntitiesForPolicy":    wire.Do((*Service).listEntitiesLocked, policyARNParameter, "EntityFilter", "Marker", "MaxItems"),
}

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	return wire.Query(w, namespace, actions, s, &s.mu, c)
}

// Refuse implements aws.Service.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) {
	wire.RefuseXML(w, namespace, f)
}

// ResourceOf implements aws.Resourcer.
func (s *Service) ResourceOf(c *aws.Call) string {
	switch {
	case c.Form.Has(roleParameter):
		return "role " + c.Form.Get(roleParameter)
	case c.Form.Has(policyNameParameter):
		return "policy " + c.Form.Get(policyNameParameter)
	}
	return "policy " + c.Form.Get(policyARNParameter)
}

// document of a policy, with its text.
type document struct {
	text   string
	parsed policy.Document
}

// parse parses the document in a parameter.
func parse(c *aws.Call, parameter string, kind policy.Kind) (document, *aws.Fault) {
	text := c.Form.Get(parameter)
	parsed, err := policy.Parse(text, kind)
	if err != nil {
		return document{}, wire.Bad("MalformedPolicyDocument", "%s", err)
	}
	return document{text, parsed}, nil
}

func missing(format string, args ...any) *aws.Fault {
	f := wire.Bad("NoSuchEntity", format, args...)
	f.Status = http.StatusNotFound
	return f
}

func conflict(code, format string, args ...any) *aws.Fault {
	f := wire.Bad(code, format, args...)
	f.Status = http.StatusConflict
	return f
}

// id returns an id that is unique for a name, in the form of IAM.
func id(prefix, arn string) string {
	return prefix + strings.ToUpper(fmt.Sprintf("%017x", hash(arn)))
}
