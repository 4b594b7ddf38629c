package provider_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	. "github.com/onsi/gomega"
	testingclock "k8s.io/utils/clock/testing"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// What the Secrets that people have look like.
func TestFormsOfCredentials(t *testing.T) {
	const token = providertest.Token
	type git struct{ username, password string }
	for name, tc := range map[string]struct {
		kind  pipelinesv1.GitProviderType
		given provider.Credentials
		works bool
		git   git
	}{
		"github token":              {pipelinesv1.GitHub, provider.Credentials{Token: token}, true, git{"x-access-token", token}},
		"github token and newline":  {pipelinesv1.GitHub, provider.Credentials{Token: token + "\n"}, true, git{"x-access-token", token}},
		"github both":               {pipelinesv1.GitHub, provider.Credentials{Token: token, Username: "git", Password: "for-git"}, true, git{"git", "for-git"}},
		"github password is token":  {pipelinesv1.GitHub, provider.Credentials{Username: "ann", Password: token}, true, git{"ann", token}},
		"github wrong":              {pipelinesv1.GitHub, provider.Credentials{Token: "wrong-token"}, false, git{"x-access-token", "wrong-token"}},
		"gitlab token":              {pipelinesv1.GitLab, provider.Credentials{Token: token}, true, git{"oauth2", token}},
		"gitlab wrong":              {pipelinesv1.GitLab, provider.Credentials{Token: "wrong-token"}, false, git{"oauth2", "wrong-token"}},
		"gitea token":               {pipelinesv1.Gitea, provider.Credentials{Token: token}, true, git{"oauth2", token}},
		"gitea user and password":   {pipelinesv1.Gitea, provider.Credentials{Username: "ann", Password: token}, true, git{"ann", token}},
		"gitea wrong":               {pipelinesv1.Gitea, provider.Credentials{Token: "wrong-token"}, false, git{"oauth2", "wrong-token"}},
		"azure token":               {pipelinesv1.AzureDevOps, provider.Credentials{Token: token}, true, git{"capstan", token}},
		"azure user and password":   {pipelinesv1.AzureDevOps, provider.Credentials{Username: "ann", Password: token}, true, git{"ann", token}},
		"azure wrong":               {pipelinesv1.AzureDevOps, provider.Credentials{Token: "eyJ0.wrong.token"}, false, git{"capstan", "eyJ0.wrong.token"}},
		"bitbucket token":           {pipelinesv1.BitbucketServer, provider.Credentials{Token: token}, true, git{"x-token-auth", token}},
		"bitbucket weave":           {pipelinesv1.BitbucketServer, provider.Credentials{Token: token, Username: "git", Password: "for-git"}, true, git{"git", "for-git"}},
		"bitbucket user, password":  {pipelinesv1.BitbucketServer, provider.Credentials{Username: "ann", Password: token}, true, git{"ann", token}},
		"bitbucket wrong":           {pipelinesv1.BitbucketServer, provider.Credentials{Username: "ann", Password: "wrong-token"}, false, git{"ann", "wrong-token"}},
		"github username, no token": {pipelinesv1.GitHub, provider.Credentials{Token: token, Username: "git"}, true, git{"x-access-token", token}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: tc.kind})
			p := connect(t, tc.kind, s, func(o *provider.Options) { o.Credentials = tc.given })
			_, err := p.Find(t.Context(), provider.Query{Head: head, Base: base})
			if tc.works {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(provider.ErrUnauthorized))
				g.Expect(refusal(t, err).Remedy).NotTo(BeEmpty())
			}
			username, password, err := p.GitCredentials(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(git{username, password}).To(Equal(tc.git))
		})
	}
}

// Whatever a service says, credentials are struck out of it.
func TestNoErrorShowsASecret(t *testing.T) {
	const password = "p%ss w\"rd-9876"
	basic := func(user, p string) string { return base64.StdEncoding.EncodeToString([]byte(user + ":" + p)) }
	each(t, func(t *testing.T, s *providertest.Server, _ provider.Provider) {
		g := NewWithT(t)
		kind := types[0]
		for _, k := range types {
			if strings.HasSuffix(t.Name(), "/"+string(k)) {
				kind = k
			}
		}
		p := connect(t, kind, s, func(o *provider.Options) {
			o.Credentials.Username, o.Credentials.Password = "ann", password
		})
		secrets := []string{providertest.Token, password, url.QueryEscape(password), basic("", providertest.Token), basic("ann", password), basic("ann", providertest.Token)}
		said := strings.ReplaceAll(strings.Join(secrets, " "), `"`, `\"`)
		for _, fault := range []providertest.Fault{
			{Status: 403, Body: []byte(`{"message":"` + said + `","error":"` + said + `","errors":[{"message":"` + said + `"}]}`)},
			{Status: 422, Body: []byte(`{"errors":["` + said + `"]}`)},
			{Status: 500, Body: []byte(`{"message":"` + said + `"}`)},
			{Status: 200, Body: []byte(said)},
			{Status: 302, Header: header("Location", "https://"+url.PathEscape(providertest.Token)+".example/"+providertest.Token)},
			{Reset: true},
		} {
			s.AddFault(fault)
			for name, call := range calls(p, 1) {
				err := call(t.Context())
				if name != "review" || fault.Status != 200 { // whose answer has nothing to read
					g.Expect(err).To(HaveOccurred())
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					for _, secret := range secrets {
						g.Expect(e.Error()).NotTo(ContainSubstring(secret))
					}
				}
			}
			s.ClearFaults()
		}
	})
}

