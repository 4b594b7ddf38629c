package provider_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// identities are the responses to requests without credentials by which services are known,
// from their documentation.
var identities = map[pipelinesv1.GitProviderType]struct {
	path   string
	status int
	header http.Header
	body   string
}{
	pipelinesv1.Gitea:           {"/api/v1/version", 200, nil, `{"version":"1.26.0"}`},
	pipelinesv1.GitLab:          {"/api/v4/version", 401, nil, `{"message":"401 Unauthorized"}`},
	pipelinesv1.GitHub:          {"/api/v3/meta", 200, nil, `{"verifiable_password_authentication":true,"installed_version":"3.17.0"}`},
	pipelinesv1.BitbucketServer: {"/rest/api/1.0/application-properties", 200, nil, `{"version":"8.19.0","displayName":"Bitbucket"}`},
	pipelinesv1.AzureDevOps:     {"/_apis", 401, http.Header{"X-Tfs-Processid": {"1b2c"}}, `<html>`},
}

// A type that is not that of the service is found with the first call, whatever the service
// responds to the requests of another API.
func TestTypeThatIsNotTheServices(t *testing.T) {
	for _, is := range types {
		for _, given := range types {
			for name, answer := range map[string]struct {
				status int
				body   string
			}{"404": {404, `{"message":"not found"}`}, "405": {405, ``}, "a page": {200, `<html>sign in</html>`}} {
				t.Run(string(given)+" for "+string(is)+", "+name, func(t *testing.T) {
					g := NewWithT(t)
					server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						id := identities[is]
						if r.URL.Path != id.path || r.Method != http.MethodGet {
							w.WriteHeader(answer.status)
							_, _ = w.Write([]byte(answer.body))
							return
						}
						g.Expect(r.Header).NotTo(HaveKey("Authorization"), "the service is not the one of the token")
						for key, values := range id.header {
							w.Header()[key] = values
						}
						w.WriteHeader(id.status)
						_, _ = w.Write([]byte(id.body))
					}))
					defer server.Close()
					path := "/fleet/apps.git"
					if given == pipelinesv1.AzureDevOps {
						path = "/fleet/platform/_git/apps"
					}
					p, err := provider.New(provider.Options{
						Type: given, URL: server.URL + path, AllowLoopback: true, Credentials: provider.Credentials{Token: providertest.Token},
						CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
					})
					g.Expect(err).NotTo(HaveOccurred())
					defer p.CloseIdle()
					_, err = p.Find(t.Context(), provider.Query{Head: head, Base: base})
					switch given { //nolint:exhaustive // The others have one rule.
					case is:
						g.Expect(err).To(And(HaveOccurred(), Not(MatchError(provider.ErrInvalid))), "the failure has another cause")
					case pipelinesv1.AzureDevOps:
						// Its requests begin with the organization, which other services do
						// not have.
						g.Expect(err).To(HaveOccurred())
					default:
						g.Expect(err).To(And(MatchError(provider.ErrInvalid), MatchError(ContainSubstring("set type to "+string(is)))))
					}
				})
			}
		}
	}
}

// The public services are known by their hosts.
func TestTypeThatIsNotTheHosts(t *testing.T) {
	for address, want := range map[string]string{
		"https://github.com/acme/fleet":                "set type to github",
		"https://acme.ghe.com/acme/fleet":              "set type to github",
		"https://gitlab.com/acme/fleet":                "set type to gitlab",
		"https://codeberg.org/acme/fleet":              "set type to gitea",
		"https://dev.azure.com/acme/fleet/_git/fleet":  "set type to azure-devops",
		"https://acme.visualstudio.com/fleet/_git/web": "set type to azure-devops",
		"https://bitbucket.org/acme/fleet":             "Bitbucket Cloud, which is not supported",
	} {
		t.Run(address, func(t *testing.T) {
			g := NewWithT(t)
			_, err := provider.ParseRepository(pipelinesv1.BitbucketServer, address)
			g.Expect(err).To(And(MatchError(provider.ErrInvalid), MatchError(ContainSubstring(want))))
		})
	}
}

// The texts that users see name the repository, the host and what to do.
func TestTextsOfErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		fault providertest.Fault
		want  string
	}{
		"404": {providertest.Fault{Status: 404, Body: []byte(`{"message":"not found"}`)},
			"gitea: find pull requests: repository fleet/apps not found, or the token cannot see it (404); check the URL, the branches and the rights of the token"},
		"no connection": {providertest.Fault{Reset: true}, "gitea: find pull requests: 127.0.0.1:"},
		"502":           {providertest.Fault{Status: 502}, "gitea: find pull requests: Bad Gateway (502)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: pipelinesv1.Gitea})
			p := connect(t, pipelinesv1.Gitea, s, nil)
			s.AddFault(tc.fault)
			_, err := p.Find(t.Context(), provider.Query{Head: head, Base: base})
			g.Expect(err).To(MatchError(HavePrefix(tc.want)))
			if tc.fault.Reset {
				g.Expect(err).To(MatchError(ContainSubstring(" is unreachable: ")))
			}
		})
	}
}
