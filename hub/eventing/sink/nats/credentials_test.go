package nats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/eventing/sink"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire"
	"github.com/capstan-hub/capstan/hub/eventing/sink/wire/wiretest"
	"github.com/capstan-hub/capstan/internal/allowedhosts"
)

// canary is a secret value that no error may show.
const canary = "S3CR3T-CANARY"

func secret(pairs ...string) map[string][]byte {
	s := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		s[pairs[i]] = []byte(pairs[i+1])
	}
	return s
}

// TestCredentials: each kind of credentials is accepted, wrong ones are unauthorized, and no
// error shows them.
func TestCredentials(t *testing.T) {
	user, err := nkeys.CreateUser()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	stranger, _ := nkeys.CreateUser()
	strange, _ := stranger.Seed()
	operatorMode, creds := operatorMode(t)
	for name, test := range map[string]struct {
		server      func(*server.Options)
		right, left map[string][]byte
	}{
		"password": {
			func(o *server.Options) { o.Username, o.Password = "hub", canary },
			secret("username", "hub\n", "password", canary), secret("username", "hub", "password", canary+"2"),
		},
		"token": {
			func(o *server.Options) { o.Authorization = canary },
			secret("token", canary+"\n"), secret("token", canary+"2"),
		},
		"nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			secret("nkey", string(seed)), secret("nkey", string(strange)),
		},
		"creds": {
			operatorMode,
			secret("creds", string(creds), "token", "not looked at"), secret("nkey", string(strange)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx := NewWithT(t), t.Context()
			b := newBroker(t, test.server).start()
			s := open(t, Options{Config: config(t, b.url(), nil), Secret: test.right})
			g.Expect(s.Publish(ctx, news(1))).To(Succeed())
			for _, wrong := range []map[string][]byte{test.left, nil} {
				err := open(t, Options{Config: config(t, b.url(), nil), Secret: wrong}).Ping(ctx)
				g.Expect(err).To(Satisfy(is(sink.Unavailable, sink.CodeUnauthorized)))
				for _, bytes := range wrong {
					g.Expect(err.Error()).NotTo(ContainSubstring(string(bytes)))
				}
				g.Expect(err.Error()).NotTo(ContainSubstring(canary))
			}
		})
	}
}

// operatorMode configures a server with an account that has JetStream, and returns the
// credentials file of a user of that account.
func operatorMode(t *testing.T) (change func(*server.Options), creds []byte) {
	t.Helper()
	g := NewWithT(t)
	okp, err := nkeys.CreateOperator()
	g.Expect(err).NotTo(HaveOccurred())
	akp, _ := nkeys.CreateAccount()
	ukp, _ := nkeys.CreateUser()
	skp, _ := nkeys.CreateAccount()
	operator, _ := okp.PublicKey()
	system, _ := skp.PublicKey()
	account, _ := akp.PublicKey()
	user, _ := ukp.PublicKey()
	claims := jwt.NewAccountClaims(account)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	signed, err := claims.Encode(okp)
	g.Expect(err).NotTo(HaveOccurred())
	memory := &server.MemAccResolver{}
	g.Expect(memory.Store(account, signed)).To(Succeed())
	signed, err = jwt.NewAccountClaims(system).Encode(okp)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(memory.Store(system, signed)).To(Succeed())
	token, err := jwt.NewUserClaims(user).Encode(akp)
	g.Expect(err).NotTo(HaveOccurred())
	seed, _ := ukp.Seed()
	creds, err = jwt.FormatUserConfig(token, seed)
	g.Expect(err).NotTo(HaveOccurred())
	return func(o *server.Options) {
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{operator}, memory, system
	}, creds
}

// TestTLS: the authority and the client certificate of the Secret are used. Without them there
// is no connection.
func TestTLS(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	ca := wiretest.NewCA(t)
	cert, key := ca.Issue(t, "127.0.0.1")
	pair, err := tls.X509KeyPair(cert, key)
	g.Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	b := newBroker(t, func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 5
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	}).start()
	clientCert, clientKey := ca.Issue(t, "hub")
	s := open(t, Options{Config: config(t, b.url(), nil), Secret: secret("ca.crt", string(ca.PEM), "tls.crt", string(clientCert), "tls.key", string(clientKey))})
	g.Expect(s.Publish(ctx, news(1))).To(Succeed())
	other := wiretest.NewCA(t)
	err = open(t, Options{Config: config(t, b.url(), nil), Secret: secret("ca.crt", string(other.PEM))}).Ping(ctx)
	g.Expect(err).To(Satisfy(is(sink.Transient, sink.CodeUnreachable)))
	g.Expect(err.Error()).To(ContainSubstring("certificate"))
}

// TestPermissions: a missing permission is an error of its own, not a timeout.
func TestPermissions(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	b := newBroker(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "hub", Password: canary, Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"$JS.API.>"}}}},
		}
	}).start()
	s := open(t, Options{Config: config(t, b.url(), keys{"requestTimeout": "300ms"}), Secret: secret("username", "hub", "password", canary)})
	g.Eventually(func() error { return s.Ping(ctx) }).Should(Succeed())
	g.Eventually(func() error {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return s.Publish(short, news(1))
	}).Should(Satisfy(is(sink.Unavailable, sink.CodeForbidden)))
}

// TestHosts: the Secret's annotation decides whether its credentials may be sent to each of the servers.
func TestHosts(t *testing.T) {
	g := NewWithT(t)
	opened := func(hosts string) error {
		s, err := Open(Options{Config: config(t, "nats://a.example.com,nats://b.example.com:4223", nil), Secret: secret("token", canary),
			Hosts: allowedhosts.Of(map[string]string{capstanv1.AllowedHostsAnnotation: hosts}, false)})
		if err == nil {
			g.Expect(s.Close(t.Context())).To(Succeed())
		}
		return err
	}
	g.Expect(opened("a.example.com:4222,b.example.com:4223")).To(Succeed())
	g.Expect(opened("a.example.com:4222")).To(And(MatchError(wire.ErrSecret), MatchError(ContainSubstring("the host b.example.com:4223:"))))
}

// TestBadSecrets: the error names the key and what is wrong, never the value.
func TestBadSecrets(t *testing.T) {
	for name, test := range map[string]struct {
		secret map[string][]byte
		says   string
	}{
		"empty":               {secret(), "key creds or nkey, username or token is missing"},
		"creds":               {secret("creds", canary), "key creds is not a credentials file"},
		"nkey":                {secret("nkey", canary), "key nkey is not a seed"},
		"no password":         {secret("username", canary), "key password is missing"},
		"ca":                  {secret("token", "t", "ca.crt", canary), "key ca.crt contains no PEM certificate"},
		"certificate":         {secret("tls.crt", canary, "tls.key", canary), "key tls.crt and key tls.key"},
		"certificate, no key": {secret("tls.crt", canary), "key tls.key is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Open(Options{Config: config(t, "nats://nats:4222", nil), Secret: test.secret})
			g.Expect(err).To(MatchError(wire.ErrSecret))
			g.Expect(err.Error()).To(ContainSubstring(test.says))
			g.Expect(fmt.Sprintf("%+v", err)).NotTo(ContainSubstring(canary))
		})
	}
}
