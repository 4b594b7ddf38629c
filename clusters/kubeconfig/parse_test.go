package kubeconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-hub/capstan/clusters/kubeconfig"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
)

// canary stands wherever a secret would; it must never be printed.
const canary = "CANARY-7f3a9c"

var (
	notBefore = time.Now().Add(-time.Hour).Truncate(time.Second)
	notAfter  = time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)
)

func keyPair(t testing.TB) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "user"},
		NotBefore: notBefore, NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// file is a kubeconfig that is fine until edit spoils it.
func file(t testing.TB, edit func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	cluster := &clientcmdapi.Cluster{Server: "https://prod.example.com:6443"}
	user := &clientcmdapi.AuthInfo{Token: canary}
	config.Clusters["c"], config.AuthInfos["u"] = cluster, user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if edit != nil {
		edit(config, cluster, user)
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type edit = func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)

// TestAllowList: everything that is not on the list is refused by name, and no
// refusal holds a byte of what could be a secret.
func TestAllowList(t *testing.T) {
	certificate, key := keyPair(t)
	otherCertificate, _ := keyPair(t)
	server := func(url string) edit {
		return func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = url }
	}
	user := func(f func(*clientcmdapi.AuthInfo)) edit {
		return func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { f(u) }
	}
	cluster := func(f func(*clientcmdapi.Cluster)) edit {
		return func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { f(c) }
	}
	for _, tc := range []struct {
		name   string
		edit   edit
		raw    []byte
		reason kubeconfig.Reason
		names  string // what the message must name
	}{
		{name: "empty", raw: []byte{}, reason: kubeconfig.ReasonEmpty, names: "empty"},
		{name: "blank", raw: []byte(" \n\t"), reason: kubeconfig.ReasonEmpty, names: "empty"},
		{name: "not YAML", raw: []byte("{" + canary), reason: kubeconfig.ReasonUnreadable, names: "cannot be read"},
		{name: "another kind", raw: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: " + canary + "}"), reason: kubeconfig.ReasonUnreadable, names: "cannot be read"},
		{name: "a number for a token", raw: []byte("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user: {token: [\"" + canary + "\"]}"), reason: kubeconfig.ReasonUnreadable, names: "cannot be read"},
		{name: "too large", raw: []byte(strings.Repeat("#", 1<<20+1) + "\n"), reason: kubeconfig.ReasonTooLarge, names: "1 MiB"},
		{name: "no current context", edit: func(f *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { f.CurrentContext = "" }, reason: kubeconfig.ReasonContext, names: "current-context"},
		{name: "missing context", edit: func(f *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			f.CurrentContext = canary
		}, reason: kubeconfig.ReasonContext, names: "current-context"},
		{name: "missing cluster", edit: func(f *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			delete(f.Clusters, "c")
		}, reason: kubeconfig.ReasonCluster, names: "cluster"},
		{name: "missing user", edit: func(f *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			delete(f.AuthInfos, "u")
		}, reason: kubeconfig.ReasonUser, names: "user"},

		{name: "no server", edit: server(""), reason: kubeconfig.ReasonServer, names: "server"},
		{name: "not a URL", edit: server("https://%zz"), reason: kubeconfig.ReasonServer, names: "server"},
		{name: "no host", edit: server("https://:6443"), reason: kubeconfig.ReasonServer, names: "server"},
		{name: "http", edit: server("http://prod.example.com"), reason: kubeconfig.ReasonNotHTTPS, names: "https://"},
		{name: "no scheme", edit: server("prod.example.com"), reason: kubeconfig.ReasonServer, names: "server"},
		{name: "unix", edit: server("unix://host/var/run/x"), reason: kubeconfig.ReasonNotHTTPS, names: "https://"},
		{name: "user in the URL", edit: server("https://u:" + canary + "@prod.example.com"), reason: kubeconfig.ReasonServer, names: "server"},
		{name: "query", edit: server("https://prod.example.com?token=" + canary), reason: kubeconfig.ReasonServer, names: "server"},
		{name: "fragment", edit: server("https://prod.example.com#" + canary), reason: kubeconfig.ReasonServer, names: "server"},

		{name: "metadata address", edit: server("https://169.254.169.254"), reason: kubeconfig.ReasonAddress, names: "link-local"},
		{name: "metadata address, mapped", edit: server("https://[::ffff:169.254.169.254]"), reason: kubeconfig.ReasonAddress, names: "link-local"},
		{name: "metadata address, NAT64", edit: server("https://[64:ff9b::a9fe:a9fe]"), reason: kubeconfig.ReasonAddress, names: "link-local"},
		{name: "metadata address, IPv6", edit: server("https://[fd00:ec2::254]"), reason: kubeconfig.ReasonAddress, names: "metadata"},
		{name: "metadata address, Alibaba", edit: server("https://100.100.100.200"), reason: kubeconfig.ReasonAddress, names: "metadata"},
		{name: "metadata name", edit: server("https://metadata.google.internal"), reason: kubeconfig.ReasonAddress, names: "metadata"},
		{name: "metadata name, rooted", edit: server("https://Metadata.Google.Internal."), reason: kubeconfig.ReasonAddress, names: "metadata"},
		{name: "link-local, IPv6", edit: server("https://[fe80::1%25eth0]:6443"), reason: kubeconfig.ReasonAddress, names: "link-local"},
		{name: "loopback", edit: server("https://127.0.0.1:6443"), reason: kubeconfig.ReasonAddress, names: "loopback"},
		{name: "loopback, another", edit: server("https://127.9.9.9:6443"), reason: kubeconfig.ReasonAddress, names: "loopback"},
		{name: "loopback, IPv6", edit: server("https://[::1]:6443"), reason: kubeconfig.ReasonAddress, names: "loopback"},
		{name: "loopback by name", edit: server("https://localhost:6443"), reason: kubeconfig.ReasonAddress, names: "loopback"},
		{name: "unspecified", edit: server("https://0.0.0.0"), reason: kubeconfig.ReasonAddress, names: "unspecified"},
		{name: "multicast", edit: server("https://224.0.0.1"), reason: kubeconfig.ReasonAddress, names: "multicast"},
		{name: "broadcast", edit: server("https://255.255.255.255"), reason: kubeconfig.ReasonAddress, names: "broadcast"},

		{name: "insecure", edit: cluster(func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify = true }), reason: kubeconfig.ReasonInsecure, names: "insecure-skip-tls-verify"},
		{name: "proxy", edit: cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://" + canary }), reason: kubeconfig.ReasonProxy, names: "proxy-url"},
		{name: "server name", edit: cluster(func(c *clientcmdapi.Cluster) { c.TLSServerName = "a b" }), reason: kubeconfig.ReasonTLSServerName, names: "tls-server-name"},
		{name: "CA file", edit: cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthority = "/etc/" + canary }), reason: kubeconfig.ReasonFilePath, names: "certificate-authority"},
		{name: "CA rubbish", edit: cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte(canary) }), reason: kubeconfig.ReasonAuthority, names: "certificate-authority-data"},

		{name: "exec", edit: user(func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: canary, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}), reason: kubeconfig.ReasonExec, names: "exec"},
		{name: "auth-provider", edit: user(func(u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "gcp", Config: map[string]string{"access-token": canary}}
		}), reason: kubeconfig.ReasonAuthProvider, names: "auth-provider"},
		{name: "tokenFile", edit: user(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/var/" + canary }), reason: kubeconfig.ReasonFilePath, names: "tokenFile"},
		{name: "certificate file", edit: user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/" + canary }), reason: kubeconfig.ReasonFilePath, names: "client-certificate"},
		{name: "key file", edit: user(func(u *clientcmdapi.AuthInfo) { u.ClientKey = "/" + canary }), reason: kubeconfig.ReasonFilePath, names: "client-key"},
		{name: "act-as", edit: user(func(u *clientcmdapi.AuthInfo) { u.Impersonate = canary }), reason: kubeconfig.ReasonImpersonation, names: "act-as"},
		{name: "act-as group", edit: user(func(u *clientcmdapi.AuthInfo) { u.Impersonate = "x"; u.ImpersonateGroups = []string{canary} }), reason: kubeconfig.ReasonImpersonation, names: "act-as"},
		{name: "password", edit: user(func(u *clientcmdapi.AuthInfo) { u.Username, u.Password = "u", canary }), reason: kubeconfig.ReasonBasicAuth, names: "password"},
		{name: "token of two lines", edit: user(func(u *clientcmdapi.AuthInfo) { u.Token = canary + "\r\nX-Evil: 1" }), reason: kubeconfig.ReasonToken, names: "token"},
		{name: "certificate alone", edit: user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData = certificate }), reason: kubeconfig.ReasonCertificate, names: "client-key-data"},
		{name: "key alone", edit: user(func(u *clientcmdapi.AuthInfo) { u.ClientKeyData = key }), reason: kubeconfig.ReasonCertificate, names: "client-key-data"},
		{name: "another's key", edit: user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData, u.ClientKeyData = otherCertificate, key }), reason: kubeconfig.ReasonCertificate, names: "client-key-data"},
		{name: "rubbish key", edit: user(func(u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = []byte(canary), []byte(canary)
		}), reason: kubeconfig.ReasonCertificate, names: "client-key-data"},
		{name: "no credentials", edit: user(func(u *clientcmdapi.AuthInfo) { u.Token = "" }), reason: kubeconfig.ReasonNoCredentials, names: "user"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			raw := tc.raw
			if raw == nil {
				raw = file(t, tc.edit)
			}
			config, err := kubeconfig.Parse(raw, kubeconfig.Options{})
			g.Expect(config).To(BeNil())
			var refusal *kubeconfig.Refusal
			g.Expect(errors.As(err, &refusal)).To(BeTrue(), "got %v", err)
			g.Expect(refusal.Reason).To(Equal(tc.reason))
			g.Expect(err.Error()).To(ContainSubstring(tc.names))
			g.Expect(err.Error()).NotTo(ContainSubstring(canary))
		})
	}
}

