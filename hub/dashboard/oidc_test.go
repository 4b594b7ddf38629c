package dashboard

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/playground/controlplane"
	"github.com/capstan-hub/capstan/playground/openid"
	"github.com/capstan-hub/capstan/playground/ports"
)

const oidcClient = "capstan"

var (
	// trusting is a control plane that accepts the ID tokens of idp; started for the first test
	// that needs it. Tests that use it are not parallel, because they change idp.
	trusting      *controlplane.ControlPlane
	trustingAdmin client.Client
	trustingAudit string
	trusting1     sync.Once
	errTrusting   error
	idp           *openid.Provider
)

// provided starts a provider and a control plane that accepts its ID tokens.
func provided(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	trusting1.Do(func() {
		folder, err := os.MkdirTemp("", "capstan-oidc-") //nolint:usetesting // It is for all tests.
		if errTrusting = err; err != nil {
			return
		}
		stops = append(stops, func() error { return os.RemoveAll(folder) })
		if idp, errTrusting = openid.Start(folder); errTrusting != nil {
			return
		}
		stops = append(stops, idp.Stop)
		trustingAudit = filepath.Join(folder, "audit.log")
		trusting, errTrusting = controlplane.Start(controlplane.Options{CRDs: controlplane.CRDs("capstan", "cluster-api", "cluster-controller"), AuditLog: trustingAudit, OIDC: &controlplane.OIDC{
			Issuer: idp.Issuer, ClientID: oidcClient, CAFile: idp.CAFile, UserClaim: "email", GroupsClaim: "groups", GroupsPrefix: "oidc:",
		}})
		if errTrusting != nil {
			return
		}
		stops = append(stops, trusting.Stop)
		trustingAdmin, errTrusting = prepared(t.Context(), trusting)
	})
	g.Expect(errTrusting).NotTo(HaveOccurred())
	idp.AddUser(openid.User{Name: "ada", Email: "ada@example.org", Groups: []string{"ops"}})
	idp.AddUser(openid.User{Name: "bob", Email: "bob@example.org", Groups: []string{"sales"}})
	// The API server reads the keys of the provider some seconds after its start.
	g.Eventually(func(g Gomega) {
		token, err := idp.Sign(claims(oidcClient))
		g.Expect(err).NotTo(HaveOccurred())
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		g.Expect(trustingAdmin.Create(t.Context(), review)).To(Succeed())
		g.Expect(review.Status.Authenticated).To(BeTrue(), review.Status.Error)
	}, patience, "250ms").Should(Succeed())
	t.Cleanup(func() {
		idp.Alter(nil)
		idp.SetLifetime(10 * time.Minute)
		g.Expect(idp.Stop()).To(Succeed())
		g.Expect(idp.Serve()).To(Succeed())
	})
}

// claims of an ID token of ada for a client.
func claims(audience string) map[string]any {
	return map[string]any{"iss": idp.Issuer, "aud": audience, "sub": "ada", "email": "ada@example.org", "groups": []string{"ops"}, "iat": time.Now().Unix(), "exp": time.Now().Add(10 * time.Minute).Unix()}
}

// atProvider configures a dashboard for sign-in at idp.
func atProvider(t *testing.T, edit func(*Options)) func(*Options) {
	t.Helper()
	address, err := ports.Free()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return func(o *Options) {
		own := "http://" + address
		idp.AddClient(openid.Client{ID: oidcClient, RedirectURLs: []string{own + "/signin/oidc/callback"}, SignedOutURLs: []string{own + "/signin"}})
		o.BindAddress, o.Auth = address, AuthToken
		o.OIDC = &OIDC{IssuerURL: idp.Issuer, URL: own + "/", ClientID: oidcClient, Scopes: []string{"profile", "email", "groups", "offline_access"}, Roots: idp.CA}
		if edit != nil {
			edit(o)
		}
	}
}

// newOIDCWorld is a dashboard with sign-in at idp, whose API server accepts its ID tokens.
func newOIDCWorld(t *testing.T, edit func(*Options)) *world {
	t.Helper()
	provided(t)
	return newWorldOn(t, trusting, trustingAdmin, atProvider(t, edit))
}

