package pullrequest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

func expectReason(g *WithT, err error, reason, part string) {
	var terminal *strategy.TerminalError
	g.ExpectWithOffset(1, errors.As(err, &terminal)).To(BeTrue(), "%v", err)
	g.ExpectWithOffset(1, terminal.Reason).To(Equal(reason), "%v", err)
	g.ExpectWithOffset(1, err.Error()).To(ContainSubstring(part))
}

// C28 and the list: each a reason of its own, no repetition, the mend in the
// message, and no secret in it.
func TestWhatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	marked := func(s *scene, value string) string {
		return value + ` # {"$promotion": "` + s.ns + `:web:prod"}` + "\n"
	}
	base := func(content func(*scene) string) func(*scene) {
		return func(s *scene) {
			s.Commit(gittest.Base, "bad", map[string]string{manifest: content(s)})
		}
	}
	for name, tc := range map[string]struct {
		change func(s *scene)
		reason string
		// secret: another version of it may heal it.
		secret bool
		part   string
	}{
		"no marker":                 {base(func(*scene) string { return "version: 1.0.0\n" }), "NoMarker", false, `{"$promotion": "`},
		"marker in unparsable file": {base(func(s *scene) string { return "a: [\n" + marked(s, "version: 1.0.0") + "\t- }\n" }), "MarkerUnparsable", false, manifest},
		"two markers":               {base(func(s *scene) string { return marked(s, "a: 1.0.0") + marked(s, "b: true") }), "TwoMarkers", false, "remove the marker from this line"},
		"marker on a non-scalar":    {base(func(s *scene) string { return marked(s, "a: {b: c}") }), "MarkerNotScalar", false, manifest},
		"marker in a huge file":     {base(func(s *scene) string { return strings.Repeat("a: b\n---\n", 200_000) + marked(s, "v: 1.0.0") }), "FileTooLarge", false, manifest},
		"repository gone":           {func(s *scene) { s.server.AddFault(providertest.Fault{Path: "/info/refs", Status: http.StatusNotFound}) }, "RepositoryNotFound", true, "check its URL"},
		"base branch missing":       {func(s *scene) { s.spec.BaseBranch = "release" }, "BaseBranchMissing", false, `no branch "release"`},
		"branch protected":          {func(s *scene) { s.Hook("update", "echo 'GH006: Protected branch update failed' >&2; exit 1") }, "BranchProtected", true, "Protected branch"},
		"wrong token":               {func(s *scene) { s.secret(func(d map[string][]byte) { d["token"] = []byte("not-the-token-9876") }) }, "Unauthorized", true, ""},
		"no token":                  {func(s *scene) { s.secret(func(d map[string][]byte) { delete(d, "token") }) }, "InvalidCredentials", true, "/git has no key token"},
		"token with a stray byte":   {func(s *scene) { s.secret(func(d map[string][]byte) { d["token"] = []byte("a\x00b") }) }, "InvalidCredentials", true, ""},
		"wrong CA":                  {func(s *scene) { s.secret(func(d map[string][]byte) { delete(d, "caFile") }) }, "Untrusted", true, "caFile"},
		"CA that is none":           {func(s *scene) { s.secret(func(d map[string][]byte) { d["caFile"] = []byte("hello") }) }, "InvalidCredentials", true, "CA bundle"},
		"App without installation":  {func(s *scene) { s.secret(func(d map[string][]byte) { d["githubAppPrivateKey"] = []byte("k") }) }, "InvalidCredentials", true, "githubAppInstallationID"},
		"no Secret":                 {func(s *scene) { s.spec.SecretRef.Name = "none" }, "SecretNotFound", true, "/none does not exist"},
		"no URL":                    {func(s *scene) { s.spec.URL = "" }, "InvalidSpec", false, "url"},
		"SSH":                       {func(s *scene) { s.spec.URL = "ssh://git@example.com/fleet/apps.git" }, "InvalidSpec", false, "only HTTPS supported"},
		"HTTP":                      {func(s *scene) { s.spec.URL = "http://example.com/fleet/apps.git" }, "InvalidSpec", false, "unsupported URL scheme, only HTTPS supported"},
		"password in the URL":       {func(s *scene) { s.spec.URL = "https://a:hunter2hunter2@example.com/fleet/apps.git" }, "InvalidSpec", false, "belong into the Secret"},
		"metadata service":          {func(s *scene) { s.spec.URL = "https://169.254.169.254/fleet/apps.git" }, "InvalidSpec", false, "must not call"},
		"forbidden": {func(s *scene) {
			s.server.AddFault(providertest.Fault{Path: "pull", Status: http.StatusForbidden, Body: []byte(`{"message":"no"}`)})
		}, "Forbidden", true, ""},
		"the service refuses it": {func(s *scene) {
			s.server.AddFault(providertest.Fault{Method: http.MethodPost, Path: "pulls", Status: 422, Body: []byte(`{"message":"not here"}`)})
		}, "PullRequestRefused", false, "not here"},
		"revision YAML cannot write": {func(*scene) {}, "UnwritableRevision", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
			tc.change(s)
			revision := "1.1.0"
			if tc.reason == "UnwritableRevision" {
				revision = "1.1.0\n  injected: true"
			}
			p := s.promotion(1, revision)
			p.Status.Attempt.Failures = 2
			_, err := s.Promote(t.Context(), p, always)
			expectReason(g, err, tc.reason, tc.part)
			var terminal *strategy.TerminalError
			g.Expect(errors.As(err, &terminal)).To(BeTrue())
			g.Expect(terminal.Secret != nil).To(Equal(tc.secret))
			for _, secret := range []string{providertest.Token, "not-the-token", "hunter2"} {
				g.Expect(err.Error()).NotTo(ContainSubstring(secret))
			}
			g.Expect(s.pulls()).To(BeEmpty())
			if tc.reason != "PullRequestRefused" {
				g.Expect(s.Branches()).To(Equal([]string{gittest.Base}), "no branch is left behind")
			}
		})
	}
}

