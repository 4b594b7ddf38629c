package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gathered returns the sum of a metric's series.
func (w *world) gathered(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	w.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

var assetIn = regexp.MustCompile(`href="(/assets/dashboard[^"]+)"`)

func byToken(o *Options) { o.Auth = AuthToken }

// A user signs in with a token, is redirected to the requested page, and signs out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	token := w.account("ada")
	b := w.browser()
	w.Expect(b.get("/pipelines?q=x")).To(And(HaveField("Code", 303), HaveField("Header", HaveKeyWithValue("Location", []string{"/signin?next=%2Fpipelines%3Fq%3Dx"}))))
	w.Expect(b.get("/session").Code).To(Equal(401))
	w.Expect(b.get("/stream?page=/").Code).To(Equal(401))
	w.Expect(b.get("/changes?page=/").Code).To(Equal(401))

	w.Expect(b.signIn("rubbish")).To(And(HaveField("Code", 401), HaveField("Body", ContainSubstring("The token was rejected: mistyped, expired, revoked or from another cluster."))))
	w.Expect(b.signIn(" ").Code).To(Equal(422))
	w.Expect(b.signIn(strings.Repeat("x", MaxToken+1)).Code).To(Equal(422))
	signedIn := b.signIn(token + "\n")
	w.Expect(signedIn).To(And(HaveField("Code", 303), HaveField("Header", HaveKeyWithValue("Location", []string{"/pipelines"}))))
	for _, cookie := range signedIn.Header.Values("Set-Cookie") {
		w.Expect(cookie).To(And(ContainSubstring("HttpOnly"), ContainSubstring("SameSite=Strict"), ContainSubstring("Path=/"), Not(ContainSubstring(token))))
	}
	page := b.get("/")
	w.Expect(page).To(And(HaveField("Code", 200), HaveField("Body", ContainSubstring("system:serviceaccount:"+w.apps+":ada"))))
	w.Expect(page.Body).NotTo(ContainSubstring(token))
	w.Expect(b.get("/session").Code).To(Equal(204))

	// Out: with the form's own token, and the cookie is no session any more, whoever kept it.
	u, _ := url.Parse(w.url)
	kept := b.client.Jar.Cookies(u)
	w.Expect(b.do("POST", "/signout", url.Values{"csrf": {"wrong"}}, nil).Code).To(Equal(403))
	w.Expect(b.get("/").Code).To(Equal(200))
	w.Expect(b.do("POST", "/signout", page.fields(), nil).Code).To(Equal(303))
	w.Expect(b.client.Jar.Cookies(u)).To(BeEmpty())
	b.client.Jar.SetCookies(u, kept)
	w.Expect(b.get("/").Code).To(Equal(303))
}

// A revoked token ends its sessions, and their streams.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	b := w.browser()
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303))
	w.Expect(b.get("/about").Code).To(Equal(200))
	w.Expect(w.c.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.apps, Name: "ada"}})).To(Succeed())
	w.Expect(b.get("/about").Code).To(Equal(200), "it was reviewed a moment ago")
	w.clock.step(reviewFor)
	w.Eventually(func() int { w.clock.step(reviewFor); return b.get("/about").Code }, patience, "500ms").Should(Equal(303))
}

// A session lasts a working day at most.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	b := w.browser()
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303))
	w.clock.step(sessionLife - time.Minute)
	w.Expect(b.get("/about").Code).To(Equal(200))
	w.clock.step(2 * time.Minute)
	w.Expect(b.get("/about").Code).To(Equal(303))
}

// Every replica with the key accepts the session of another replica, also after a restart.
// A replica without the key does not.
func TestSessionOverReplicas(t *testing.T) {
	t.Parallel()
	key := []byte(strings.Repeat("k", MinSessionKey))
	w := newWorld(t, func(o *Options) { byToken(o); o.SessionKey = key })
	b := w.browser()
	w.Expect(b.signIn(w.account("ada")).Code).To(Equal(303))
	w.serve()
	w.Expect(b.get("/about").Code).To(Equal(200))
	w.options.SessionKey = nil
	w.serve()
	w.Expect(b.get("/about").Code).To(Equal(303))
	_, err := New(Options{BindAddress: "127.0.0.1:0", Auth: AuthToken, SessionKey: []byte("short")})
	w.Expect(err).To(MatchError(ContainSubstring("32 bytes or more")))
}