// begin begins a sign-in and returns the address at the provider.
func (b *browser) begin(next string) string {
	b.w.t.Helper()
	begun := b.get("/signin/oidc?" + url.Values{"next": {next}}.Encode())
	b.w.Expect(begun.Code).To(Equal(303), begun.Body)
	return begun.Header.Get("Location")
}

// logIn logs a user in at the provider, and returns the path and query to which it redirects.
func (b *browser) logIn(at, user string) string {
	b.w.t.Helper()
	jar, err := cookiejar.New(nil)
	b.w.Expect(err).NotTo(HaveOccurred())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: idp.CA, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") && strings.HasPrefix(r.URL.Path, "/signin") {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	form, err := c.Get(at)
	b.w.Expect(err).NotTo(HaveOccurred())
	form.Body.Close()
	id := form.Request.URL.Query().Get("id")
	b.w.Expect(id).NotTo(BeEmpty(), form.Request.URL.String())
	back, err := c.PostForm(idp.Issuer+"/login", url.Values{"id": {id}, "user": {user}})
	b.w.Expect(err).NotTo(HaveOccurred())
	back.Body.Close()
	to, err := back.Location()
	b.w.Expect(err).NotTo(HaveOccurred())
	b.w.Expect("http://" + to.Host).To(Equal(b.w.url))
	return to.RequestURI()
}

// signInAt signs a user in at the provider and returns the answer to the callback.
func (b *browser) signInAt(user string) answer {
	b.w.t.Helper()
	return b.get(b.logIn(b.begin("/pipelines"), user))
}

// group of the provider, as the API server names it.
func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "oidc:" + name, APIGroup: rbacv1.GroupName}
}

// counted returns the number of sign-ins of a method with a result.
func (w *world) counted(method, result string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	w.Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); f.GetName() == "capstan_dashboard_sign_ins_total" && l[0].GetValue() == method && l[1].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// jwt is how a token begins: its header and its claims are JSON in base64. What is encrypted, in base64 too, has no dot.
const jwt = `eyJ[\w-]+\.eyJ`

