package commitstatus_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	eventingv1 "github.com/capstan-hub/capstan/api/eventing/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/event"
	"github.com/capstan-hub/capstan/hub/eventing/schema"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/chat/chattest"
	"github.com/capstan-hub/capstan/hub/eventing/sink/commitstatus"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
	"github.com/capstan-hub/capstan/playground/git"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	check  = "capstan/shop/web/prod"
)

func config(t testing.TB, keys map[string]any) schema.Config {
	t.Helper()
	all := map[string]any{"secretRef": "git", "pipelines": []string{"shop/*"}}
	for name, value := range keys {
		all[name] = value
	}
	entries, err := eventingv1.NewConfig(all)
	if err != nil {
		t.Fatal(err)
	}
	c, invalid := schema.CommitStatus().Resolve(entries)
	if len(invalid) > 0 {
		t.Fatal(invalid)
	}
	return c
}

func open(t testing.TB, c schema.Config, secret map[string][]byte, dashboard string) *commitstatus.Sink {
	t.Helper()
	s, err := commitstatus.Open(commitstatus.Options{Config: c, Secret: secret, DashboardURL: dashboard, Clock: clock.RealClock{}, AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// promotion of a revision in a phase.
func promotion(phase capstanv1.PromotionPhase, revision string) *capstanv1.Promotion {
	p := chattest.Promotion(phase)
	p.Spec.Revision = revision
	return p
}

// TestServices: at each service the check of the commit is pending, and then has the result.
func TestServices(t *testing.T) {
	for _, kind := range []pipelinesv1.GitProviderType{pipelinesv1.GitHub, pipelinesv1.GitLab, pipelinesv1.Gitea, pipelinesv1.BitbucketServer} {
		t.Run(string(kind), func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			server := providertest.New(t, providertest.Options{Type: kind})
			server.SetBranch("main", "base-1")
			server.SetBranch("topic", commit)
			// The server knows the commits of pull requests.
			p, err := provider.New(provider.Options{Type: kind, URL: server.URL(), CABundle: server.CA(), AllowLoopback: true, Credentials: provider.Credentials{Token: providertest.Token}})
			g.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(p.CloseIdle)
			_, err = p.Create(ctx, provider.NewPullRequest{Head: "topic", Base: "main", Title: "t"})
			g.Expect(err).NotTo(HaveOccurred())

			s := open(t, config(t, map[string]any{"provider": string(kind), "repository": server.URL()}),
				map[string][]byte{"token": []byte(providertest.Token), "caFile": server.CA()}, chattest.Dashboard)
			g.Expect(s.Ping(ctx)).To(Succeed())
			last := func() providertest.Status { all := server.Statuses(); return all[len(all)-1] }
			revision := "main@sha1:" + commit
			g.Expect(s.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseAwaitingApproval, revision), event.PromotionWaiting))).To(Succeed())
			g.Expect(last()).To(Equal(providertest.Status{SHA: commit, Name: check, State: "pending", Description: "Approval required"}))
			g.Expect(s.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseSucceeded, revision), event.PromotionSucceeded))).To(Succeed())
			g.Expect(last()).To(HaveField("State", "success"))
			g.Expect(s.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseFailed, commit), event.PromotionFailed))).To(Succeed(), "a revision of Argo CD")
			g.Expect(last().State).To(BeElementOf("failure", "failed"))
			g.Expect(last().Description).To(Equal("Promotion failed: the Git service refuses the token"))
			g.Expect(s.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseSuperseded, revision), event.PromotionSuperseded))).To(Succeed())
			g.Expect(last().State).To(BeElementOf("error", "canceled", "warning", "failure"))
			replaced := promotion(capstanv1.PhaseSuperseded, revision)
			replaced.Status.CarriedOutTime = replaced.Status.FinishTime
			g.Expect(s.Publish(ctx, chattest.Event(t, replaced, event.PromotionSuperseded))).To(Succeed())
			g.Expect(last()).To(HaveField("State", "success"), "it was merged before it was replaced")
			empty := promotion(capstanv1.PhaseSuperseded, revision)
			empty.Status.Reason = string(decision.NothingNew)
			g.Expect(s.Publish(ctx, chattest.Event(t, empty, event.PromotionSuperseded))).To(Succeed())
			g.Expect(last()).To(HaveField("State", "success"), "it brings nothing new")

			// No call for what has no commit or is not selected.
			before := len(server.Statuses())
			other := promotion(capstanv1.PhaseSucceeded, revision)
			other.Namespace = "another"
			g.Expect(s.Publish(ctx, chattest.Event(t, other, event.PromotionSucceeded))).To(Succeed())
			for _, without := range []string{"1.2.0", "1.2.0@sha256:" + strings.Repeat("a", 64), "main@sha1:0123"} {
				g.Expect(s.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseSucceeded, without), event.PromotionSucceeded))).To(Succeed(), without)
			}
			g.Expect(s.Publish(ctx, (event.Hub{Name: "fleet", UID: "hub"}).ClusterRegistered(&capstanv1.ClusterConnection{}))).To(Succeed())
			g.Expect(server.Statuses()).To(HaveLen(before))

			unknown := chattest.Event(t, promotion(capstanv1.PhaseSucceeded, "main@sha1:"+strings.Repeat("f", 40)), event.PromotionSucceeded)
			g.Expect(sink.Of(s.Publish(ctx, unknown))).To(And(HaveField("Class", sink.Refused), HaveField("Code", "no-commit")))
		})
	}
}