// A client with too many attempts must wait; other clients need not.
func TestSignInIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	b := w.browser()
	for range signIns {
		w.Expect(b.signIn("rubbish").Code).To(Equal(401))
	}
	w.Expect(b.signIn("rubbish")).To(And(HaveField("Code", 429), HaveField("Header", HaveKey("Retry-After"))))
	w.clock.step(signInEvery)
	w.Expect(b.signIn("rubbish").Code).To(Equal(401))

	l, now := newSignInLimiter(), time.Now()
	for range signIns {
		w.Expect(l.allow("[2001:db8::1]:1", now)).To(BeTrue())
	}
	w.Expect(l.allow("[2001:db8::2]:2", now)).To(BeFalse(), "one /64 is one client")
	w.Expect(l.allow("[2001:db8:0:1::1]:1", now)).To(BeTrue())
	for i := range allSignIns {
		l.allow("10.0.0."+string(rune('0'+i%10))+":1", now)
	}
	w.Expect(l.allow("192.0.2.1:1", now)).To(BeFalse(), "all clients together have a bound")
}

// Pages, counts and streams have what the user may list, by user and by group. They have no
// trace of other objects.
func TestScopeOfUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.cluster("dev")
	p := w.pipeline("shop", "1.0.0", "dev")
	w.waits(p, "dev", "1.1.0")
	own := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.fleet, Name: "own"}, EventTime: metav1.NowMicro(), ReportingController: "capstan", ReportingInstance: "x", Action: "Connect",
		Reason: "Ready", Type: "Normal", Note: "told-by-the-hub", Regarding: corev1.ObjectReference{Kind: "ClusterConnection", Namespace: w.fleet, Name: "cluster.dev"},
	}
	w.Expect(w.c.Create(t.Context(), own)).To(Succeed())
	w.Expect(w.c.Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.fleet, Name: "foreign"}, EventTime: metav1.NowMicro(), ReportingController: "elsewhere", ReportingInstance: "x", Action: "Connect",
		Reason: "Ready", Type: "Normal", Note: "told-by-another", Regarding: corev1.ObjectReference{Kind: "ClusterConnection", Namespace: w.fleet, Name: "cluster.dev"},
	})).To(Succeed())

	w.seen(own)
	nobody, ada, member := w.browser(), w.browser(), w.browser()
	w.Expect(nobody.signIn(w.account("nobody")).Code).To(Equal(303))
	w.may(w.apps, w.subject("ada"), lists)
	w.Expect(ada.signIn(w.account("ada")).Code).To(Equal(303))
	// All accounts of the namespace are a group; this one gets its rights by that alone.
	w.Expect(member.signIn(w.account("member")).Code).To(Equal(303))
	w.Expect(member.get("/clusters").Body).To(ContainSubstring("0 clusters"))
	w.clock.step(accessFor)
	w.hearAgain("dev")
	w.Expect(member.get("/clusters").Body).To(ContainSubstring("0 clusters"), "denied again, which counts for longer")

	w.Eventually(func() string { return ada.get("/pipelines").Body }, patience).Should(ContainSubstring(w.apps + "/shop"))
	w.Expect(ada.get("/pipelines").Body).To(ContainSubstring("1 Pipeline"))
	w.Expect(ada.get("/").Body).To(And(ContainSubstring("list clusterconnections.capstan.dev"), ContainSubstring("1 approval"), Not(ContainSubstring("/dev"))))
	w.Expect(ada.get("/clusters/Cluster/" + w.fleet + "/dev").Code).To(Equal(404))
	w.Expect(ada.get("/promotions").Body).To(ContainSubstring("1 promotion"))
	hits := func(title string) gomegatypes.GomegaMatcher { return MatchRegexp("<h2>" + title + " <small>") }
	w.Expect(ada.get("/search?q=dev").Body).To(And(hits("Pipelines"), hits("Promotions"), Not(hits("Clusters")), ContainSubstring("Not visible to you: clusters")))
	w.Expect(nobody.get("/search?q=dev").Body).To(And(Not(hits(".*")), ContainSubstring("Nothing that you may see matches")))

	for _, path := range []string{"/", "/pipelines", "/promotions", "/about", "/search", "/search?q=shop", "/search?q=dev", "/search?q=1.1"} {
		w.Expect(nobody.get(path).Body).NotTo(Or(ContainSubstring(w.fleet), ContainSubstring(w.apps+"/"), ContainSubstring("1.1.0"), MatchRegexp(`\b1 (Pipeline|promotion|awaiting)`)), path)
	}
	w.Expect(nobody.get("/pipelines/" + w.apps + "/shop").Code).To(Equal(404))
	w.Expect(nobody.get("/pipelines").Body).To(ContainSubstring("list pipelines.pipelines.weave.works"))

	// The stream of each has what that one may see, and a right that comes changes the page.
	version := nobody.get("/pipelines").version()
	theirs, _ := nobody.listen("/pipelines", version, nil)
	hers, _ := ada.listen("/pipelines", ada.get("/pipelines").version(), nil)
	w.runs(p, "dev", "1.0.1")
	w.Eventually(hers, patience).Should(Receive(HaveField("Data", ContainSubstring("1.0.1"))))
	w.Consistently(theirs, "500ms").ShouldNot(Receive())
	w.Expect(nobody.get("/changes?page=/pipelines&from=" + ada.get("/pipelines").version()).Body).To(And(ContainSubstring(`"resync":true`), Not(ContainSubstring("shop"))))

	w.may(w.fleet, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + w.apps, APIGroup: rbacv1.GroupName}, lists, listsEvents)
	w.clock.step(deniedFor - time.Second)
	w.hearAgain("dev")
	w.Expect(member.get("/clusters").Body).To(ContainSubstring("0 clusters"), "what was denied is not asked for again and again")
	w.clock.step(time.Second)
	w.Eventually(func() string { return member.get("/").Body }, patience).Should(And(ContainSubstring(w.fleet+"/dev"), ContainSubstring("1 cluster")))
	detail := member.get("/clusters/Cluster/" + w.fleet + "/dev").Body
	w.Expect(detail).To(And(ContainSubstring("told-by-the-hub"), Not(ContainSubstring("told-by-another")), ContainSubstring("list pipelines.pipelines.weave.works")))
}