// A user signs in at the provider and sees what the groups of the ID token may list. An approval
// is written, and audited, under the name of that person; the hub impersonates no one.
func TestOIDC(t *testing.T) {
	w := newOIDCWorld(t, nil)
	w.cluster("dev")
	p := w.pipeline("shop", "1.0.0", "dev")
	promotion := w.waits(p, "dev", "1.1.0")
	w.may(w.apps, group("ops"), lists)
	w.approver(group("ops"))
	host := strings.TrimPrefix(idp.Issuer, "https://")

	ada, bob := w.browser(), w.browser()
	form := ada.get("/signin?next=%2Fpipelines")
	w.Expect(form.Body).To(MatchRegexp(`(?s)href="` + w.url + `/signin/oidc\?next=%2Fpipelines">Sign in with ` + host + `<.*<form class="signin"`))
	at, err := url.Parse(ada.begin("/pipelines"))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(at.Query()).To(And(HaveKeyWithValue("code_challenge_method", []string{"S256"}), HaveKeyWithValue("redirect_uri", []string{w.url + "/signin/oidc/callback"}), HaveKey("nonce"), HaveKey("state")))

	signed := ada.signInAt("ada")
	w.Expect(signed.Code).To(Equal(200), signed.Body)
	w.Expect(signed.Header.Get("Refresh")).To(Equal("0;url=/pipelines"), "the browser opens the page from this one, with its strict cookies")
	w.Expect(signed.Body).To(And(ContainSubstring("You are signed in as ada@example.org"), ContainSubstring(`href="/pipelines"`)))
	var strict, deleted int
	for _, cookie := range signed.Header.Values("Set-Cookie") {
		w.Expect(cookie).To(And(ContainSubstring("HttpOnly"), ContainSubstring("Path=/"), Not(MatchRegexp(jwt))))
		switch {
		case strings.HasPrefix(cookie, cookiePlain):
			w.Expect(cookie).To(ContainSubstring("SameSite=Strict"))
			strict++
		case strings.HasPrefix(cookie, attemptPlain):
			w.Expect(cookie).To(And(ContainSubstring("SameSite=Lax"), ContainSubstring("Max-Age=0")))
			deleted++
		}
	}
	w.Expect([]int{strict, deleted}).To(Equal([]int{maxCookies, 1}))
	w.Expect(bob.signInAt("bob").Code).To(Equal(200))
	w.Expect([]float64{w.counted("oidc", "ok"), w.counted("token", "ok")}).To(Equal([]float64{2, 0}))

	w.Expect(ada.get("/pipelines").Body).To(And(ContainSubstring(w.apps+"/shop"), ContainSubstring("ada@example.org")))
	w.Expect(bob.get("/pipelines").Body).To(And(Not(ContainSubstring("shop")), ContainSubstring("bob@example.org")))
	path := "/promotions/" + w.apps + "/" + promotion.Name + "/approve"
	w.Expect(bob.get(path).Code).To(Equal(404))
	w.Eventually(func() int { return ada.get(path).Code }, patience).Should(Equal(200))
	w.Expect(ada.do("POST", path, ada.get(path).fields(), nil).Code).To(Equal(303))
	w.Expect(w.c.Get(t.Context(), client.ObjectKeyFromObject(promotion), promotion)).To(Succeed())
	w.Expect(promotion.Spec.Approval).To(Equal(&capstanv1.Approval{By: "ada@example.org"}))

	log, err := controlplane.ReadAudit(trustingAudit)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(log).To(ContainElement(And(HaveField("User", "ada@example.org"), HaveField("Verb", "patch"), HaveField("Name", promotion.Name), HaveField("Code", 200))))
	raw, err := os.ReadFile(trustingAudit)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(raw)).NotTo(MatchRegexp(`"impersonatedUser":\{"username":"ada`))

	// The ID token of another client of the provider is no token of this API server.
	other, err := idp.Sign(claims("another"))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.browser().signIn(other).Code).To(Equal(401))
	own, err := idp.Sign(claims(oidcClient))
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.browser().signIn(own).Code).To(Equal(303), "an ID token is a token as any other")
	w.Expect(w.browser().signIn(w.account("eve")).Code).To(Equal(303), "tokens are accepted as before")
	w.Expect(w.counted("token", "ok")).To(BeEquivalentTo(2))
}

