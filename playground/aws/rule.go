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

// Rule changes what happens to matching calls, before their service gets them.
type Rule struct {
	Match
	// Times is how often the rule applies; without a limit when 0.
	Times int
	// Latency before anything else, by the Server's clock.
	Latency time.Duration
	// Hang sends no response until the caller cancels the call, or the Server stops.
	Hang bool
	// Cut closes the connection without a response.
	Cut bool
	// Deny denies the calls, with the text of AWS, which has the caller, action and resource.
	Deny bool
	// Fault in the response; the service answers when nil.
	Fault *Fault
}

type activeRule struct {
	Rule
	left int
}

// Inject adds a rule before the earlier ones. Only the first matching rule applies to a
// call. The returned function removes the rule.
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

// ruleFor returns the rule for a call, or the zero Rule.
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