// TestAddresses proves the policy of internal/netguard: every forbidden address is
// refused, and loopback is accepted only where it is allowed.
func TestAddresses(t *testing.T) {
	parse := func(host string, allow bool) error {
		server := "https://" + host + ":6443"
		_, err := kubeconfig.Parse(file(t, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = server }), kubeconfig.Options{AllowLoopback: allow})
		return err
	}
	refused := func(g *WithT, host, reason string, allow bool) {
		var refusal *kubeconfig.Refusal
		err := parse(host, allow)
		g.Expect(errors.As(err, &refusal)).To(BeTrue(), "%s: %v", host, err)
		g.Expect(refusal.Reason).To(Equal(kubeconfig.ReasonAddress), host)
		g.Expect(refusal.Error()).To(And(HavePrefix("the kubeconfig's server is refused"), ContainSubstring(reason)), host)
	}
	g := NewWithT(t)
	for _, a := range netguardtest.Forbidden {
		refused(g, a.Host(), a.Reason, false)
		refused(g, a.Host(), a.Reason, true)
	}
	for _, a := range netguardtest.Loopback {
		refused(g, a.Host(), a.Reason, false)
		g.Expect(parse(a.Host(), true)).To(Succeed(), a.IP)
	}
	refused(g, "localhost", "loopback", false)
	g.Expect(parse("localhost", true)).To(Succeed())
	for _, a := range netguardtest.Allowed {
		g.Expect(parse(a.Host(), false)).To(Succeed(), a.IP)
	}
}

