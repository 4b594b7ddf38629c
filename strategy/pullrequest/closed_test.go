package pullrequest_test

import (
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// atOnce is the result of a promotion whose pull request is not recorded, as after a crash.
func (s *scene) atOnce(p *capstanv1.Promotion) (strategy.Result, error) {
	p = p.DeepCopy()
	p.Status.PullRequest = nil
	return s.Promote(s.t.Context(), p, always)
}

// Gitea acts upon the deletion of a branch later, and closes the pull request that was opened
// meanwhile from a branch of the same name. No person rejected it: the hub opens the same one
// again, also if it crashed before it recorded the pull request.
func TestClosedLateIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"after the hub deleted the branch": providertest.Robot, "after a person deleted the branch": "ann"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
			p := s.promotion(1, "1.1.0")
			s.promote(p)
			for range 2 {
				s.server.CloseLate(1, user, time.Now(), true)
				g.Expect(s.follow(p).State).To(Equal(strategy.Due))
				g.Expect(s.pulls()).To(Equal("closed 1"), "a check changes nothing")
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
				g.Expect(s.pulls()).To(Equal("open 1"))
				g.Expect(s.follow(p).State).To(Equal(strategy.Open))
			}
			s.server.CloseLate(1, user, time.Now(), true)
			result, err := s.atOnce(p)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.State).To(Equal(strategy.Open))
			g.Expect(s.pulls()).To(Equal("open 1"))

			s.server.SetState(1, providertest.Closed)
			g.Expect(s.follow(p).State).To(Equal(strategy.Closed), "a person rejects it afterwards")
			g.Expect(s.promote(p).State).To(Equal(strategy.Closed))
		})
	}
}

// What a person rejected, or what is in Git already, is not opened again.
func TestClosedForGood(t *testing.T) {
	t.Parallel()
	refuse := func(status int) func(*scene) {
		return func(s *scene) {
			s.server.CloseLate(1, providertest.Robot, time.Now(), true)
			s.server.AddFault(providertest.Fault{Method: http.MethodGet, Path: "/timeline", Status: status, Body: []byte(`{"message":"no"}`)})
		}
	}
	for name, tc := range map[string]struct {
		change func(*scene)
		want   strategy.State
	}{
		"its branch was deleted while it was open": {func(s *scene) {
			s.Delete(s.branch())
			s.server.CloseLate(1, "ann", time.Now(), true)
		}, strategy.Closed},
		"with the account of the hub": {func(s *scene) {
			s.server.CloseLate(1, providertest.Robot, time.Now().Add(-time.Minute), false)
		}, strategy.Closed},
		"the base has the revision": {func(s *scene) {
			s.server.CloseLate(1, providertest.Robot, time.Now(), true)
			s.Commit(gittest.Base, "by hand", map[string]string{manifest: release(s.ns, "prod", "1.1.0")})
		}, strategy.Done},
		"the branch has a person's commit": {func(s *scene) {
			s.Commit(s.branch(), "more", map[string]string{"more.yaml": "a: b\n"})
			s.server.CloseLate(1, providertest.Robot, time.Now(), true)
		}, strategy.Closed},
		"the service has no such events":     {refuse(http.StatusNotFound), strategy.Closed},
		"the token must not read the events": {refuse(http.StatusForbidden), strategy.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
			p := s.promotion(1, "1.1.0")
			s.promote(p)
			tc.change(s)
			g.Expect(s.follow(p).State).To(Equal(tc.want))
			result, err := s.atOnce(p)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.State).To(Equal(tc.want))
			g.Expect(s.pulls()).To(Equal("closed 1"))
		})
	}
}

// Gitea records that it closed a pull request before it records why. Nothing is decided in
// between, nor while the events cannot be read.
func TestClosedAMomentAgo(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*scene){
		"not recorded yet": func(s *scene) { s.server.CloseLate(1, providertest.Robot, time.Now().Add(time.Hour), false) }, // However slow the test is.
		"unreadable": func(s *scene) {
			s.server.CloseLate(1, providertest.Robot, time.Now(), true)
			s.server.AddFault(providertest.Fault{Method: http.MethodGet, Path: "/timeline", Status: http.StatusBadGateway})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
			p := s.promotion(1, "1.1.0")
			s.promote(p)
			change(s)
			if result, err := s.Follow(t.Context(), p); err == nil {
				g.Expect(result.State).To(Equal(strategy.Open))
			}
			_, err := s.atOnce(p)
			g.Expect(err).To(HaveOccurred())
			g.Expect(s.pulls()).To(Equal("closed 1"))

			s.server.ClearFaults()
			s.server.CloseLate(1, providertest.Robot, time.Now(), true)
			g.Expect(s.follow(p).State).To(Equal(strategy.Due))
			g.Expect(s.promote(p).State).To(Equal(strategy.Open))
		})
	}
}