// Answers that do not belong to an attempt of this browser are refused, and two tabs do not
// disturb each other.
func TestOIDCAttempts(t *testing.T) {
	w := newOIDCWorld(t, nil)
	idp.SetLifetime(24 * time.Hour) // The clock of the dashboard is stepped.
	const refused = "was not begun in this browser"
	one, other := w.browser(), w.browser()
	callback := one.logIn(one.begin("/pipelines"), "ada")
	w.Expect(other.get(callback)).To(And(HaveField("Code", 400), HaveField("Body", ContainSubstring(refused))), "an answer of another browser")
	w.Expect(other.get("/session").Code).To(Equal(401))
	u, err := url.Parse(callback)
	w.Expect(err).NotTo(HaveOccurred())
	for _, state := range []string{"", "short", u.Query().Get("state") + "x", u.Query().Get("state")[:attemptID] + "AAAAAAAAAAAAAA"} {
		w.clock.step(signInEvery)
		q := u.Query()
		q.Set("state", state)
		w.Expect(w.browser().get(u.Path+"?"+q.Encode())).To(And(HaveField("Code", 400), HaveField("Body", ContainSubstring(refused))), state)
	}
	w.clock.step(time.Minute)
	q := u.Query()
	q.Set("iss", "https://evil.example")
	mixed := w.browser()
	back, err := url.Parse(mixed.logIn(mixed.begin("/"), "ada"))
	w.Expect(err).NotTo(HaveOccurred())
	q.Set("state", back.Query().Get("state"))
	w.Expect(mixed.get(u.Path + "?" + q.Encode())).To(And(HaveField("Code", 400), HaveField("Body", ContainSubstring("another provider"))))

	w.Expect(one.get(callback).Code).To(Equal(200))
	w.Expect(one.get("/session").Code).To(Equal(204))
	w.Expect(one.get(callback)).To(And(HaveField("Code", 400), HaveField("Body", ContainSubstring(refused))), "a second time")

	// A cookie of an attempt that was kept does not make the code valid again.
	kept := w.browser()
	at := kept.begin("/")
	host, err := url.Parse(w.url)
	w.Expect(err).NotTo(HaveOccurred())
	cookies := kept.client.Jar.Cookies(host)
	callback = kept.logIn(at, "ada")
	w.Expect(kept.get(callback).Code).To(Equal(200))
	w.clock.step(time.Minute)
	replay := w.browser()
	replay.client.Jar.SetCookies(host, cookies)
	w.Expect(replay.get(callback)).To(And(HaveField("Code", 401), HaveField("Body", ContainSubstring("invalid_grant"))))

	tabs := w.browser()
	first, second := tabs.begin("/promotions"), tabs.begin("/backends")
	w.Expect(tabs.get(tabs.logIn(second, "ada")).Header.Get("Refresh")).To(Equal("0;url=/backends"))
	w.Expect(tabs.get(tabs.logIn(first, "bob")).Header.Get("Refresh")).To(Equal("0;url=/promotions"))
	w.Expect(tabs.get("/about").Body).To(ContainSubstring("bob@example.org"), "who signed in last")

	w.clock.step(time.Minute)
	slow := w.browser()
	callback = slow.logIn(slow.begin("/"), "ada")
	w.clock.step(attemptLife + time.Second)
	w.Expect(slow.get(callback)).To(And(HaveField("Code", 400), HaveField("Body", ContainSubstring("10 minutes"))))

	// Another site that opens the address many times fills no headers.
	flooded := w.browser()
	oldest := flooded.begin("/")
	for range 3 * maxAttempts {
		w.clock.step(time.Second)
		at = flooded.begin("/")
	}
	w.Expect(flooded.client.Jar.Cookies(host)).To(HaveLen(maxAttempts))
	w.Expect(flooded.get(flooded.logIn(oldest, "ada")).Code).To(Equal(400))
	w.Expect(flooded.get(flooded.logIn(at, "ada")).Code).To(Equal(200))
	w.Expect(w.browser().get("/signin/oidc?next=https://evil.example").Code).To(Equal(303))
	evil := w.browser()
	w.Expect(evil.get(evil.logIn(evil.begin("https://evil.example/"), "ada")).Header.Get("Refresh")).To(Equal("0;url=/"))

	for range signIns {
		other.get(callback)
	}
	w.Expect(other.get(callback)).To(And(HaveField("Code", 429), HaveField("Header", HaveKey("Retry-After"))))
	w.Expect(w.counted("oidc", "limited")).To(BeNumerically(">=", 1))
}

// What a provider says is shown as text. ID tokens that are not for this sign-in are refused.
func TestOIDCRefusals(t *testing.T) {
	w := newOIDCWorld(t, nil)
	host := strings.TrimPrefix(idp.Issuer, "https://")
	b := w.browser()
	at, err := url.Parse(b.begin("/"))
	w.Expect(err).NotTo(HaveOccurred())
	answered := b.get("/signin/oidc/callback?" + url.Values{
		"state": {at.Query().Get("state")}, "error": {`access_denied"><script>alert(1)</script>`}, "error_description": {"\u202e\r\nSet-Cookie: a=b" + strings.Repeat("x", 1000)},
	}.Encode())
	w.Expect(answered.Code).To(Equal(401))
	w.Expect(answered.Body).To(And(ContainSubstring(host+" refused the sign-in: access_denied&#34;&gt;&lt;script&gt;"), Not(ContainSubstring("<script>alert")), Not(ContainSubstring("\u202e")), Not(ContainSubstring(strings.Repeat("x", 300)))))
	w.Expect(b.get("/session").Code).To(Equal(401))

	for name, tc := range map[string]struct {
		change func(map[string]any)
		says   string
	}{
		"audience": {func(c map[string]any) { c["aud"] = "another" }, "expected audience"},
		"issuer":   {func(c map[string]any) { c["iss"] = "https://evil.example" }, "issued by a different provider"},
		"nonce":    {func(c map[string]any) { c["nonce"] = "another" }, "belongs to another sign-in"},
		"expiry":   {func(c map[string]any) { c["exp"] = w.clock.Now().Add(-time.Minute).Unix() }, "expired"},
	} {
		w.clock.step(signInEvery)
		idp.Alter(tc.change)
		b := w.browser()
		w.Expect(b.signInAt("ada")).To(And(HaveField("Code", 401), HaveField("Body", ContainSubstring(tc.says))), name)
		w.Expect(b.get("/session").Code).To(Equal(401), name)
	}

	// A token with too many groups fits with or without its refresh token, or is refused.
	groups := func(n int) func(map[string]any) {
		return func(c map[string]any) {
			all := []string{"ops"}
			for i := range n {
				all = append(all, fmt.Sprintf("group-%05d-%s", i, strings.Repeat("x", 30)))
			}
			c["groups"] = all
		}
	}
	idp.Alter(groups(120))
	many := w.browser()
	w.Expect(many.signInAt("ada").Code).To(Equal(200))
	w.Expect(many.get("/about").Code).To(Equal(200))
	idp.Alter(groups(1000))
	w.Expect(w.browser().signInAt("ada")).To(And(HaveField("Code", 401), HaveField("Body", ContainSubstring("configure fewer claims for its client capstan"))))
}