// TestAnswers: the classes of a service's errors. No error has the token.
func TestAnswers(t *testing.T) {
	ctx := t.Context()
	server := providertest.New(t, providertest.Options{Type: pipelinesv1.GitHub})
	server.SetBranch("topic", commit)
	secret := map[string][]byte{"token": []byte(providertest.Token), "caFile": server.CA()}
	c := config(t, map[string]any{"provider": "github", "repository": server.URL()})
	s := open(t, c, secret, "")
	e := chattest.Event(t, promotion(capstanv1.PhaseSucceeded, commit), event.PromotionSucceeded)
	for name, row := range map[string]struct {
		fault providertest.Fault
		class sink.Class
		code  string
	}{
		"401": {providertest.Fault{Status: http.StatusUnauthorized, Body: []byte(`{"message":"Bad credentials"}`)}, sink.Unavailable, sink.CodeUnauthorized},
		"403": {providertest.Fault{Status: http.StatusForbidden, Body: []byte(`{"message":"Resource not accessible"}`)}, sink.Unavailable, sink.CodeForbidden},
		"404": {providertest.Fault{Status: http.StatusNotFound, Body: []byte(`{"message":"Not Found"}`)}, sink.Refused, "no-commit"},
		"429": {providertest.Fault{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}}, sink.Transient, "http-429"},
		"502": {providertest.Fault{Status: http.StatusBadGateway}, sink.Transient, sink.CodeUnreachable},
		"cut": {providertest.Fault{Reset: true}, sink.Transient, sink.CodeUnreachable},
	} {
		g := NewWithT(t)
		server.ClearFaults()
		server.AddFault(row.fault)
		err := s.Publish(ctx, e)
		g.Expect(sink.Of(err)).To(And(HaveField("Class", row.class), HaveField("Code", row.code)), "%s: %v", name, err)
		g.Expect(err).To(MatchError(Not(ContainSubstring(providertest.Token))))
		if name == "429" {
			g.Expect(sink.Of(err).RetryAfter).To(BeNumerically("~", 30*time.Second, 2*time.Second))
		}
	}
	server.ClearFaults()
	g := NewWithT(t)
	strict, err := commitstatus.Open(commitstatus.Options{Config: c, Secret: secret, Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	for _, err := range []error{strict.Ping(ctx), strict.Publish(ctx, e)} {
		g.Expect(sink.Of(err)).To(And(HaveField("Class", sink.Unavailable), HaveField("Code", sink.CodeForbiddenAddress)), "%v", err)
	}
}

// TestSecrets: a Secret that cannot be used is refused without its values.
func TestSecrets(t *testing.T) {
	for want, secret := range map[string]map[string][]byte{
		"has no key token":     {},
		"has the key proxyURL": {"token": []byte("abcdefgh"), "proxyURL": []byte("http://" + chattest.Canary)},
		"is not a number":      {"githubAppPrivateKey": []byte(chattest.Canary), "githubAppInstallationID": []byte(chattest.Canary)},
	} {
		g := NewWithT(t)
		_, err := commitstatus.Open(commitstatus.Options{
			Config: config(t, map[string]any{"provider": "github", "repository": "https://github.com/example/shop"}), Secret: secret, Clock: clock.RealClock{},
		})
		g.Expect(err).To(MatchError(wire.ErrSecret), want)
		g.Expect(err).To(MatchError(And(ContainSubstring(want), Not(ContainSubstring(chattest.Canary)))))
	}
}

// TestHosts: the Secret's annotation decides whether its token may be sent to the repository's host and to that of the API.
func TestHosts(t *testing.T) {
	g := NewWithT(t)
	c := config(t, map[string]any{"provider": "github", "repository": "https://github.com/example/shop"})
	for hosts, says := range map[string]string{
		"github.com,api.github.com": "",
		"github.com":                "the host api.github.com:",
		"git.example.com":           "the host github.com:",
	} {
		_, err := commitstatus.Open(commitstatus.Options{
			Config: c, Secret: map[string][]byte{"token": []byte(chattest.Canary)}, Clock: clock.RealClock{},
			Hosts: allowedhosts.Of(map[string]string{capstanv1.AllowedHostsAnnotation: hosts}, false),
		})
		if says == "" {
			g.Expect(err).NotTo(HaveOccurred())
			continue
		}
		g.Expect(err).To(MatchError(wire.ErrSecret), hosts)
		g.Expect(err).To(MatchError(And(ContainSubstring(says), Not(ContainSubstring(chattest.Canary)))))
	}
}

// TestGitea: a real Gitea shows one check at the commit, which changes with the promotion, also when
// an event is sent again.
func TestGitea(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	server, err := git.Start(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(server.Stop()).To(Succeed()) })
	repository, err := server.CreateRepository(ctx, "fleet", "apps", map[string]string{"a.yaml": "a: 1\n"})
	g.Expect(err).NotTo(HaveOccurred())
	user, err := server.AddUser(ctx, "robot")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(repository.Allow(ctx, user.Username)).To(Succeed())
	sha, err := repository.Commit(ctx, "main", "a.yaml", "two", func(string) string { return "a: 2\n" })
	g.Expect(err).NotTo(HaveOccurred())
	client, err := server.Client(ctx, user)
	g.Expect(err).NotTo(HaveOccurred())

	c := config(t, map[string]any{"provider": "gitea", "repository": repository.URL(), "requestTimeout": "30s"})
	s := open(t, c, map[string][]byte{"token": []byte(user.Token), "caFile": server.CA()}, chattest.Dashboard)
	g.Expect(s.Ping(ctx)).To(Succeed())
	shown := func() (state, name, description, target string) {
		all, _, err := client.GetCombinedStatus("fleet", "apps", sha)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(all.Statuses).To(HaveLen(1))
		one := all.Statuses[0]
		return string(one.State), one.Context, one.Description, one.TargetURL
	}
	revision := "main@sha1:" + sha
	for _, row := range []struct {
		phase capstanv1.PromotionPhase
		kind  event.Kind
		state string
		text  string
	}{
		{capstanv1.PhaseAwaitingApproval, event.PromotionWaiting, "pending", "Approval required"},
		{capstanv1.PhaseFailed, event.PromotionFailed, "failure", "Promotion failed: the Git service refuses the token"},
		{capstanv1.PhaseSuperseded, event.PromotionSuperseded, "warning", "Promotion superseded: the Git service refuses the token"},
		{capstanv1.PhaseSucceeded, event.PromotionSucceeded, "success", "Promotion succeeded: the Git service refuses the token"},
	} {
		e := chattest.Event(t, promotion(row.phase, revision), row.kind)
		for range 2 {
			g.Expect(s.Publish(ctx, e)).To(Succeed())
			state, name, text, target := shown()
			g.Expect([]string{state, name, text, target}).To(Equal([]string{row.state, check, row.text, "https://capstan.example.org/pipelines/shop/web"}))
		}
	}
	// Without the dashboard the link is the pull request.
	s = open(t, c, map[string][]byte{"token": []byte(user.Token), "caFile": server.CA()}, "")
	g.Expect(s.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseSucceeded, revision), event.PromotionSucceeded))).To(Succeed())
	_, _, _, target := shown()
	g.Expect(target).To(Equal("https://git.example.org/shop/fleet/pulls/7"))

	unknown := chattest.Event(t, promotion(capstanv1.PhaseSucceeded, strings.Repeat("f", 40)), event.PromotionSucceeded)
	err = s.Publish(ctx, unknown)
	g.Expect(sink.Of(err)).To(HaveField("Class", sink.Transient), "Gitea 1.26 answers 500: %v", err)
	wrong := open(t, c, map[string][]byte{"token": []byte("0123456789012345678901234567890123456789"), "caFile": server.CA()}, "")
	err = wrong.Publish(ctx, chattest.Event(t, promotion(capstanv1.PhaseSucceeded, revision), event.PromotionSucceeded))
	g.Expect(sink.Of(err)).To(And(HaveField("Class", sink.Unavailable), HaveField("Code", sink.CodeUnauthorized)), "%v", err)
}
