package measure

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]struct {
		url, token, ca string
		namespaces     []string
	}{
		"main=http://prometheus.monitoring:9090":                         {url: "http://prometheus.monitoring:9090"},
		"main=https://example.com/prometheus/":                           {url: "https://example.com/prometheus/"},
		"main=https://example.com,token-file=/t,ca-file=/c":              {url: "https://example.com", token: "/t", ca: "/c"},
		"main=http://10.0.0.1,namespace=team-a,namespace=team-b":         {url: "http://10.0.0.1", namespaces: []string{"team-a", "team-b"}},
		"main=http://localhost:9090,token-file=/t":                       {url: "http://localhost:9090", token: "/t"},
		"main=http://127.0.0.1:9090,token-file=/t":                       {url: "http://127.0.0.1:9090", token: "/t"},
		"main=http://[::1]:9090,namespace=a,token-file=/a=b,namespace=b": {url: "http://[::1]:9090", token: "/a=b", namespaces: []string{"a", "b"}},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			e, err := ParseEndpoint(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.Name).To(Equal("main"))
			g.Expect(e.URL.String()).To(Equal(want.url))
			g.Expect([]string{e.TokenFile, e.CAFile}).To(Equal([]string{want.token, want.ca}))
			g.Expect(e.Namespaces).To(Equal(want.namespaces))
		})
	}
	for text, want := range map[string]string{
		"":                                                "it must be NAME=URL",
		"main":                                            "it must be NAME=URL",
		"=http://example.com":                             `"" is not a name of an endpoint`,
		"Main=http://example.com":                         `"Main" is not a name of an endpoint`,
		"a.b=http://example.com":                          `"a.b" is not a name of an endpoint`,
		"main=":                                           "must begin with http:// or https://",
		"main=example.com:9090":                           "must begin with http:// or https://",
		"main=ftp://example.com":                          "must begin with http:// or https://",
		"main=http://":                                    "names no host",
		"main=http://:9090":                               "names no host",
		"main=http:example.com":                           "names no host",
		"main=http://c4nary:c4nary@example.com":           "contains a user or a password",
		"main=http://c4nary@example.com":                  "contains a user or a password",
		"main=http://a:c4nary@example.com:x":              "its URL is not valid",
		"main=http://example.com?a=c4nary":                "remove the query and the fragment",
		"main=http://example.com?":                        "remove the query and the fragment",
		"main=http://example.com#a":                       "remove the query and the fragment",
		"main=http://example.com#":                        "remove the query and the fragment",
		"main=http://example.com:0":                       "port of its URL must be 1 to 65535",
		"main=http://example.com:65536":                   "port of its URL must be 1 to 65535",
		"main=http://169.254.169.254":                     "link-local",
		"main=http://metadata.google.internal":            "metadata",
		"main=http://example.com,token-file=/t":           "token-file needs an https:// URL: over http:// the token can be read on the network",
		"main=http://127.0.0.1.example.com,token-file=/t": "token-file needs an https:// URL",
		"main=http://localhost,ca-file=/c":                "ca-file needs an https:// URL",
		"main=https://a,token-file=":                      `"token-file=" is not an option`,
		"main=https://a,":                                 `"" is not an option`,
		"main=https://a,token-file=/t,token-file=/t":      "token-file is given twice",
		"main=https://a,ca-file=/t,ca-file=/t":            "ca-file is given twice",
		"main=https://a,namespace=a,namespace=a":          "namespace a is given twice",
		"main=https://a,namespace=A":                      `"A" is not the name of a namespace`,
		"main=https://a,user=b":                           `"user" is not a known option: use token-file, ca-file or namespace`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseEndpoint(text)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
			NewWithT(t).Expect(err.Error()).NotTo(ContainSubstring(canary))
		})
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add("main=https://example.com/a,token-file=/t,namespace=a")
	f.Add("main=http://[::1]:9090,ca-file=/c")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEndpoint(text)
		if err != nil {
			return
		}
		if e.URL.User != nil || e.URL.Hostname() == "" || e.TokenFile != "" && e.URL.Scheme == "http" && !loopback(e.URL.Hostname()) {
			t.Errorf("%q is accepted", text)
		}
		if again, err := ParseEndpoint(e.Name + "=" + e.URL.String()); err != nil && e.TokenFile == "" && !strings.Contains(e.URL.String(), ",") {
			t.Errorf("%q: %v %v", e.URL, again, err)
		}
	})
}

func TestKnows(t *testing.T) {
	g := NewWithT(t)
	a, b := at(t, "main", "http://a"), at(t, "team", "http://b")
	b.Namespaces = []string{"team-a"}
	m, err := New(Options{Endpoints: []Endpoint{a, b}, Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.Knows("main", "shop")).To(Succeed())
	g.Expect(m.Knows("team", "team-a")).To(Succeed())
	g.Expect(m.Knows("team", "shop")).To(MatchError(`endpoint "team" is not open to namespace shop: this namespace has main; the administrator adds one with --check-endpoint`))
	g.Expect(m.Knows("mian", "team-a")).To(MatchError(`endpoint "mian" does not exist: this namespace has main, team; the administrator adds one with --check-endpoint`))

	none, err := New(Options{Clock: clock.RealClock{}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none.Knows("main", "shop")).To(MatchError(ContainSubstring("does not exist: this namespace has none")))

	_, err = New(Options{Endpoints: []Endpoint{a, a}, Clock: clock.RealClock{}})
	g.Expect(err).To(MatchError(ContainSubstring("endpoint main is given twice")))
	r := prometheus.NewRegistry()
	_, err = New(Options{Registerer: r})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = New(Options{Registerer: r})
	g.Expect(err).To(HaveOccurred())
}