// An API server that does not accept the ID tokens: the page says what to configure.
func TestOIDCUntrusted(t *testing.T) {
	provided(t)
	w := newWorld(t, atProvider(t, nil))
	b := w.browser()
	w.Expect(b.signInAt("ada")).To(And(HaveField("Code", 401), HaveField("Body", And(
		ContainSubstring("accepted you as ada@example.org, but the API server of this management cluster does not accept its tokens"),
		ContainSubstring("--oidc-issuer-url="+idp.Issuer), ContainSubstring("--oidc-client-id=capstan")))))
	w.Expect(b.get("/session").Code).To(Equal(401))
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303), "by token")
}

// fastTickers makes the checks of streams come a hundred times as often.
type fastTickers struct{ clock.WithTicker }

func (c fastTickers) NewTicker(d time.Duration) clock.Ticker {
	const faster = 100
	return c.WithTicker.NewTicker(d / faster)
}

// An ID token is renewed before it expires: once for all requests of the session, with each
// refresh token once. Streams go on.
func TestOIDCRenewal(t *testing.T) {
	w := newOIDCWorld(t, func(o *Options) { o.Clock = fastTickers{o.Clock} })
	p := w.pipeline("shop", "1.0.0", "dev")
	w.may(w.apps, group("ops"), lists)
	b := w.browser()
	w.Expect(b.signInAt("ada").Code).To(Equal(200))
	host, err := url.Parse(w.url)
	w.Expect(err).NotTo(HaveOccurred())
	first := b.client.Jar.Cookies(host)
	before := idp.Counts()
	events, _ := b.listen("/pipelines", b.get("/pipelines").version(), nil)
	w.Expect(b.get("/about").Header.Values("Set-Cookie")).To(BeEmpty(), "nothing is renewed yet")

	idp.SetLifetime(30 * time.Minute)
	w.clock.step(9 * time.Minute)
	w.Eventually(events, patience).Should(Receive(HaveField("Name", "renew")))
	w.Expect(idp.Counts().Renewed).To(Equal(before.Renewed), "the answer of a stream that began cannot set cookies")

	// Many requests with the former cookies at once, among them the stream that reconnects.
	var group sync.WaitGroup
	renewed := make(chan bool, 20)
	for range cap(renewed) {
		old := w.browser()
		old.client.Jar.SetCookies(host, first)
		group.Go(func() { renewed <- len(old.get("/about").Header.Values("Set-Cookie")) == maxCookies })
	}
	group.Wait()
	for range cap(renewed) {
		w.Expect(<-renewed).To(BeTrue(), "each answer sets the new cookies")
	}
	after := idp.Counts()
	w.Expect([]int{after.Renewed - before.Renewed, after.Refused - before.Refused}).To(Equal([]int{1, 0}))
	events, end := b.listen("/pipelines", b.get("/pipelines").version(), nil)
	second := b.client.Jar.Cookies(host)
	w.Expect(second).NotTo(Equal(first))
	w.clock.step(5 * time.Minute) // The first ID token has expired.
	w.runs(p, "dev", "1.0.1")
	w.Eventually(events, patience).Should(Receive(HaveField("Data", ContainSubstring("1.0.1"))))
	w.Expect(b.get("/pipelines").Code).To(Equal(200))
	end()

	// A machine that slept: the ID token expired, and the refresh token is valid.
	idp.SetLifetime(24 * time.Hour)
	w.clock.step(2 * time.Hour)
	w.Expect(b.get("/pipelines").Code).To(Equal(200))
	w.Expect(idp.Counts().Renewed - before.Renewed).To(Equal(2))
	w.Expect(idp.Counts().Refused).To(Equal(before.Refused))

	// A day's work is the limit, whatever the provider permits.
	w.clock.step(sessionLife)
	w.Expect(b.get("/pipelines").Code).To(Equal(303))
}

