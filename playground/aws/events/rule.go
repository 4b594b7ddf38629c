package events

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/internal/wire"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

const (
	enabled, disabled = "ENABLED", "DISABLED"
	defaultBus        = "default"
	// maxTargets of a rule, as in AWS.
	maxTargets = 5
)

// rule of a bus. Service.mu protects it.
type rule struct {
	Name, Arn, Description, State, EventPattern, EventBusName string

	pattern pattern
	// targets by id.
	targets map[string]target
}

type target struct {
	ID               string `json:"Id"`
	Arn              string
	RoleArn          string      `json:",omitempty"`
	DeadLetterConfig *deadLetter `json:",omitempty"`
}

type deadLetter struct{ Arn string }

var ruleName = regexp.MustCompile(`^[.\-_A-Za-z0-9]{1,64}$`)

// decodeOnBus decodes the parameters of a call into in, and checks the name of the bus there.
func decodeOnBus(c *aws.Call, in any, busName *string) *aws.Fault {
	if fault := decode(c, in); fault != nil {
		return fault
	}
	return bus(*busName)
}

// bus checks the name of a bus.
func bus(name string) *aws.Fault {
	if name != "" && name != defaultBus {
		return wire.Bad("ResourceNotFoundException", "Event bus %s does not exist.", name)
	}
	return nil
}