func TestAccepted(t *testing.T) {
	g := NewWithT(t)
	certificate, key := keyPair(t)
	raw := file(t, func(f *clientcmdapi.Config, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.Server = "https://rancher.example.com/k8s/clusters/c-1/"
		c.TLSServerName = "api.internal"
		c.CertificateAuthorityData = certificate
		u.ClientCertificateData, u.ClientKeyData = certificate, key
		u.Token = canary + "\n"
		f.Extensions["x"] = &runtime.Unknown{Raw: []byte(`{"a":1}`)}
		// What the current context does not use is not judged.
		f.AuthInfos["other"] = &clientcmdapi.AuthInfo{TokenFile: "/x"}
	})
	config, err := kubeconfig.Parse(raw, kubeconfig.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Server.String()).To(Equal("https://rancher.example.com/k8s/clusters/c-1"))
	g.Expect(config.TLSServerName).To(Equal("api.internal"))
	g.Expect(config.CAData).To(Equal(certificate))
	g.Expect(config.CertData).To(Equal(certificate))
	g.Expect(config.KeyData).To(Equal(key))
	g.Expect(config.Token).To(Equal(canary))

	t.Run("secrets are never printed", func(t *testing.T) {
		g := NewWithT(t)
		encoded, err := json.Marshal(config)
		g.Expect(err).NotTo(HaveOccurred())
		keyBody := strings.Split(string(key), "\n")[1]
		for _, printed := range []string{
			fmt.Sprint(config), fmt.Sprintf("%v %+v %#v %s %q %d %x", config, config, config, config, config, config, config),
			config.String(), string(encoded), fmt.Sprint(config.MarshalLog()), fmt.Sprintf("%v", struct{ C *kubeconfig.Config }{config}.C),
		} {
			g.Expect(printed).NotTo(ContainSubstring(canary))
			g.Expect(printed).NotTo(ContainSubstring(keyBody))
			g.Expect(printed).NotTo(ContainSubstring(fmt.Sprintf("%x", canary)))
		}
	})
	t.Run("JSON", func(t *testing.T) {
		g := NewWithT(t)
		_, err := kubeconfig.Parse([]byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":{"server":"https://10.0.0.1"}}],"users":[{"name":"u","user":{"token":"t"}}]}`), kubeconfig.Options{})
		g.Expect(err).NotTo(HaveOccurred())
	})
}

func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestValidity(t *testing.T) {
	certificate, key := keyPair(t)
	sooner, issued := notAfter.Add(-time.Hour), notAfter.Add(-2*time.Hour)
	for _, tc := range []struct {
		name        string
		token       string
		certificate bool
		want        kubeconfig.Validity
	}{
		{name: "opaque token", token: "k8s-aws-v1.aHR0cHM6Ly9"},
		{name: "certificate", certificate: true, want: kubeconfig.Validity{Issued: notBefore, Expires: notAfter}},
		{name: "JWT", token: jwt(fmt.Sprintf(`{"iat":%d,"exp":%d}`, issued.Unix(), sooner.Unix())), want: kubeconfig.Validity{Issued: issued, Expires: sooner}},
		{name: "JWT without iat", token: jwt(fmt.Sprintf(`{"exp":%d}`, sooner.Unix())), want: kubeconfig.Validity{Expires: sooner}},
		{name: "the sooner", token: jwt(fmt.Sprintf(`{"exp":%d}`, sooner.Unix())), certificate: true, want: kubeconfig.Validity{Expires: sooner}},
		{name: "the sooner, other way", token: jwt(fmt.Sprintf(`{"iat":%d,"exp":%d.5}`, issued.Unix(), notAfter.Add(time.Hour).Unix())), certificate: true, want: kubeconfig.Validity{Issued: notBefore, Expires: notAfter}},
		{name: "no exp", token: jwt(fmt.Sprintf(`{"iat":%d}`, issued.Unix()))},
		{name: "rubbish exp", token: jwt(`{"exp":"soon"}`)},
		{name: "rubbish iat", token: jwt(fmt.Sprintf(`{"iat":"today","exp":%d}`, sooner.Unix())), want: kubeconfig.Validity{Expires: sooner}},
		{name: "iat after exp", token: jwt(fmt.Sprintf(`{"iat":%d,"exp":%d}`, notAfter.Unix(), sooner.Unix())), want: kubeconfig.Validity{Expires: sooner}},
		{name: "exp beyond time", token: jwt(`{"exp":1e300}`)},
		{name: "negative exp", token: jwt(`{"exp":-5}`)},
		{name: "not base64", token: "a.%%%.c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := &kubeconfig.Config{Token: tc.token}
			if tc.certificate {
				config.CertData, config.KeyData = certificate, key
			}
			got := config.Validity()
			NewWithT(t).Expect(got.Issued).To(BeTemporally("==", tc.want.Issued))
			NewWithT(t).Expect(got.Expires).To(BeTemporally("==", tc.want.Expires))
		})
	}
}