// A stream that begins when the token expires soon renews the session itself: its answer sets
// the cookies.
func TestOIDCStreamRenews(t *testing.T) {
	w := newOIDCWorld(t, nil)
	b := w.browser()
	w.Expect(b.signInAt("ada").Code).To(Equal(200))
	version := b.get("/about").version()
	host, err := url.Parse(w.url)
	w.Expect(err).NotTo(HaveOccurred())
	first := b.client.Jar.Cookies(host)
	idp.SetLifetime(time.Hour)
	w.clock.step(9 * time.Minute)
	b.listen("/about", version, nil)
	w.Expect(b.client.Jar.Cookies(host)).NotTo(Equal(first))
	w.clock.step(10 * time.Minute)
	w.Expect(b.get("/about").Code).To(Equal(200))
}

// A session that is not renewed lasts until its ID token expires, and the sign-in page says why
// it ended.
func TestOIDCEnds(t *testing.T) {
	w := newOIDCWorld(t, func(o *Options) { o.Clock = fastTickers{o.Clock} })
	ended := func(b *browser, says string) {
		t.Helper()
		out := b.get("/about")
		w.Expect(out.Code).To(Equal(303))
		w.Expect(b.get(out.Header.Get("Location")).Body).To(ContainSubstring("Your sign-in ended: " + says))
		w.Expect(b.get("/about").Header.Get("Location")).To(Equal("/signin?next=%2Fabout"), "once")
	}
	refused := w.browser()
	w.Expect(refused.signInAt("ada").Code).To(Equal(200))
	idp.RevokeAll()
	before := idp.Counts()
	w.clock.step(9 * time.Minute)
	for range 5 {
		w.Expect(refused.get("/about").Code).To(Equal(200), "the ID token is valid")
	}
	w.Expect(idp.Counts().Refused-before.Refused).To(Equal(1), "a refusal is final")
	events, _ := refused.listen("/about", refused.get("/about").version(), nil)
	w.Consistently(events, "700ms").ShouldNot(Receive(), "the stream is not interrupted for a session that cannot be renewed")
	w.clock.step(2 * time.Minute)
	w.Eventually(events, patience).Should(Receive(HaveField("Name", "signedout")))
	ended(refused, "the provider did not renew it")

	idp.SetLifetime(time.Until(w.clock.Now().Add(10 * time.Minute)))
	down := w.browser()
	w.Expect(down.signInAt("ada").Code).To(Equal(200))
	w.Expect(idp.Stop()).To(Succeed())
	w.clock.step(9 * time.Minute)
	w.Expect(down.get("/about").Code).To(Equal(200))
	w.clock.step(2 * time.Minute)
	ended(down, "the provider was not available")
	w.Expect(idp.Serve()).To(Succeed())
	w.Expect(w.browser().get("/signin?ended=%3Cscript%3E").Body).NotTo(ContainSubstring("id=\"refused\""))

	// Without offline_access there is no refresh token.
	w.server.OIDC.Scopes = []string{"email", "groups"}
	w.server.provider = w.server.OIDC.provider(w.clock)
	w.clock.step(time.Minute)
	idp.SetLifetime(time.Until(w.clock.Now().Add(10 * time.Minute)))
	short := w.browser()
	w.Expect(short.signInAt("ada").Code).To(Equal(200))
	w.clock.step(9 * time.Minute)
	w.Expect(short.get("/about").Code).To(Equal(200))
	w.clock.step(2 * time.Minute)
	ended(short, "the ID token expired, and the provider issued no refresh token")
	w.server.provider.Close()
}