// Loopback is the hub itself, unless the operator says otherwise.
func TestLoopbackIsNotCalled(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
	s.options.AllowLoopback = false
	s.again()
	_, err := s.Promote(t.Context(), s.promotion(1, "1.1.0"), always)
	expectReason(g, err, "InvalidSpec", "must not call")
	g.Expect(s.server.Requests()).To(BeEmpty())
}

// What heals by itself is no terminal error, whichever request it meets.
func TestWhatHeals(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]providertest.Fault{
		"500":     {Status: http.StatusInternalServerError},
		"502":     {Status: http.StatusBadGateway, Body: []byte("<html>")},
		"reset":   {Reset: true},
		"garbage": {Status: http.StatusOK, Body: []byte("]]")},
		"limited": {Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"60"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, g *WithT, s *scene) {
				p := s.promotion(1, "1.1.0")
				for _, path := range []string{"/info/refs", "/git-upload-pack", "/git-receive-pack", ""} {
					fault := fault
					fault.Path = path
					s.server.AddFault(fault)
					_, err := s.Promote(t.Context(), p, always)
					g.Expect(err).To(HaveOccurred(), path)
					var terminal *strategy.TerminalError
					g.Expect(errors.As(err, &terminal)).To(BeFalse(), "%s: %v", path, err)
					if name == "limited" {
						var later *strategy.RetryAfterError
						g.Expect(errors.As(err, &later)).To(BeTrue(), "%s: %v", path, err)
						g.Expect(later.After).To(Equal(time.Minute))
						// All promotions leave the service alone, until its time has passed.
						before := len(s.server.Requests())
						_, err := s.Promote(t.Context(), p, always)
						g.Expect(err).To(HaveOccurred())
						g.Expect(s.server.Requests()).To(HaveLen(before))
						s.clock.Step(time.Minute)
					}
					s.server.ClearFaults()
				}
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
				g.Expect(s.pulls()).To(Equal("open 1"))
			})
		})
	}
}

// A changed Secret is seen at the next attempt, without anything being restarted.
func TestSecretIsReadAnew(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.GitLab)
	s.secret(func(d map[string][]byte) { d["token"] = []byte("expired-token-000") })
	p := s.promotion(1, "1.1.0")
	_, err := s.Promote(t.Context(), p, always)
	var terminal *strategy.TerminalError
	g.Expect(errors.As(err, &terminal)).To(BeTrue())
	g.Expect(terminal.Secret.Name).To(Equal(secretName))
	g.Expect(terminal.Secret.ResourceVersion).NotTo(BeEmpty())
	s.secret(func(d map[string][]byte) { d["token"] = []byte(providertest.Token) })
	g.Expect(s.promote(p).State).To(Equal(strategy.Open))
}

// weave's Secrets have a user and a password for Git beside the token.
func TestWeavesSecret(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		s.secret(func(d map[string][]byte) {
			d["username"], d["password"] = []byte("git"), []byte(providertest.Token)
		})
		g.Expect(s.promote(s.promotion(1, "1.1.0")).State).To(Equal(strategy.Open))
	})
}