func TestClassify(t *testing.T) {
	certificate, key := keyPair(t)
	otherCertificate, otherKey := keyPair(t)
	base := func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.CertificateAuthorityData = certificate
		u.ClientCertificateData, u.ClientKeyData = certificate, key
	}
	fingerprint := func(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) kubeconfig.Fingerprint {
		config, err := kubeconfig.Parse(file(t, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			base(c, u)
			if change != nil {
				change(c, u)
			}
		}), kubeconfig.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return config.Fingerprint()
	}
	for _, tc := range []struct {
		name   string
		change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		want   kubeconfig.Change
	}{
		{"nothing", nil, kubeconfig.Same},
		{"a slash", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server += "/" }, kubeconfig.Same},
		{"token", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "other" }, kubeconfig.TokenOnly},
		{"no token", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = "" }, kubeconfig.TokenOnly},
		{"certificate", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData = otherCertificate, otherKey
		}, kubeconfig.ClientCert},
		{"certificate and token", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData, u.Token = nil, nil, "other"
		}, kubeconfig.ClientCert},
		{"server", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "https://other.example.com" }, kubeconfig.Endpoint},
		{"server name", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.TLSServerName = "other" }, kubeconfig.Endpoint},
		{"CA and token", func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData, u.Token = otherCertificate, "other"
		}, kubeconfig.Endpoint},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(kubeconfig.Classify(fingerprint(nil), fingerprint(tc.change))).To(Equal(tc.want))
		})
	}
}

