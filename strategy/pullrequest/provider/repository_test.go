package provider_test

import (
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// C31, and the forms that people copy from browsers.
func TestParseRepository(t *testing.T) {
	for _, tc := range []struct {
		kind pipelinesv1.GitProviderType
		url  string
		api  string
		name string
	}{
		{pipelinesv1.GitHub, "https://github.com/fleet/apps", "https://api.github.com/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://github.com/fleet/apps.git", "https://api.github.com/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://GitHub.com/fleet/apps/", "https://api.github.com/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://ann@github.com/fleet/apps.git", "https://api.github.com/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://acme.ghe.com/fleet/apps", "https://api.acme.ghe.com/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://git.acme.test:8443/fleet/apps.git", "https://git.acme.test:8443/api/v3/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://acme.test/ghe/fleet/apps.git", "https://acme.test/ghe/api/v3/", "fleet/apps"},
		{pipelinesv1.GitHub, "https://github.com/fleet/apps.js.git", "https://api.github.com/", "fleet/apps.js"},
		{pipelinesv1.GitLab, "https://gitlab.com/fleet/apps", "https://gitlab.com/api/v4/", "fleet/apps"},
		{pipelinesv1.GitLab, "https://gitlab.com/fleet/platform/eu/apps.git", "https://gitlab.com/api/v4/", "fleet/platform/eu/apps"},
		{pipelinesv1.GitLab, "https://git.acme.test:8443/fleet/apps.git", "https://git.acme.test:8443/api/v4/", "fleet/apps"},
		{pipelinesv1.Gitea, "https://gitea.com/fleet/apps.git", "https://gitea.com/api/v1/", "fleet/apps"},
		{pipelinesv1.Gitea, "https://acme.test/git/fleet/apps.git", "https://acme.test/git/api/v1/", "fleet/apps"},
		{pipelinesv1.AzureDevOps, "https://dev.azure.com/acme/fleet/_git/apps", "https://dev.azure.com/acme/", "fleet/apps"},
		{pipelinesv1.AzureDevOps, "https://acme@dev.azure.com/acme/fleet/_git/apps", "https://dev.azure.com/acme/", "fleet/apps"},
		{pipelinesv1.AzureDevOps, "https://dev.azure.com/acme/My%20Fleet/_git/my%20apps", "https://dev.azure.com/acme/", "My Fleet/my apps"},
		{pipelinesv1.AzureDevOps, "https://dev.azure.com/acme/_git/apps", "https://dev.azure.com/acme/", "apps/apps"},
		{pipelinesv1.AzureDevOps, "https://dev.azure.com/acme/fleet/_git/apps.git", "https://dev.azure.com/acme/", "fleet/apps.git"},
		{pipelinesv1.AzureDevOps, "https://acme.visualstudio.com/fleet/_git/apps", "https://acme.visualstudio.com/", "fleet/apps"},
		{pipelinesv1.AzureDevOps, "https://acme.visualstudio.com/_git/apps", "https://acme.visualstudio.com/", "apps/apps"},
		{pipelinesv1.AzureDevOps, "https://acme.visualstudio.com/DefaultCollection/fleet/_git/apps", "https://acme.visualstudio.com/DefaultCollection/", "fleet/apps"},
		{pipelinesv1.AzureDevOps, "https://tfs.acme.test/tfs/Default/fleet/_git/apps", "https://tfs.acme.test/tfs/Default/", "fleet/apps"},
		{pipelinesv1.BitbucketServer, "https://git.acme.test/scm/FLEET/apps.git", "https://git.acme.test/rest/api/1.0/", "FLEET/apps"},
		{pipelinesv1.BitbucketServer, "https://git.acme.test/scm/~ann/apps.git", "https://git.acme.test/rest/api/1.0/", "~ann/apps"},
		{pipelinesv1.BitbucketServer, "https://acme.test/bitbucket/scm/fleet/apps.git", "https://acme.test/bitbucket/rest/api/1.0/", "fleet/apps"},
		{pipelinesv1.BitbucketServer, "https://git.acme.test/projects/FLEET/repos/apps", "https://git.acme.test/rest/api/1.0/", "FLEET/apps"},
		{pipelinesv1.BitbucketServer, "https://acme.test/bb/users/ann/repos/apps", "https://acme.test/bb/rest/api/1.0/", "~ann/apps"},
		{pipelinesv1.BitbucketServer, "https://git.acme.test/FLEET/apps.git", "https://git.acme.test/rest/api/1.0/", "FLEET/apps"},
	} {
		t.Run(string(tc.kind)+" "+tc.url, func(t *testing.T) {
			g := NewWithT(t)
			r, err := provider.ParseRepository(tc.kind, tc.url)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.APIURL).To(Equal(tc.api))
			g.Expect(r.String()).To(Equal(tc.name))
			g.Expect(r.CloneURL).To(HavePrefix("https://"))
			g.Expect(r.CloneURL).NotTo(ContainSubstring("@"))
		})
	}
}