func TestOptionsThatAreRefused(t *testing.T) {
	good := provider.Options{Type: pipelinesv1.GitHub, URL: "https://github.com/o/r", Credentials: provider.Credentials{Token: "secret-token"}}
	for name, change := range map[string]func(*provider.Options){
		"no type":             func(o *provider.Options) { o.Type = "" },
		"unknown type":        func(o *provider.Options) { o.Type = "bitbucket" },
		"no URL":              func(o *provider.Options) { o.URL = "" },
		"no credentials":      func(o *provider.Options) { o.Credentials = provider.Credentials{} },
		"a username alone":    func(o *provider.Options) { o.Credentials = provider.Credentials{Username: "secret-user"} },
		"two lines of token":  func(o *provider.Options) { o.Credentials.Token = "secret\nX-Evil: yes" },
		"no CA in the bundle": func(o *provider.Options) { o.CABundle = []byte("secret") },
		"another API host":    func(o *provider.Options) { o.APIURL = "https://evil.test/" },
		"an API by HTTP":      func(o *provider.Options) { o.APIURL = "http://api.github.com/" },
		"an App without id":   func(o *provider.Options) { o.Credentials = provider.Credentials{App: &provider.GitHubApp{}} },
		"an App's bad key": func(o *provider.Options) {
			o.Credentials = provider.Credentials{App: &provider.GitHubApp{ID: "1", InstallationID: 2, PrivateKey: []byte("secret")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := good
			change(&o)
			_, err := provider.New(o)
			g.Expect(err).To(MatchError(provider.ErrInvalid))
			g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
		})
	}
	_, err := provider.New(good)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func TestWrongCA(t *testing.T) {
	for _, kind := range types {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			s := providertest.New(t, providertest.Options{Type: kind})
			p := connect(t, kind, s, func(o *provider.Options) { o.CABundle = nil })
			_, err := p.Get(t.Context(), 1)
			g.Expect(err).To(MatchError(provider.ErrUntrusted))
			e := refusal(t, err)
			g.Expect(e.Remedy).To(ContainSubstring("caFile"))
			g.Expect(s.Requests()).To(BeEmpty())
		})
	}
}

func TestLoopbackIsNotDialled(t *testing.T) {
	g := NewWithT(t)
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.Gitea})
	p := connect(t, pipelinesv1.Gitea, s, func(o *provider.Options) { o.AllowLoopback = false })
	_, err := p.Get(t.Context(), 1)
	g.Expect(err).To(MatchError(provider.ErrInvalid))
	g.Expect(s.Requests()).To(BeEmpty())
}

// TestForbiddenAddresses proves the policy of internal/netguard for the API and for Git,
// which uses the same transport: every forbidden address is refused whatever the option
// is, and loopback only where it is not allowed.
func TestForbiddenAddresses(t *testing.T) {
	g := NewWithT(t)
	call := func(a netguardtest.Address, allow bool) (api, git error) {
		p, err := provider.New(provider.Options{
			Type: pipelinesv1.Gitea, URL: "https://" + a.Host() + ":1/fleet/apps.git", AllowLoopback: allow,
			Timeout: 10 * time.Second, Credentials: provider.Credentials{Token: providertest.Token},
		})
		g.Expect(err).NotTo(HaveOccurred(), a.IP)
		defer p.CloseIdle()
		_, api = p.Get(t.Context(), 1)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+a.Host()+":1/fleet/apps.git/info/refs", nil)
		g.Expect(err).NotTo(HaveOccurred())
		_, git = p.Transport().RoundTrip(request) //nolint:bodyclose // There is none.
		return api, git
	}
	for _, allow := range []bool{false, true} {
		for _, a := range netguardtest.Forbidden {
			api, git := call(a, allow)
			g.Expect(api).To(MatchError(provider.ErrInvalid), a.IP)
			g.Expect(api).To(MatchError(And(ContainSubstring(a.Reason), ContainSubstring("use another address"))), a.IP)
			g.Expect(git).To(MatchError(netguard.ErrForbidden), a.IP)
		}
	}
	for _, a := range netguardtest.Loopback {
		api, git := call(a, false)
		g.Expect(api).To(And(MatchError(provider.ErrInvalid), MatchError(ContainSubstring(a.Reason))), a.IP)
		g.Expect(git).To(MatchError(netguard.ErrForbidden), a.IP)
		api, git = call(a, true) // Nothing listens there.
		g.Expect(api).To(MatchError(provider.ErrTransient), a.IP)
		g.Expect(git).To(And(HaveOccurred(), Not(MatchError(netguard.ErrForbidden))), a.IP)
	}
}

