package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// Every address is either that of a page with one canonical address, or of no page.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"/", "/pipelines?q=a&page=2", "/clusters/Cluster/a/b", "/pipelines/%2F/%00", "/promotions?state=Awaiting+approval", "//x", "/%"} {
		f.Add(seed)
	}
	facts := large()
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		o := &Options{}
		a, ok := o.parseAddress(u)
		if !ok {
			return
		}
		again, err := url.Parse(a.canonical)
		if err != nil {
			t.Fatalf("%q is no address: %v", a.canonical, err)
		}
		b, ok := o.parseAddress(again)
		if !ok || b.canonical != a.canonical || b.route != a.route {
			t.Fatalf("%q of %q is another page: %q", a.canonical, text, b.canonical)
		}
		a.build(facts, view.Everything())
	})
}

// A cookie that this key did not encrypt is no session, and no redirect leads to another
// site.
func FuzzSession(f *testing.F) {
	f.Add("AAAA", "", "/pipelines")
	f.Add("", "x", "//evil")
	s, err := newSealer([]byte(strings.Repeat("k", MinSessionKey)), false, clock.RealClock{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, second, next string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: s.cookieName(0), Value: first})
		r.AddCookie(&http.Cookie{Name: s.cookieName(1), Value: second})
		if of, err := s.read(r); err == nil {
			t.Fatalf("%+v is a session", of)
		}
		if to := local(next); !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.HasPrefix(to, `/\`) {
			t.Fatalf("%q leads to %q", next, to)
		}
	})
}

// A token of any accepted length is read back completely from its cookies.
func TestLongTokens(t *testing.T) {
	s, err := newSealer(nil, true, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []int{1, 1000, 2800, 2900, 6000, MaxToken} {
		w := httptest.NewRecorder()
		token := strings.Repeat("t", length)
		if err := s.begin(w, token); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, c := range w.Result().Cookies() {
			if !c.Secure || !strings.HasPrefix(c.Name, "__Host-") || len(c.Name)+len(c.Value) > 4096 {
				t.Fatalf("cookie %s of %d bytes", c.Name, len(c.Value))
			}
			if c.MaxAge >= 0 {
				r.AddCookie(c)
			}
		}
		if of, err := s.read(r); err != nil || of.Token != token {
			t.Fatalf("a token of %d bytes: %v", length, err)
		}
	}
}