// A revoked permission ends within accessFor. A granted permission takes effect at once
// after signing in.
func TestRightsThatChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byToken)
	w.pipeline("shop", "1.0.0", "dev")
	b, token := w.browser(), w.account("ada")
	w.Expect(b.signIn(token).Code).To(Equal(303))
	w.Expect(b.get("/pipelines").Body).To(ContainSubstring("0 Pipelines"))
	w.may(w.apps, w.subject("ada"), lists)
	w.Expect(b.get("/pipelines").Body).To(ContainSubstring("0 Pipelines"))
	w.Expect(b.signIn(token).Code).To(Equal(303))
	w.Expect(b.get("/pipelines").Body).To(ContainSubstring("1 Pipeline"))

	w.Expect(w.c.DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace(w.apps))).To(Succeed())
	w.clock.step(accessFor - time.Second)
	w.Expect(b.get("/pipelines").Body).To(ContainSubstring("1 Pipeline"), "it was asked a moment ago")
	w.Eventually(func() string { w.clock.step(accessFor); return b.get("/pipelines").Body }, patience).Should(And(ContainSubstring("0 Pipelines"), Not(ContainSubstring("shop"))))
}

func (w *world) hearAgain(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, h := range w.heard {
		if c.Name == name {
			h.LastContact = w.clock.Now()
			w.heard[c] = h
		}
	}
}