// A provider that is down at the start delays nothing: users sign in with tokens, and at the
// provider as soon as it responds.
func TestOIDCProviderDown(t *testing.T) {
	w := newOIDCWorld(t, nil)
	w.Expect(idp.Stop()).To(Succeed())
	b := w.browser()
	w.Expect(b.get("/signin").Code).To(Equal(200))
	unavailable := b.get("/signin/oidc")
	w.Expect(unavailable).To(And(HaveField("Code", 503), HaveField("Body", And(ContainSubstring("is not available at the moment"), ContainSubstring(`name="token"`), Not(ContainSubstring("data-retry"))))))
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303))
	w.Expect(idp.Serve()).To(Succeed())
	w.clock.step(time.Minute)
	later := w.browser()
	at := later.begin("/")
	callback := later.logIn(at, "ada")
	w.Expect(idp.Stop()).To(Succeed())
	w.Expect(later.get(callback)).To(And(HaveField("Code", 503), HaveField("Body", ContainSubstring("is not available at the moment"))))
	w.Expect(idp.Serve()).To(Succeed())
	w.Expect(later.signInAt("ada").Code).To(Equal(200))
	w.Expect(w.counted("oidc", "error")).To(BeEquivalentTo(2))
}

// Signing out ends the session, revokes the refresh token, and leads to the provider.
func TestOIDCSignOut(t *testing.T) {
	w := newOIDCWorld(t, nil)
	b := w.browser()
	w.Expect(b.signInAt("ada").Code).To(Equal(200))
	host, err := url.Parse(w.url)
	w.Expect(err).NotTo(HaveOccurred())
	kept := b.client.Jar.Cookies(host)
	before := idp.Counts()
	fields := b.get("/about").fields()
	w.Expect(b.do("POST", "/signout", url.Values{"csrf": {"wrong"}}, nil).Code).To(Equal(403))
	out := b.do("POST", "/signout", fields, nil)
	w.Expect(out.Code).To(Equal(200), "not a redirect, to which browsers apply form-action")
	w.Expect(out.Header.Get("Content-Security-Policy")).To(ContainSubstring("form-action 'self'"))
	w.Expect(idp.Counts().Revoked - before.Revoked).To(Equal(1))
	w.Expect(b.client.Jar.Cookies(host)).To(BeEmpty())
	b.client.Jar.SetCookies(host, kept)
	w.Expect(b.get("/about").Code).To(Equal(303), "whoever kept the cookies")

	end := strings.TrimPrefix(out.Header.Get("Refresh"), "0;url=")
	w.Expect(end).To(And(HavePrefix(idp.Issuer), Not(MatchRegexp(jwt))), "no ID token in an address")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, end, nil)
	w.Expect(err).NotTo(HaveOccurred())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: idp.CA, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	w.Expect(err).NotTo(HaveOccurred())
	response.Body.Close()
	w.Expect(response.Header.Get("Location")).To(Equal(w.url + "/signin"))
	w.Expect(idp.Counts().Ended - before.Ended).To(Equal(1))

	token := w.browser()
	w.Expect(token.signIn(w.account("ada")).Code).To(Equal(303))
	w.Expect(token.do("POST", "/signout", token.get("/about").fields(), nil).Code).To(Equal(303), "by token: there is no other session")

	// While the provider is down, the session of the dashboard ends all the same.
	w.Expect(b.signInAt("ada").Code).To(Equal(200))
	fields = b.get("/about").fields()
	w.Expect(idp.Stop()).To(Succeed())
	w.Expect(b.do("POST", "/signout", fields, nil).Code).To(BeElementOf(200, 303))
	w.Expect(b.get("/about").Code).To(Equal(303))
	w.Expect(idp.Serve()).To(Succeed())
}
