package aws

import "time"

// Match selects calls; an empty field matches all.
type Match struct {
	// Service such as "ec2".
	Service string
	// Action such as "DescribeInstanceTypes".
	Action string
	// Region such as "eu-west-1".
	Region string
	// Caller's ARN.
	Caller string
}

func (m Match) matches(c *Call) bool {
	return (m.Service == "" || m.Service == c.Service) &&
		(m.Action == "" || m.Action == c.Action) &&
		(m.Region == "" || m.Region == c.Region) &&
		(m.Caller == "" || m.Caller == c.Caller)
}

// Rule is what happens to calls that it matches before their service sees them.
type Rule struct {
	Match
	// Times that the rule applies; always when 0.
	Times int
	// Latency before anything else, by the Server's clock.
	Latency time.Duration
	// Hang leaves the call without an answer until its caller, or the Server, goes.
	Hang bool
	// Fault to answer with; the service itself answers when nil.
	Fault *Fault
}

type activeRule struct {
	Rule
	left int
}

// Inject has a rule apply, before those that were injected earlier. The first that
// matches decides alone. The rule ends with the returned function, if not before.
func (s *Server) Inject(r Rule) (remove func()) {
	active := &activeRule{Rule: r, left: r.Times}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append([]*activeRule{active}, s.rules...)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropLocked(active)
	}
}

// ruleFor a call, or the zero Rule.
func (s *Server) ruleFor(c *Call) Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if !r.matches(c) {
			continue
		}
		if r.Times > 0 {
			if r.left--; r.left == 0 {
				s.dropLocked(r)
			}
		}
		return r.Rule
	}
	return Rule{}
}

// dropLocked removes a rule.
func (s *Server) dropLocked(rule *activeRule) {
	for i, r := range s.rules {
		if r == rule {
			s.rules = append(s.rules[:i:i], s.rules[i+1:]...)
			return
		}
	}
}
