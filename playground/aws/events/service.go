package events

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
	"github.com/capstan-hub/capstan/playground/aws/policy"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

// Roles returns the decisions of roles. Service of package iam implements it.
type Roles interface {
	// Trusts returns the decision of a role's trust policy; Undecided if the role does not exist.
	Trusts(role string, r policy.Request) policy.Decision
	// Permits returns the decision of a role's own policies.
	Permits(role string, r policy.Request) policy.Decision
}

// Options of a Service.
type Options struct {
	// Queues that targets can be.
	Queues *sqs.Service
	// Roles of targets; no role exists when nil.
	Roles Roles
}

// Service simulates EventBridge.
type Service struct {
	queues *sqs.Service
	roles  Roles

	// mu guards the fields that follow, and the rules.
	mu    sync.Mutex
	rules map[place]map[string]*rule
	// organizations by account.
	organizations map[string]string
	stats         map[place]Stats
}

// place of a bus.
type place struct{ account, region string }

// Stats of the deliveries of an account and region. Matched is the sum of the others.
type Stats struct {
	// Matched pairs of an event and a target; Delivered ones; those in a dead-letter queue; and
	// Dropped ones.
	Matched, Delivered, DeadLettered, Dropped int
}

var _ aws.Service = &Service{}

// New returns an EventBridge without rules.
func New(o Options) *Service {
	return &Service{
		queues: o.Queues, roles: o.Roles, rules: map[place]map[string]*rule{},
		organizations: map[string]string{}, stats: map[place]Stats{},
	}
}

// SetOrganization sets the organization of an account, such as o-a1b2c3d4e5, for
// aws:PrincipalOrgID in policies. An empty id removes the account from its organization.
func (s *Service) SetOrganization(account, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.organizations[account] = id
}

// Stats returns the statistics of an account and region.
func (s *Service) Stats(account, region string) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats[place{account, region}]
}

// Name implements aws.Service.
func (s *Service) Name() string { return "events" }

// Anonymous implements aws.Service.
func (s *Service) Anonymous(string) bool { return false }

var actions = map[string]func(s *Service, c *aws.Call) (any, *aws.Fault){
	"PutRule":           (*Service).putRule,
	"DescribeRule":      (*Service).describeRule,
	"ListRules":         (*Service).listRules,
	"DeleteRule":        (*Service).deleteRule,
	"EnableRule":        (*Service).enableRule,
	"DisableRule":       (*Service).disableRule,
	"PutTargets":        (*Service).putTargets,
	"RemoveTargets":     (*Service).removeTargets,
	"ListTargetsByRule": (*Service).listTargets,
	"PutEvents":         (*Service).putEvents,
}

// Serve implements aws.Service.
func (s *Service) Serve(w http.ResponseWriter, c *aws.Call) *aws.Fault {
	act := actions[c.Action]
	if act == nil {
		return wire.Bad("UnknownOperationException", "The operation %s is not simulated.", c.Action)
	}
	out, fault := act(s, c)
	if fault != nil {
		return fault
	}
	wire.WriteJSON(w, http.StatusOK, out)
	return nil
}

// Refuse implements aws.Service.
func (s *Service) Refuse(w http.ResponseWriter, f *aws.Fault) { wire.RefuseJSON(w, f) }

// ResourceOf implements aws.Resourcer.
func (s *Service) ResourceOf(c *aws.Call) string {
	var in struct{ Name, Rule string }
	if json.Unmarshal(c.Body, &in) != nil || in.Name+in.Rule == "" {
		return "arn:aws:events:" + c.Region + ":" + c.Account + ":event-bus/default"
	}
	return ruleARN(placeOf(c), in.Name+in.Rule)
}

func placeOf(c *aws.Call) place { return place{c.Account, c.Region} }

func ruleARN(at place, name string) string {
	return "arn:aws:events:" + at.region + ":" + at.account + ":rule/" + name
}

// decode decodes the parameters of a call, and refuses those that are not simulated.
func decode(c *aws.Call, in any) *aws.Fault {
	decoder := json.NewDecoder(bytes.NewReader(c.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(in); err != nil {
		return wire.Bad("ValidationException", "%s: %s", c.Action, err)
	}
	return nil
}