// A proxy of the environment is not used, for the API and for Git.
func TestNoProxy(t *testing.T) {
	g := NewWithT(t)
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.Gitea})
	transport, ok := connect(t, pipelinesv1.Gitea, s, nil).Transport().(*http.Transport)
	g.Expect(ok).To(BeTrue())
	g.Expect(transport.Proxy).To(BeNil())
	p := connect(t, pipelinesv1.Gitea, s, func(o *provider.Options) { o.AllowLoopback = false })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = p.Transport().RoundTrip(request) //nolint:bodyclose // There is none.
	g.Expect(err).To(MatchError(netguard.ErrForbidden))
	g.Expect(s.Requests()).To(BeEmpty())
}

func TestGitHubApp(t *testing.T) {
	g := NewWithT(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	var issued int
	clock := testingclock.NewFakePassiveClock(time.Now())
	s := providertest.New(t, providertest.Options{Type: pipelinesv1.GitHub, AppKey: func(signed string) (string, error) {
		issued++
		token, err := jwt.Parse(signed, func(*jwt.Token) (any, error) { return &key.PublicKey, nil }, jwt.WithIssuer("4711"), jwt.WithExpirationRequired(), jwt.WithTimeFunc(clock.Now))
		if err != nil {
			return "", err
		}
		return token.Claims.GetIssuer()
	}})
	s.SetBranch(base, "base-1")
	s.SetBranch(head, "sha-1")
	p := connect(t, pipelinesv1.GitHub, s, func(o *provider.Options) {
		o.Clock = clock
		o.Credentials = provider.Credentials{App: &provider.GitHubApp{ID: "4711", InstallationID: 42, PrivateKey: private}}
	})
	created := open(t, p)
	g.Expect(find(t, p)).To(ConsistOf(created))
	username, password, err := p.GitCredentials(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(username).To(Equal("x-access-token"))
	g.Expect(password).To(HavePrefix("ghs_"))
	g.Expect(issued).To(Equal(1), "one token serves many calls")
	g.Expect(s.Requests()).To(ContainElement("POST /api/v3/app/installations/42/access_tokens"))

	// A token that ends within five minutes is replaced.
	start := clock.Now()
	clock.SetTime(start.Add(54 * time.Minute))
	_, same, err := p.GitCredentials(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(same).To(Equal(password))
	clock.SetTime(start.Add(56 * time.Minute))
	_, another, err := p.GitCredentials(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(another).NotTo(Equal(password))
	g.Expect(issued).To(Equal(2))
	clock.SetTime(start)

	// One that was taken back is forgotten, and another is fetched.
	s.ForgetAppTokens()
	_, err = p.Get(t.Context(), created.Number)
	g.Expect(err).To(MatchError(provider.ErrUnauthorized))
	g.Expect(p.Get(t.Context(), created.Number)).To(Equal(created))

	// GitHub also responds with 404 to a fresh token that it does not know everywhere.
	before := issued
	s.AddFault(providertest.Fault{Path: "/repos/", Status: 404, Times: 2, Body: []byte(`{"message":"Not Found"}`)})
	for range 2 {
		_, err = p.Get(t.Context(), created.Number)
		g.Expect(err).To(MatchError(provider.ErrNotFound))
	}
	g.Expect(p.Get(t.Context(), created.Number)).To(Equal(created))
	g.Expect(issued).To(Equal(before + 2))

	// Git refused the token.
	p.ForgetToken()
	_, another, err = p.GitCredentials(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(another).NotTo(Equal(password))
	g.Expect(issued).To(Equal(before + 3))

	// What the App's own endpoint says is classified like everything else.
	s.ForgetAppTokens()
	_, err = p.Get(t.Context(), created.Number)
	g.Expect(err).To(HaveOccurred())
	s.AddFault(providertest.Fault{Path: "/app/", Status: 404, Times: 1})
	_, err = p.Get(t.Context(), created.Number)
	g.Expect(err).To(MatchError(provider.ErrNotFound))
	s.AddFault(providertest.Fault{Path: "/app/", Status: 201, Times: 1, Body: []byte(`{"token":`)})
	_, err = p.Get(t.Context(), created.Number)
	g.Expect(err).To(MatchError(provider.ErrTransient))
}
