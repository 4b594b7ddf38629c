package pullrequest

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/failures"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

func TestHostsThatASecretAllows(t *testing.T) {
	t.Parallel()
	const gitea, github, enterprise, port, v6 = "https://git.example.com/a/b", "https://github.com/a/b", "https://acme.ghe.com/a/b", "https://git.example.com:8443/a/b", "https://[2001:DB8::1]:8443/a/b"
	for name, tc := range map[string]struct {
		url, allowed string
		// says is part of the error; empty if the host is allowed.
		says string
	}{
		"the host":                      {gitea, "git.example.com", ""},
		"in capitals":                   {"https://GIT.example.com/a/b", "Git.Example.COM", ""},
		"among others":                  {gitea, " other.example.org , git.example.com,", ""},
		"another":                       {gitea, "git.example.org", "the host git.example.com: add the host to its annotation capstan.dev/allowed-hosts"},
		"a longer name":                 {gitea, "it.example.com", "the host git.example.com"},
		"a shorter name":                {"https://example.com/a/b", "git.example.com", "the host example.com"},
		"the name as a prefix":          {"https://git.example.com.evil.org/a/b", "git.example.com", "git.example.com.evil.org"},
		"a name below":                  {gitea, "*.example.com", ""},
		"a name far below":              {"https://a.b.git.example.com/a/b", "*.example.com", ""},
		"the domain itself":             {"https://example.com/a/b", "*.example.com", "the host example.com"},
		"a name that ends like it":      {"https://gitexample.com/a/b", "*.example.com", "gitexample.com"},
		"a final dot":                   {"https://git.example.com./a/b", "git.example.com", ""},
		"the port":                      {port, "git.example.com:8443", ""},
		"a port that is not allowed":    {port, "git.example.com", "the host git.example.com:8443"},
		"another port":                  {port, "git.example.com:9443", "git.example.com:8443"},
		"a port below":                  {port, "*.example.com:8443", ""},
		"the default port, written":     {gitea, "git.example.com:443", ""},
		"IPv6":                          {v6, "[2001:db8::1]:8443", ""},
		"IPv6 on another port":          {v6, "[2001:db8::1]", "[2001:db8::1]:8443"},
		"an empty annotation":           {gitea, "", "the host git.example.com"},
		"everything is not a pattern":   {gitea, "*", `"*", which is not a host`},
		"a URL is not a pattern":        {gitea, "https://git.example.com", "which is not a host"},
		"one mistake refuses all":       {gitea, "git.example.com,*.*", `"*.*"`},
		"GitHub's API too":              {github, "github.com", "the host api.github.com"},
		"GitHub and its API":            {github, "github.com, api.github.com", ""},
		"GitHub by a pattern":           {github, "github.com,*.github.com", ""},
		"an enterprise's API too":       {enterprise, "acme.ghe.com", "the host api.acme.ghe.com"},
		"an enterprise and its API":     {enterprise, "acme.ghe.com,*.acme.ghe.com", ""},
		"an enterprise and all of them": {enterprise, "*.ghe.com", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			kind := pipelinesv1.Gitea
			if tc.url == github || tc.url == enterprise {
				kind = pipelinesv1.GitHub
			}
			repository, err := provider.ParseRepository(kind, tc.url)
			g.Expect(err).NotTo(HaveOccurred())
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "git", Annotations: map[string]string{capstanv1.AllowedHostsAnnotation: tc.allowed}}}
			for _, required := range []bool{false, true} {
				err := checkHosts(secret, repository, required)
				if tc.says == "" {
					g.Expect(err).NotTo(HaveOccurred())
					continue
				}
				g.Expect(err).To(MatchError(And(HavePrefix("the Secret apps/git "), ContainSubstring(tc.says))))
				var known *failure
				g.Expect(errors.As(err, &known)).To(BeTrue())
				g.Expect(known.reason).To(Equal(ReasonHostNotAllowed))
				g.Expect(failures.ByReason(known.reason).Secret).To(BeTrue(), "a change of the Secret fixes it")
			}
		})
	}
}

func TestASecretWithoutHosts(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	repository, err := provider.ParseRepository(pipelinesv1.Gitea, "https://git.example.com/a/b")
	g.Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "git"}}
	g.Expect(checkHosts(secret, repository, false)).To(Succeed())
	g.Expect(checkHosts(secret, repository, true)).To(MatchError(And(
		ContainSubstring("the Secret apps/git has no annotation capstan.dev/allowed-hosts"), ContainSubstring("--require-secret-hosts"), HaveSuffix("here git.example.com"))))
}
