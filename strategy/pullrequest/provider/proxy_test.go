package provider_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/egress/egresstest"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// TestThroughAProxy: each service's API, and Git at the same host, which only a proxy reaches. Its
// failures are retried, and name the proxy and its flag instead of the Secret.
func TestThroughAProxy(t *testing.T) {
	each(t, func(t *testing.T, s *providertest.Server, direct provider.Provider) {
		g := NewWithT(t)
		address, err := url.Parse(s.URL())
		g.Expect(err).NotTo(HaveOccurred())
		// The certificate is for example.com. Only the proxy knows where this example.com is.
		made := "example.com:" + address.Port()
		between := egresstest.Start(t, map[string]string{made: address.Host})
		between.RequireUser("robot:canary")
		file := filepath.Join(t.TempDir(), "credentials")
		g.Expect(os.WriteFile(file, []byte("robot:canary"), 0o600)).To(Succeed())
		proxy, err := egress.New(egress.Options{URL: between.URL, CredentialsFile: file, Flag: "git-proxy"})
		g.Expect(err).NotTo(HaveOccurred())
		through := func() provider.Provider {
			return connect(t, direct.Type(), s, func(o *provider.Options) {
				o.URL, o.Proxy, o.AllowLoopback = strings.Replace(o.URL, address.Host, made, 1), proxy, false
			})
		}
		p := through()
		opened := open(t, p)
		g.Expect(find(t, p)).To(HaveLen(1))
		g.Expect(p.Get(t.Context(), opened.Number)).To(HaveField("State", provider.Open))
		g.Expect(between.Targets()).To(And(Not(BeEmpty()), HaveEach(made)))

		g.Expect(os.WriteFile(file, []byte("robot:canary-wrong"), 0o600)).To(Succeed())
		p = through()
		_, err = p.Get(t.Context(), opened.Number)
		g.Expect(err).To(MatchError(provider.ErrTransient), "the user cannot correct it")
		g.Expect(err).To(MatchError(And(
			ContainSubstring("the proxy "+between.URL+" answers 407 Proxy Authentication Required: give valid credentials in the file of --git-proxy-credentials-file"),
			Not(ContainSubstring("canary")))))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://metadata.google.internal/fleet.git", nil)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = p.Transport().RoundTrip(request) //nolint:bodyclose // There is none.
		g.Expect(err).To(MatchError(netguard.ErrForbidden))
		g.Expect(between.Targets()).To(HaveEach(made))
	})
}
