package aws

import (
	"net/url"
	"time"
)

// maxRecords is how many of the last calls Records returns at least.
const maxRecords = 1000

// Record of a call.
type Record struct {
	Time                            time.Time
	Service, Action, Region, Caller string
	// Form of the request, in the query protocols.
	Form url.Values
	// UserAgent of the caller.
	UserAgent string
	// Code of the fault in the response; empty when the call succeeded or hung.
	Code string
}

// tally is the key that calls are counted by.
type tally struct{ service, action, region, caller, code string }

func (s *Server) begin(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay[c] = struct{}{}
}

// record records a call that was answered or canceled.
func (s *Server) record(c *Call, at time.Time, f *Fault) {
	r := Record{
		Time: at, Service: c.Service, Action: c.Action, Region: c.Region, Caller: c.Caller,
		Form: c.Form, UserAgent: c.Request.UserAgent(),
	}
	if f != nil {
		r.Code = f.Code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.underWay, c)
	s.tallies[tally{r.Service, r.Action, r.Region, r.Caller, r.Code}]++
	if s.records = append(s.records, r); len(s.records) >= 2*maxRecords {
		s.records = append([]Record(nil), s.records[len(s.records)-maxRecords:]...)
	}
}

// Count returns the number of ended calls that match, since the start: all of them without
// codes, else those with one of the codes ("" for success).
func (s *Server) Count(m Match, codes ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for t, count := range s.tallies {
		if m.matches(&Call{Service: t.service, Action: t.action, Region: t.region, Caller: t.caller}) && among(t.code, codes) {
			n += count
		}
	}
	return n
}

// UnderWay returns the number of matching calls without a response yet.
func (s *Server) UnderWay(m Match) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.underWay {
		if m.matches(c) {
			n++
		}
	}
	return n
}

// Records returns the matching calls among the last calls, oldest first. It checks at least
// the last thousand calls.
func (s *Server) Records(m Match) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Record
	for _, r := range s.records {
		if m.matches(&Call{Service: r.Service, Action: r.Action, Region: r.Region, Caller: r.Caller}) {
			found = append(found, r)
		}
	}
	return found
}

func among(code string, codes []string) bool {
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return len(codes) == 0
}
