package iam

import (
	"fmt"
	"net/http"
	"slices"
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

// action of IAM, with the parameters that it has.
type action struct {
	do         func(s *Service, c *aws.Call) (any, *aws.Fault)
	parameters []string
}

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

var actions = map[string]action{
	"CreateRole":               {(*Service).createRoleLocked, []string{roleParameter, trustParameter, descriptionParameter, sessionParameter}},
	"GetRole":                  {(*Service).getRoleLocked, []string{roleParameter}},
	"UpdateRole":               {(*Service).updateRoleLocked, []string{roleParameter, descriptionParameter, sessionParameter}},
	"UpdateAssumeRolePolicy":   {(*Service).updateTrustLocked, []string{roleParameter, documentParameter}},
	"DeleteRole":               {(*Service).deleteRoleLocked, []string{roleParameter}},
	"PutRolePolicy":            {(*Service).putRolePolicyLocked, []string{roleParameter, policyNameParameter, documentParameter}},
	"GetRolePolicy":            {(*Service).getRolePolicyLocked, []string{roleParameter, policyNameParameter}},
	"ListRolePolicies":         {(*Service).listRolePoliciesLocked, []string{roleParameter, "Marker", "MaxItems"}},
	"DeleteRolePolicy":         {(*Service).deleteRolePolicyLocked, []string{roleParameter, policyNameParameter}},
	"CreatePolicy":             {(*Service).createPolicyLocked, []string{policyNameParameter, documentParameter, descriptionParameter}},
	"GetPolicy":                {(*Service).getPolicyLocked, []string{policyARNParameter}},
	"GetPolicyVersion":         {(*Service).getPolicyVersionLocked, []string{policyARNParameter, versionParameter}},
	"ListPolicyVersions":       {(*Service).listPolicyVersionsLocked, []string{policyARNParameter, "Marker", "MaxItems"}},
	"CreatePolicyVersion":      {(*Service).createPolicyVersionLocked, []string{policyARNParameter, documentParameter, defaultParameter}},
	"DeletePolicyVersion":      {(*Service).deletePolicyVersionLocked, []string{policyARNParameter, versionParameter}},
	"DeletePolicy":             {(*Service).deletePolicyLocked, []string{policyARNParameter}},
	"AttachRolePolicy":         {(*Service).attachLocked, []string{roleParameter, policyARNParameter}},
	"DetachRolePolicy":         {(*Service).detachLocked, []string{roleParameter, policyARNParameter}},
	"ListAttachedRolePolicies": {(*Service).listAttachedLocked, []string{roleParameter, "Marker", "MaxItems"}},
	"ListEntitiesForPolicy":    {(*Service).listEntitiesLocked, []string{policyARNParameter, "EntityFilter", "Marker", "MaxItems"}},
}

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	act, known := actions[c.Action]
	if !known {
		return bad("InvalidAction", "Could not find operation %s: it is not simulated", c.Action)
	}
	for name := range c.Form {
		if name != "Action" && name != "Version" && !slices.Contains(act.parameters, name) {
			return bad("ValidationError", "The parameter %s of %s is not simulated", name, c.Action)
		}
	}
	result, fault := s.locked(act, c)
	if fault != nil {
		return fault
	}
	wire.WriteXML(w, namespace, c.Action, result)
	return nil
}

// locked runs an action with the lock.
func (s *Service) locked(act action, c *aws.Call) (any, *aws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return act.do(s, c)
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
		return document{}, bad("MalformedPolicyDocument", "%s", err)
	}
	return document{text, parsed}, nil
}

func bad(code, format string, args ...any) *aws.Fault {
	return &aws.Fault{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

func missing(format string, args ...any) *aws.Fault {
	f := bad("NoSuchEntity", format, args...)
	f.Status = http.StatusNotFound
	return f
}

func conflict(code, format string, args ...any) *aws.Fault {
	f := bad(code, format, args...)
	f.Status = http.StatusConflict
	return f
}

// id returns an id that is unique for a name, in the form of IAM.
func id(prefix, arn string) string {
	return prefix + strings.ToUpper(fmt.Sprintf("%017x", hash(arn)))
}