// A dashboard without sign-in serves only this machine, also by host name. The dashboard is
// not served at an address to which tokens would be sent unencrypted.
func TestExposure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	b := w.browser()
	w.Expect(b.get("/").Code).To(Equal(200))
	rebound, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/", nil)
	w.Expect(err).NotTo(HaveOccurred())
	rebound.Host = "attacker.example.org:8090"
	response, err := b.client.Do(rebound)
	w.Expect(err).NotTo(HaveOccurred())
	response.Body.Close()
	w.Expect(response.StatusCode).To(Equal(http.StatusMisdirectedRequest))
	w.Expect(b.get("/promotions/a/b/approve").Code).To(Equal(404), "nobody approves without a name")
	w.Expect(b.get("/signin").Code).To(Equal(404))

	for _, tc := range []struct {
		address string
		auth    Auth
		tls     bool
		says    string
	}{
		{"127.0.0.1:8090", AuthNone, false, ""}, {"[::1]:8090", AuthNone, false, ""}, {"localhost:8090", AuthToken, false, ""}, {":8090", AuthToken, true, ""},
		{":8090", AuthNone, true, "sign-in is disabled"}, {"0.0.0.0:8090", AuthNone, false, "sign-in is disabled"}, {"10.0.0.1:8090", AuthToken, false, "unencrypted"},
		{":8090", AuthToken, false, "unencrypted"}, {"127.0.0.1.example.org:80", AuthNone, false, "sign-in is disabled"},
	} {
		err := CheckExposure(tc.address, tc.auth, tc.tls)
		if tc.says == "" {
			w.Expect(err).NotTo(HaveOccurred(), tc.address)
			continue
		}
		w.Expect(errors.Is(err, ErrExposed)).To(BeTrue())
		w.Expect(err).To(MatchError(ContainSubstring(tc.says)))
	}
}

// Headers, compression and caching by browsers.
func TestHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	b := w.browser()
	page := b.get("/")
	w.Expect(page.Header.Get("Content-Security-Policy")).To(And(ContainSubstring("default-src 'none'"), ContainSubstring("frame-ancestors 'none'"), Not(ContainSubstring("unsafe"))))
	w.Expect(page.Header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
	w.Expect(page.Header.Get("Cache-Control")).To(Equal("no-store"))
	w.Expect(page.Body).NotTo(MatchRegexp(`(?i)<style|style="|<script>|\son[a-z]+="`))
	style := assetIn.FindStringSubmatch(page.Body)[1]
	kept := b.get(style)
	w.Expect(kept).To(And(HaveField("Code", 200), HaveField("Body", ContainSubstring(":root"))))
	w.Expect(kept.Header.Get("Cache-Control")).To(ContainSubstring("immutable"))
	w.Expect(b.do("GET", style, nil, http.Header{"If-None-Match": {kept.Header.Get("ETag")}}).Code).To(Equal(304))
	w.Expect(b.get("/assets/dashboard.css").Code).To(Equal(404))
	w.Expect(b.get("/assets/..%2fdoc.go").Code).To(Equal(404))
	w.Expect(b.do("GET", "/", nil, http.Header{"Accept-Encoding": {"br, gzip"}}).Header.Get("Content-Encoding")).To(Equal("gzip"))
	w.Expect(b.do("GET", "/", nil, http.Header{"Accept-Encoding": {"gzip;q=0"}}).Header.Get("Content-Encoding")).To(BeEmpty())
	for _, path := range []string{"/nowhere", "/pipelines/a", "/clusters/Cluster/a/b", "/pipelines/a/b/c"} {
		w.Expect(b.get(path).Code).To(Equal(404), path)
	}
	w.Expect(b.do("POST", "/pipelines", url.Values{}, nil).Code).To(Equal(405))
}

// After signing in, no redirect leads to another site.
func TestLocal(t *testing.T) {
	g := NewWithT(t)
	for next, want := range map[string]string{
		"/pipelines?q=a": "/pipelines?q=a", "/promotions/a/b/approve": "/promotions/a/b/approve", "": "/", "//evil.example": "/", "/\\evil.example": "/",
		"https://evil.example/": "/", "javascript:alert(1)": "/", "/signin?next=/signin": "/", "evil": "/", "/%zz": "/", "/" + strings.Repeat("x", maxAddress): "/",
	} {
		g.Expect(local(next)).To(Equal(want), next)
	}
}
