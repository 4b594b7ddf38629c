package providertest

import "slices"

// Status is the newest state of a check.
type Status struct {
	// SHA is the commit, or Number the pull request, of which it is.
	SHA    string
	Number int64
	// Name, State (pending or success) and Description of it.
	Name, State, Description string
}

// Statuses returns all states of checks that were set, the newest last.
func (s *Server) Statuses() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses)
}

// SetStatus adds a state of a check, as another program does.
func (s *Server) SetStatus(status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, status)
}

// status adds a state of a check, of a commit that is the head of a pull request. If pendingOnce is
// set, one that is pending cannot become pending again.
func (s *Server) status(add Status, pendingOnce bool) error {
	heads := s.PullRequests()
	for i := range heads {
		heads[i] = s.current(heads[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if add.Number == 0 && !slices.ContainsFunc(heads, func(pr PullRequest) bool { return pr.HeadSHA == add.SHA }) {
		return errNoCommit
	}
	if i := len(s.statuses) - 1; pendingOnce && add.State == "pending" && i >= 0 && s.statuses[i].SHA == add.SHA && s.statuses[i].State == add.State {
		return errPending
	}
	s.statuses = append(s.statuses, add)
	return nil
}
