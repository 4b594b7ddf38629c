package openid_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/dashboard/openid"
	"github.com/capstan-hub/capstan/playground/leaks"
	provider "github.com/capstan-hub/capstan/playground/openid"
)

const redirect = "http://127.0.0.1:1/signin/oidc/callback"

func TestMain(m *testing.M) { os.Exit(leaks.Main(m.Run)) }

// world is a real provider, and a client of it.
type world struct {
	*WithT
	t      *testing.T
	idp    *provider.Provider
	config openid.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	g := NewWithT(t)
	idp, err := provider.Start(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(idp.Stop()).To(Succeed()) })
	idp.AddUser(provider.User{Name: "ada", Email: "ada@example.org", Groups: []string{"ops"}})
	idp.AddUser(provider.User{Name: "bob"})
	idp.AddClient(provider.Client{ID: "capstan", RedirectURLs: []string{redirect}, SignedOutURLs: []string{"http://127.0.0.1:1/signin"}})
	return &world{WithT: g, t: t, idp: idp, config: openid.Config{
		Issuer: idp.Issuer, ClientID: "capstan", Scopes: []string{"profile", "email", "offline_access"}, RedirectURL: redirect,
		SignedOutURL: "http://127.0.0.1:1/signin", Roots: idp.CA, Clock: clock.RealClock{},
	}}
}

func (w *world) client() *openid.Provider {
	p := openid.New(w.config)
	w.t.Cleanup(p.Close)
	return p
}

// logIn logs a user in at an address of the provider, and returns the query of the redirect back.
func (w *world) logIn(at, user string) url.Values {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	w.Expect(err).NotTo(HaveOccurred())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.idp.CA, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/signin/oidc/callback" {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	form, err := browser.Get(at)
	w.Expect(err).NotTo(HaveOccurred())
	form.Body.Close()
	id := form.Request.URL.Query().Get("id")
	w.Expect(id).NotTo(BeEmpty(), form.Request.URL.String())
	back, err := browser.PostForm(w.idp.Issuer+"/login", url.Values{"id": {id}, "user": {user}})
	w.Expect(err).NotTo(HaveOccurred())
	body, _ := io.ReadAll(back.Body)
	back.Body.Close()
	to, err := back.Location()
	w.Expect(err).NotTo(HaveOccurred(), string(body))
	return to.Query()
}

// signIn returns the result of a whole sign-in.
func (w *world) signIn(p *openid.Provider, user string) (openid.Tokens, error) {
	w.t.Helper()
	a, at, err := p.Begin(w.t.Context())
	w.Expect(err).NotTo(HaveOccurred())
	back := w.logIn(at, user)
	w.Expect(back.Get("state")).To(Equal(a.State))
	return p.Finish(w.t.Context(), a, back.Get("code"))
}

// A public client signs in, renews with each refresh token once, and revokes.
func TestPublicClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.client()
	_, at, err := p.Begin(t.Context())
	w.Expect(err).NotTo(HaveOccurred())
	u, err := url.Parse(at)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(u.Query()).To(And(HaveKeyWithValue("code_challenge_method", []string{"S256"}), HaveKeyWithValue("code_challenge", ConsistOf(HaveLen(43))),
		HaveKeyWithValue("scope", []string{"openid profile email offline_access"}), HaveKey("nonce"), HaveKeyWithValue("redirect_uri", []string{redirect})))

	got, err := w.signIn(p, "ada")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(got).To(And(HaveField("Subject", "ada"), HaveField("Name", "ada@example.org"), HaveField("Refresh", Not(BeEmpty())),
		HaveField("Expires", BeTemporally("~", time.Now().Add(10*time.Minute), 30*time.Second))))
	bob, err := w.signIn(p, "bob")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(bob.Name).To(Equal("bob"), "without an e-mail address")

	again, err := p.Renew(t.Context(), got.Refresh, got.Subject)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(again.Refresh).NotTo(Or(BeEmpty(), Equal(got.Refresh)))
	var refusal *openid.Refusal
	_, err = p.Renew(t.Context(), got.Refresh, got.Subject)
	w.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
	w.Expect(refusal.Code).To(Equal("invalid_grant"))
	_, err = p.Renew(t.Context(), bob.Refresh, "ada")
	w.Expect(err).To(MatchError(ContainSubstring("another user")))

	w.Expect(p.Revoke(t.Context(), again.Refresh)).To(Succeed())
	w.Expect(w.idp.Counts().Revoked).To(Equal(1))
	_, err = p.Renew(t.Context(), again.Refresh, got.Subject)
	w.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)

	end, err := url.Parse(p.EndSession(t.Context()))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(end.Query()).To(Equal(url.Values{"client_id": {"capstan"}, "post_logout_redirect_uri": {"http://127.0.0.1:1/signin"}}))
}

// A client with a secret authenticates with it, and one with another secret is refused.
func TestClientWithSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const secret = "se:cr%et +"
	w.idp.AddClient(provider.Client{ID: "capstan", Secret: secret})
	w.config.ClientSecret = secret
	p := w.client()
	got, err := w.signIn(p, "ada")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(p.Revoke(t.Context(), got.Refresh)).To(Succeed())
	w.Expect(w.idp.Counts().Revoked).To(Equal(1))

	w.config.ClientSecret = "another"
	_, err = w.signIn(w.client(), "ada")
	var refusal *openid.Refusal
	w.Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
	w.Expect(err.Error()).NotTo(ContainSubstring("another"))
}