func TestRefusedRepositoryURLs(t *testing.T) {
	for name, tc := range map[string]struct {
		kind pipelinesv1.GitProviderType
		url  string
		says string
	}{
		"nothing":               {pipelinesv1.GitHub, " ", "the URL of the repository is missing"},
		"http":                  {pipelinesv1.GitHub, "http://github.com/o/r", "only HTTPS supported"},
		"git":                   {pipelinesv1.GitHub, "git://github.com/o/r", "only HTTPS supported"},
		"file":                  {pipelinesv1.Gitea, "file:///etc/passwd", "only HTTPS supported"},
		"no scheme":             {pipelinesv1.GitHub, "github.com/o/r", "only HTTPS supported"},
		"ssh":                   {pipelinesv1.GitHub, "ssh://git@github.com/o/r", "SSH"},
		"ssh, short":            {pipelinesv1.GitHub, "git@github.com:o/r.git", "SSH form (user@host:path); use the HTTPS URL"},
		"ssh, azure":            {pipelinesv1.AzureDevOps, "git@ssh.dev.azure.com:v3/acme/fleet/apps", "SSH"},
		"a password":            {pipelinesv1.GitHub, "https://ann:hunter2hunter2@github.com/o/r", "belong into the Secret"},
		"a password, unparsed":  {pipelinesv1.GitHub, "https://ann:hunter2hunter2@github.com:x/o/r", ""},
		"a query":               {pipelinesv1.GitHub, "https://github.com/o/r?token=hunter2hunter2", "query"},
		"a fragment":            {pipelinesv1.GitHub, "https://github.com/o/r#x", "fragment"},
		"no host":               {pipelinesv1.GitHub, "https:///o/r", "host"},
		"owner only":            {pipelinesv1.GitHub, "https://github.com/o", "owner/repository"},
		"host only":             {pipelinesv1.GitHub, "https://github.com/", "no repository"},
		"name of .git":          {pipelinesv1.GitHub, "https://github.com/o/.git", "no repository"},
		"dots":                  {pipelinesv1.GitHub, "https://github.com/../r", "relative"},
		"escaped dots":          {pipelinesv1.GitLab, "https://gitlab.com/%2e%2e/r", "relative"},
		"an escaped slash":      {pipelinesv1.GitLab, "https://gitlab.com/a%2Fb/r", "escaped slash"},
		"an empty part":         {pipelinesv1.GitLab, "https://gitlab.com/a//r", "empty"},
		"a control character":   {pipelinesv1.GitLab, "https://gitlab.com/a/r%0a", "unprintable"},
		"github too deep":       {pipelinesv1.GitHub, "https://github.com/o/r/tree/main", "form"},
		"github's characters":   {pipelinesv1.GitHub, "https://github.com/o/r%20x", "character"},
		"a page on gitlab":      {pipelinesv1.GitLab, "https://gitlab.com/o/r/-/tree/main", "/-/"},
		"azure without _git":    {pipelinesv1.AzureDevOps, "https://dev.azure.com/acme/fleet/apps", "_git"},
		"azure without an org":  {pipelinesv1.AzureDevOps, "https://dev.azure.com/_git/apps", "organization"},
		"azure, a page":         {pipelinesv1.AzureDevOps, "https://dev.azure.com/acme/fleet/_git/apps/pullrequests", "_git"},
		"bitbucket, one part":   {pipelinesv1.BitbucketServer, "https://git.acme.test/apps.git", "scm"},
		"longer than it may be": {pipelinesv1.Gitea, "https://gitea.com/o/" + strings.Repeat("r", 3000), "longer"},
		"unknown type":          {"svn", "https://svn.acme.test/o/r", "unknown type"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := provider.ParseRepository(tc.kind, tc.url)
			g.Expect(err).To(MatchError(provider.ErrInvalid))
			g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
			g.Expect(err.Error()).NotTo(ContainSubstring("hunter2"))
		})
	}
}