// Revisions and environments that mean something to YAML, Git, URLs or Markdown.
func TestAwkwardNames(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"1.10", "1e3", "6.6.1+0cc9a8446c95", "v1 # {x}", `quo"te's`, "main@sha1:9f86d08/x", "<b>%2e%2e/@ann</b>", "~", "null", "*x", "ü-1", "a: b", "- a"} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
			p := s.promotion(1, revision)
			g.Expect(s.promote(p).State).To(Equal(strategy.Open))
			g.Expect(s.follow(p).State).To(Equal(strategy.Open))
			pr := s.server.PullRequests()[0]
			g.Expect(pr.Title).To(HaveSuffix("to " + revision))
			summary, _, _ := strings.Cut(pr.Body, "<details>")
			g.Expect(summary).NotTo(ContainSubstring("<b>%"), "nothing of it takes effect as HTML")
			s.again()
			p.Status.PullRequest = nil
			g.Expect(s.promote(p).State).To(Equal(strategy.Open))
			g.Expect(s.pulls()).To(Equal("open 1"))
			s.merge(1)
			g.Expect(s.follow(p).State).To(Equal(strategy.Merged))
			again := s.promotion(2, revision)
			g.Expect(s.promote(again).State).To(Equal(strategy.Done), "what was written is what is read")
		})
	}
}

func TestAwkwardEnvironments(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"prod/eu west", "..", "prod.lock", "Ünïted", "a\nPromotion-Number: 99", "-", "@{u}", strings.Repeat("x", 300)} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
			p := s.promotion(1, "1.1.0")
			p.Spec.Environment = env
			if !strings.Contains(env, "\n") {
				s.Commit(gittest.Base, "env", map[string]string{manifest: release(s.ns, env, "1.0.0")})
				g.Expect(s.promote(p).State).To(Equal(strategy.Open))
				g.Expect(s.follow(p).State).To(Equal(strategy.Open))
				return
			}
			_, err := s.Promote(t.Context(), p, always)
			expectReason(g, err, "NoMarker", "")
			g.Expect(err.Error()).NotTo(ContainSubstring("\n"))
		})
	}
}

// Two hubs with a Pipeline of one name each do not fight for one branch for ever.
func TestAnotherPipelineOfTheName(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.Gitea)
	p := s.promotion(1, "1.1.0")
	s.promote(p)
	other := s.promotion(2, "1.2.0")
	other.Spec.Pipeline.UID = "another-pipeline"
	other.Spec.Number = 1
	g.Expect(s.promote(other).State).To(Equal(strategy.Open))
	_, err := s.Follow(t.Context(), p)
	expectReason(g, err, "BranchTaken", "another-pipeline")
}

// However many pull requests are open, a service is asked so often and no more.
func TestManyOpenPullRequestsDoNotHammer(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
	p := s.promotion(1, "1.1.0")
	s.promote(p)
	before := len(s.server.Requests())
	asked, refused := 0, 0
	for range 500 {
		_, err := s.Follow(t.Context(), p)
		var later *strategy.RetryAfterError
		switch {
		case err == nil:
			asked++
		case errors.As(err, &later):
			refused++
		default:
			t.Fatal(err)
		}
	}
	g.Expect(asked).To(Equal(30))
	g.Expect(s.server.Requests()).To(HaveLen(before + 30))
	g.Expect(refused).To(Equal(470))
	s.clock.Step(10 * time.Second)
	_, err := s.Follow(t.Context(), p)
	g.Expect(err).NotTo(HaveOccurred())
}

// A service that hangs holds an act no longer than its context.
func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		for i, path := range []string{"/info/refs", "/git-upload-pack", "/git-receive-pack", ""} {
			s.server.AddFault(providertest.Fault{Path: path, Hang: true})
			ctx, cancel := context.WithCancel(t.Context())
			before := len(s.server.Requests())
			done := make(chan error, 1)
			p := s.promotion(int64(i+1), fmt.Sprintf("1.1.%d", i))
			go func() {
				_, err := s.Promote(ctx, p, always)
				done <- err
			}()
			g.Eventually(func() bool {
				requests := s.server.Requests()[before:]
				return len(requests) > 0 && strings.Contains(requests[len(requests)-1], path)
			}).Should(BeTrue(), path)
			cancel()
			g.Eventually(done).WithTimeout(20 * time.Second).Should(Receive(HaveOccurred())) // Short of the timeouts of HTTP.
			s.server.ClearFaults()
		}
	})
}

// A Secret of another namespace is never read.
func TestSecretOfTheOwnNamespaceOnly(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, pipelinesv1.GitHub)
	g.Expect(s.c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shared-" + s.ns}, Data: map[string][]byte{"token": []byte(providertest.Token)},
	})).To(Succeed())
	s.spec.SecretRef.Name = "shared-" + s.ns
	_, err := s.Promote(t.Context(), s.promotion(1, "1.1.0"), always)
	expectReason(g, err, "SecretNotFound", s.ns+"/shared-")
}