// FuzzParse: whatever the input, Parse does not panic, refuses with a *Refusal, and
// accepts only what the allow-list describes.
func FuzzParse(f *testing.F) {
	certificate, key := keyPair(f)
	f.Add(file(f, nil))
	f.Add(file(f, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.Server, u.Exec = "https://[::ffff:169.254.169.254]:443/x", &clientcmdapi.ExecConfig{Command: "sh"}
		u.ClientCertificateData, u.ClientKeyData = certificate, key
	}))
	f.Add([]byte("apiVersion: v1\nkind: Config\nusers: [{name: u, user: {token: t}}]\ncurrent-context: x\ncontexts: [{name: x, context: {}}]"))
	f.Add([]byte("&a [*a, *a]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := kubeconfig.Parse(raw, kubeconfig.Options{})
		if err != nil {
			var refusal *kubeconfig.Refusal
			if !errors.As(err, &refusal) || refusal.Reason == "" || config != nil {
				t.Fatalf("refused as %#v with config %v", err, config)
			}
			return
		}
		if config.Server.Scheme != "https" || config.Server.User != nil || config.Server.Hostname() == "" || config.Server.RawQuery != "" {
			t.Fatalf("accepted server %q", config.Server)
		}
		if config.Token == "" && len(config.CertData) == 0 {
			t.Fatal("accepted without credentials")
		}
		if strings.ContainsAny(config.Token, "\r\n ") {
			t.Fatal("accepted a token that breaks a header")
		}
		if kubeconfig.Classify(config.Fingerprint(), config.Fingerprint()) != kubeconfig.Same {
			t.Fatal("differs from itself")
		}
		_ = config.Validity()
	})
}