// Only the browser that began can use the code, once: it has the verifier of PKCE.
func TestPKCE(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.client()
	for name, change := range map[string]func(*openid.Attempt){
		"no verifier":      func(a *openid.Attempt) { a.Verifier = "" },
		"another verifier": func(a *openid.Attempt) { a.Verifier = "x" + a.Verifier[1:] + "y" },
	} {
		a, at, err := p.Begin(t.Context())
		w.Expect(err).NotTo(HaveOccurred())
		code := w.logIn(at, "ada").Get("code")
		changed := a
		change(&changed)
		_, err = p.Finish(t.Context(), changed, code)
		var refusal *openid.Refusal
		w.Expect(errors.As(err, &refusal)).To(BeTrue(), "%s: %v", name, err)
		_, err = p.Finish(t.Context(), a, code)
		w.Expect(err).NotTo(HaveOccurred(), name)
		_, err = p.Finish(t.Context(), a, code)
		w.Expect(errors.As(err, &refusal)).To(BeTrue(), "%s, a second time: %v", name, err)
	}
}

// ID tokens that the provider signed, and that are not for this sign-in, are refused.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.client()
	for name, tc := range map[string]struct {
		change func(map[string]any)
		says   string
	}{
		"issuer":        {func(c map[string]any) { c["iss"] = "https://evil.example" }, "issued by a different provider"},
		"audience":      {func(c map[string]any) { c["aud"] = "another" }, "expected audience"},
		"no audience":   {func(c map[string]any) { delete(c, "aud") }, "expected audience"},
		"party":         {func(c map[string]any) { c["aud"], c["azp"] = []string{"capstan", "another"}, "another" }, `issued to client "another"`},
		"nonce":         {func(c map[string]any) { c["nonce"] = "another" }, "belongs to another sign-in"},
		"no nonce":      {func(c map[string]any) { delete(c, "nonce") }, "belongs to another sign-in"},
		"expired":       {func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }, "expired"},
		"access token":  {func(c map[string]any) { c["at_hash"] = "AAAAAAAAAAAAAAAAAAAAAA" }, "at_hash"},
		"no ID token":   {func(c map[string]any) { clear(c) }, "has no ID token"},
		"claims' types": {func(c map[string]any) { c["email"] = 7 }, "reading the claims"},
	} {
		w.idp.Alter(tc.change)
		_, err := w.signIn(p, "ada")
		w.Expect(err).To(MatchError(ContainSubstring(tc.says)), name)
	}
	w.idp.Alter(func(map[string]any) {})
	_, err := w.signIn(p, "ada")
	w.Expect(err).NotTo(HaveOccurred(), "a token that was only signed again")
}

// A provider that is down is requested again after discoverEvery; a document of another issuer
// and a certificate of an unknown authority are refused.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := clocktesting.NewFakePassiveClock(time.Now())
	w.config.Clock = now
	p := w.client()
	w.Expect(w.idp.Stop()).To(Succeed())
	_, _, err := p.Begin(t.Context())
	w.Expect(err).To(MatchError(openid.ErrUnavailable))
	w.Expect(p.EndSession(t.Context())).To(BeEmpty())
	w.Expect(w.idp.Serve()).To(Succeed())
	_, _, err = p.Begin(t.Context())
	w.Expect(err).To(MatchError(openid.ErrUnavailable), "it was requested a moment ago")
	now.SetTime(now.Now().Add(5 * time.Second))
	got, err := w.signIn(p, "ada")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.idp.Stop()).To(Succeed())
	_, err = p.Renew(t.Context(), got.Refresh, got.Subject)
	w.Expect(err).To(MatchError(openid.ErrUnavailable))
	w.Expect(p.Revoke(t.Context(), got.Refresh)).To(MatchError(openid.ErrUnavailable))
	w.Expect(w.idp.Serve()).To(Succeed())

	w.config.Roots = nil
	_, _, err = w.client().Begin(t.Context())
	w.Expect(err).To(And(MatchError(openid.ErrUnavailable), MatchError(ContainSubstring("certificate"))))
	w.config.Roots, w.config.Issuer = w.idp.CA, w.idp.Issuer+"/"
	_, _, err = w.client().Begin(t.Context())
	w.Expect(err).To(And(MatchError(openid.ErrUnavailable), MatchError(ContainSubstring("issuer"))))
}

// URLs of issuers and dashboards.
func TestCheckURL(t *testing.T) {
	g := NewWithT(t)
	for raw, says := range map[string]string{
		"https://id.example.org": "", "https://id.example.org/realms/a": "", "http://127.0.0.1:5556/dex": "", "http://localhost:8090": "", "http://[::1]:1": "",
		"http://id.example.org": "not encrypted", "http://127.0.0.1.example.org": "not encrypted", "id.example.org": "not an https:// URL", "": "not an https:// URL",
		"ftp://id.example.org": "not an https:// URL", "https://": "not an https:// URL", "https://:443": "not an https:// URL", "https://a@id.example.org": "must not have",
		"https://id.example.org?a=b": "must not have", "https://id.example.org?": "must not have", "https://id.example.org#a": "must not have", "https://%zz": "not a URL",
		"javascript:alert(1)": "not an https:// URL",
	} {
		err := openid.CheckURL(raw)
		if says == "" {
			g.Expect(err).NotTo(HaveOccurred(), raw)
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(says)), raw)
	}
}