// A GitLab under a relative URL needs telling.
func TestGitLabUnderARelativeURL(t *testing.T) {
	g := NewWithT(t)
	p, err := provider.New(provider.Options{
		Type: pipelinesv1.GitLab, URL: "https://acme.test/gitlab/fleet/apps.git", APIURL: "https://acme.test/gitlab/api/v4",
		Credentials: provider.Credentials{Token: "token-token"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	r := p.Repository()
	g.Expect(r.APIURL).To(Equal("https://acme.test/gitlab/api/v4/"))
	g.Expect(r.Server).To(Equal("https://acme.test/gitlab"))
	g.Expect(r.String()).To(Equal("fleet/apps"))
	g.Expect(r.CloneURL).To(Equal("https://acme.test/gitlab/fleet/apps.git"))
}

func FuzzParseRepository(f *testing.F) {
	for _, seed := range []string{
		"https://github.com/o/r.git", "https://gitlab.com/a/b/c.git", "https://dev.azure.com/o/p/_git/r", "https://h/scm/~u/r.git",
		"https://h/users/u/repos/r", "git@h:o/r", "https://u:p@h/o/r", "https://h/%2e%2e/%2f", "https://[::1]:1/o/r", "https://h/o/r?x#y", "https://h:/o/r",
	} {
		for i := range types {
			f.Add(i, seed)
		}
	}
	f.Fuzz(func(t *testing.T, kind int, raw string) {
		r, err := provider.ParseRepository(types[uint(kind)%uint(len(types))], raw)
		if err != nil {
			if r != (provider.Repository{}) {
				t.Fatalf("an error and a repository: %v, %#v", err, r)
			}
			return
		}
		given, err := url.Parse(strings.TrimSpace(raw))
		if err != nil {
			t.Fatalf("%q is no URL and was taken", raw)
		}
		for _, made := range []string{r.APIURL, r.CloneURL, r.Server} {
			u, err := url.Parse(made)
			if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				t.Fatalf("%q became %q", raw, made)
			}
			host := strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(u.Host), "api."), "www.")
			if wanted := strings.TrimPrefix(strings.ToLower(given.Host), "www."); host != wanted && host != strings.TrimPrefix(wanted, "api.") {
				t.Fatalf("%q leads to %q", raw, u.Host)
			}
			for part := range strings.SplitSeq(u.Path, "/") {
				if part == ".." || part == "." {
					t.Fatalf("%q became %q", raw, made)
				}
			}
		}
		if r.Name == "" || strings.ContainsAny(r.Name, "/\\") {
			t.Fatalf("%q names %q", raw, r.Name)
		}
		again, err := provider.ParseRepository(r.Type, r.CloneURL)
		if err != nil || again.String() != r.String() || again.APIURL != r.APIURL {
			t.Fatalf("%q → %q → %v, %v", raw, r.CloneURL, again, err)
		}
	})
}