// onRule decodes the parameters of a call into in, and calls do with the rule that name and busName of in
// give, under the lock.
func (s *Service) onRule(c *aws.Call, in any, name, busName *string, do func(r *rule) (any, *aws.Fault)) (any, *aws.Fault) {
	if fault := decodeOnBus(c, in, busName); fault != nil {
		return nil, fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules[placeOf(c)][*name]
	if r == nil {
		return nil, wire.Bad("ResourceNotFoundException", "Rule %s does not exist on EventBus default.", *name)
	}
	return do(r)
}

func (s *Service) putRule(c *aws.Call) (any, *aws.Fault) {
	var in struct{ Name, Description, State, EventPattern, EventBusName string }
	if fault := decodeOnBus(c, &in, &in.EventBusName); fault != nil {
		return nil, fault
	}
	if in.State == "" {
		in.State = enabled
	}
	switch {
	case !ruleName.MatchString(in.Name):
		return nil, wire.Bad("ValidationException", "1 validation error detected: Value '%s' at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+", in.Name)
	case in.State != enabled && in.State != disabled:
		return nil, wire.Bad("ValidationException", "The State %s is not simulated.", in.State)
	case in.EventPattern == "":
		return nil, wire.Bad("ValidationException", "Parameter(s) EventPattern or ScheduleExpression must be specified.")
	}
	p, err := parsePattern(in.EventPattern)
	if err != nil {
		return nil, wire.Bad("InvalidEventPatternException", "Event pattern is not valid. Reason: %s", err)
	}
	at := placeOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules[at] == nil {
		s.rules[at] = map[string]*rule{}
	}
	r := s.rules[at][in.Name]
	if r == nil {
		r = &rule{Name: in.Name, Arn: ruleARN(at, in.Name), EventBusName: defaultBus, targets: map[string]target{}}
		s.rules[at][in.Name] = r
	}
	r.Description, r.State, r.EventPattern, r.pattern = in.Description, in.State, in.EventPattern, p
	return map[string]string{"RuleArn": r.Arn}, nil
}

func (s *Service) describeRule(c *aws.Call) (any, *aws.Fault) {
	var in struct{ Name, EventBusName string }
	return s.onRule(c, &in, &in.Name, &in.EventBusName, func(r *rule) (any, *aws.Fault) {
		return described(r), nil
	})
}

func described(r *rule) map[string]string {
	out := map[string]string{"Name": r.Name, "Arn": r.Arn, "State": r.State, "EventPattern": r.EventPattern, "EventBusName": r.EventBusName}
	if r.Description != "" {
		out["Description"] = r.Description
	}
	return out
}

func (s *Service) listRules(c *aws.Call) (any, *aws.Fault) {
	var in struct{ NamePrefix, EventBusName string }
	if fault := decodeOnBus(c, &in, &in.EventBusName); fault != nil {
		return nil, fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := s.rules[placeOf(c)]
	all := []map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if strings.HasPrefix(name, in.NamePrefix) {
			all = append(all, described(rules[name]))
		}
	}
	return map[string]any{"Rules": all}, nil
}

func (s *Service) deleteRule(c *aws.Call) (any, *aws.Fault) {
	var in struct {
		Name, EventBusName string
		Force              bool
	}
	if fault := decodeOnBus(c, &in, &in.EventBusName); fault != nil {
		return nil, fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := s.rules[placeOf(c)]
	if r := rules[in.Name]; r != nil && len(r.targets) > 0 {
		return nil, wire.Bad("ValidationException", "Rule can't be deleted since it has targets.")
	}
	delete(rules, in.Name) // AWS reports no error for a rule that does not exist.
	return struct{}{}, nil
}

func (s *Service) enableRule(c *aws.Call) (any, *aws.Fault)  { return s.setState(c, enabled) }
func (s *Service) disableRule(c *aws.Call) (any, *aws.Fault) { return s.setState(c, disabled) }

func (s *Service) setState(c *aws.Call, state string) (any, *aws.Fault) {
	var in struct{ Name, EventBusName string }
	return s.onRule(c, &in, &in.Name, &in.EventBusName, func(r *rule) (any, *aws.Fault) {
		r.State = state
		return struct{}{}, nil
	})
}

// failedEntry of a batch.
type failedEntry struct{ TargetId, ErrorCode, ErrorMessage string } //nolint:revive,staticcheck // The name in the protocol.

func (s *Service) putTargets(c *aws.Call) (any, *aws.Fault) {
	var in struct {
		Rule, EventBusName string
		Targets            []target
	}
	return s.onRule(c, &in, &in.Rule, &in.EventBusName, func(r *rule) (any, *aws.Fault) {
		all := maps.Clone(r.targets)
		for _, t := range in.Targets {
			if fault := checkTarget(c, t); fault != nil {
				return nil, fault
			}
			all[t.ID] = t
		}
		if len(all) > maxTargets {
			return nil, wire.Bad("LimitExceededException", "The requested resource exceeds the maximum number allowed.")
		}
		r.targets = all
		return map[string]any{"FailedEntryCount": 0, "FailedEntries": []failedEntry{}}, nil
	})
}

func checkTarget(c *aws.Call, t target) *aws.Fault {
	id, valid := sqs.ParseARN(t.Arn)
	switch {
	case !ruleName.MatchString(t.ID):
		return wire.Bad("ValidationException", "The Id %q of a target is not valid.", t.ID)
	case !valid:
		return wire.Bad("ValidationException", "The target %s has the Arn %s, which is not a queue. Other targets are not simulated.", t.ID, t.Arn)
	case id.Region != c.Region:
		return wire.Bad("ValidationException", "Parameter %s is not valid. Reason: The target is in another region.", t.Arn)
	case t.RoleArn != "" && aws.AccountOf(t.RoleArn) != c.Account:
		return wire.Bad("ValidationException", "Parameter RoleArn of target %s is not valid. Reason: Cross-account pass role is not allowed.", t.ID)
	}
	if t.DeadLetterConfig != nil {
		if dead, valid := sqs.ParseARN(t.DeadLetterConfig.Arn); !valid || dead.Region != c.Region {
			return wire.Bad("ValidationException", "Parameter DeadLetterConfig of target %s is not valid. Reason: It must be a queue of this region.", t.ID)
		}
	}
	return nil
}

func (s *Service) removeTargets(c *aws.Call) (any, *aws.Fault) {
	var in struct {
		Rule, EventBusName string
		IDs                []string `json:"Ids"`
		Force              bool
	}
	return s.onRule(c, &in, &in.Rule, &in.EventBusName, func(r *rule) (any, *aws.Fault) {
		failures := []failedEntry{}
		for _, id := range in.IDs {
			if _, has := r.targets[id]; !has {
				failures = append(failures, failedEntry{id, "ResourceNotFoundException", "Rule " + r.Name + " does not have target " + id + "."})
			}
			delete(r.targets, id)
		}
		return map[string]any{"FailedEntryCount": len(failures), "FailedEntries": failures}, nil
	})
}

func (s *Service) listTargets(c *aws.Call) (any, *aws.Fault) {
	var in struct {
		Rule, EventBusName, NextToken string
		Limit                         *int
	}
	return s.onRule(c, &in, &in.Rule, &in.EventBusName, func(r *rule) (any, *aws.Fault) {
		targets := []target{}
		for _, id := range slices.Sorted(maps.Keys(r.targets)) {
			targets = append(targets, r.targets[id])
		}
		return map[string]any{"Targets": targets}, nil
	})
}
