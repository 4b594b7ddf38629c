package awsconfig_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/internal/netguard"
	"github.com/capstan-hub/capstan/internal/netguard/netguardtest"
	"github.com/capstan-hub/capstan/internal/sdkhttp"
	playground "github.com/capstan-hub/capstan/playground/aws"
	fakeec2 "github.com/capstan-hub/capstan/playground/aws/ec2"
	fakests "github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	ireland, ohio = "eu-west-1", "us-east-2"
	roleARN       = "arn:aws:iam::111122223333:role/reader"
	sessionARN    = "arn:aws:sts::111122223333:assumed-role/reader/capstan"
)

type world struct {
	*playground.Server
	ec2 *fakeec2.Service
	sts *fakests.Service
}

// start AWS, with the environment of a program in it, and of nothing else.
func start(t *testing.T, roles ...fakests.Role) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{ec2: fakeec2.New(ireland, ohio), sts: fakests.New(roles...)}
	var err error
	w.Server, err = playground.Start(playground.Options{Services: []playground.Service{w.ec2, w.sts}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	for name, value := range w.Env() {
		t.Setenv(name, value)
	}
	// One address for all services is all that a user has to give.
	t.Setenv("AWS_ENDPOINT_URL_STS", "")
	return w
}

func load(t *testing.T, o awsconfig.Options) *awsconfig.Config {
	t.Helper()
	config, err := awsconfig.Load(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(config.Close)
	return config
}

func describe(t *testing.T, in aws.Config) error {
	t.Helper()
	_, err := ec2.NewFromConfig(in).DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{})
	return err
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func TestOwnCredentials(t *testing.T) {
	g, w := NewWithT(t), start(t)
	config := load(t, awsconfig.Options{Version: "1.2.3"})
	g.Expect(config.Region()).To(Equal("us-east-1"))
	g.Expect(describe(t, config.In(ireland, awsconfig.Role{}))).To(Succeed())
	calls := w.Records(playground.Match{Service: "ec2", Region: ireland, Caller: playground.RootARN})
	g.Expect(calls).To(HaveLen(1))
	g.Expect(calls[0].UserAgent).To(ContainSubstring("capstan/1.2.3"))
	g.Expect(config.Verify(t.Context(), awsconfig.Role{})).To(Succeed())
}

// A web identity is found by the chain, and insisted upon with irsa; its token is traded
// at the endpoint that AWS_ENDPOINT_URL names.
func TestWebIdentity(t *testing.T) {
	for _, auth := range []awsconfig.Auth{awsconfig.AuthDefault, awsconfig.AuthIRSA} {
		t.Run(string(auth), func(t *testing.T) {
			g, w := NewWithT(t), start(t, fakests.Role{ARN: roleARN, Token: "jwt"})
			token := filepath.Join(t.TempDir(), "token")
			g.Expect(os.WriteFile(token, []byte("jwt"), 0o600)).To(Succeed())
			t.Setenv("AWS_ROLE_ARN", roleARN)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
			t.Setenv("AWS_ROLE_SESSION_NAME", "capstan")
			if auth == awsconfig.AuthDefault { // Otherwise keys of the environment count for nothing.
				t.Setenv("AWS_ACCESS_KEY_ID", "")
				t.Setenv("AWS_SECRET_ACCESS_KEY", "")
			}
			config := load(t, awsconfig.Options{Auth: auth})
			g.Expect(describe(t, config.In(ireland, awsconfig.Role{}))).To(Succeed())
			g.Expect(describe(t, config.In(ohio, awsconfig.Role{}))).To(Succeed())
			g.Expect(w.Count(playground.Match{Service: "ec2", Caller: sessionARN}, "")).To(Equal(2))
			g.Expect(w.Count(playground.Match{Service: "sts"})).To(Equal(1), "one session for all regions")
		})
	}
}

func TestIRSAMustBeWhole(t *testing.T) {
	for name, c := range map[string]struct{ role, token, missing string }{
		"neither":  {missing: "missing: AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE;"},
		"no token": {role: roleARN, missing: "missing: AWS_WEB_IDENTITY_TOKEN_FILE;"},
		"no role":  {token: "/var/run/token", missing: "missing: AWS_ROLE_ARN;"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("AWS_ROLE_ARN", c.role)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", c.token)
			_, err := awsconfig.Load(t.Context(), awsconfig.Options{Auth: awsconfig.AuthIRSA})
			g.Expect(err).To(MatchError(awsconfig.ErrNoIRSA))
			g.Expect(err).To(MatchError(ContainSubstring("both AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE are required, " + c.missing)))
			g.Expect(awsconfig.CheckIRSA(os.Getenv)).To(MatchError(err.Error()))
		})
	}
	g := NewWithT(t)
	both := map[string]string{"AWS_ROLE_ARN": roleARN, "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"}
	g.Expect(awsconfig.CheckIRSA(func(name string) string { return both[name] })).To(Succeed())
}

func TestParseAuth(t *testing.T) {
	g := NewWithT(t)
	for _, good := range []awsconfig.Auth{awsconfig.AuthIRSA, awsconfig.AuthDefault} {
		g.Expect(awsconfig.ParseAuth(string(good))).To(Equal(good))
	}
	_, err := awsconfig.ParseAuth("keys")
	g.Expect(err).To(MatchError(ContainSubstring(`"keys" is not a way to authenticate to AWS: use irsa or default`)))
}

// One session serves all regions and callers of a role; other roles have their own.
func TestRoles(t *testing.T) {
	g := NewWithT(t)
	other := awsconfig.Role{ARN: "arn:aws:iam::111122223333:role/other"}
	role := awsconfig.Role{ARN: roleARN, ExternalID: "xyz"}
	w := start(t, fakests.Role{ARN: role.ARN, ExternalID: role.ExternalID}, fakests.Role{ARN: other.ARN})
	config := load(t, awsconfig.Options{Attempts: 1})

	var callers sync.WaitGroup
	failures := make(chan error, 20)
	for i := range 20 {
		callers.Go(func() { failures <- describe(t, config.In([]string{ireland, ohio}[i%2], role)) })
	}
	callers.Wait()
	for range 20 {
		g.Expect(<-failures).NotTo(HaveOccurred())
	}
	g.Expect(w.Count(playground.Match{Action: "AssumeRole"})).To(Equal(1))
	g.Expect(w.Count(playground.Match{Service: "ec2", Caller: sessionARN})).To(Equal(20))

	g.Expect(describe(t, config.In(ireland, other))).To(Succeed())
	g.Expect(w.Count(playground.Match{Action: "AssumeRole"})).To(Equal(2))
	g.Expect(config.Verify(t.Context(), other)).To(Succeed())

	wrong := awsconfig.Role{ARN: roleARN, ExternalID: "guess"}
	g.Expect(codeOf(describe(t, config.In(ireland, wrong)))).To(Equal("AccessDenied"))
	g.Expect(describe(t, config.In(ireland, role))).To(Succeed(), "nothing is shared with whoever guesses")

	named := role
	named.SessionName = "team-a"
	g.Expect(describe(t, config.In(ireland, named))).To(Succeed())
	g.Expect(w.Count(playground.Match{Caller: "arn:aws:sts::111122223333:assumed-role/reader/team-a"}, "")).To(Equal(1))
}

// A role with a source is assumed with the session of that role, which all its users share.
func TestRolesThroughRoles(t *testing.T) {
	g := NewWithT(t)
	source := awsconfig.Role{ARN: roleARN, SessionName: "capa"}
	session := "arn:aws:sts::111122223333:assumed-role/reader/capa"
	a, b := awsconfig.Role{ARN: "arn:aws:iam::111122223333:role/a"}, awsconfig.Role{ARN: "arn:aws:iam::111122223333:role/b"}
	w := start(t, fakests.Role{ARN: roleARN}, fakests.Role{ARN: a.ARN, TrustedCaller: session}, fakests.Role{ARN: b.ARN, TrustedCaller: session})
	config := load(t, awsconfig.Options{Attempts: 1})
	g.Expect(codeOf(describe(t, config.In(ireland, a)))).To(Equal("AccessDenied"), "the role does not trust the process' own identity")
	g.Expect(describe(t, config.In(ireland, a.Through(source)))).To(Succeed())
	g.Expect(describe(t, config.In(ireland, b.Through(source)))).To(Succeed())
	g.Expect(w.Count(playground.Match{Action: "AssumeRole", Caller: session})).To(Equal(2))
	g.Expect(w.Count(playground.Match{Action: "AssumeRole", Caller: playground.RootARN}, "")).To(Equal(1), "one session of the source")

	g.Expect(a.Through(source)).To(Equal(a.Through(source)))
	g.Expect(a.Through(source) == a.Through(awsconfig.Role{ARN: roleARN, SessionName: "capa"})).To(BeTrue(), "equal chains are one role")
	g.Expect(a.Through(source) == a).To(BeFalse())
	g.Expect(a.Through(source).Source()).To(Equal(source))
	g.Expect(a.Source()).To(Equal(awsconfig.Role{}))

	w.sts.Delete(roleARN)
	lost := awsconfig.Role{ARN: a.ARN, SessionName: "new"}.Through(awsconfig.Role{ARN: roleARN, SessionName: "new"})
	g.Expect(describe(t, config.In(ireland, lost))).To(MatchError(awsconfig.ErrCredentials))
}

// TestFailuresOfCredentials: an error says that the call was not made for lack of credentials,
// whatever STS answered, and an error of the call itself does not.
func TestFailuresOfCredentials(t *testing.T) {
	for name, web := range map[string]bool{"role": false, "web identity": true} {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), start(t, fakests.Role{ARN: roleARN, Token: "jwt"})
			o, role := awsconfig.Options{Attempts: 1}, awsconfig.Role{ARN: roleARN}
			if web {
				token := filepath.Join(t.TempDir(), "token")
				g.Expect(os.WriteFile(token, []byte("jwt"), 0o600)).To(Succeed())
				t.Setenv("AWS_ROLE_ARN", roleARN)
				t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
				o.Auth, role = awsconfig.AuthIRSA, awsconfig.Role{}
			}
			in := load(t, o).In(ireland, role)
			for _, code := range []string{"AccessDenied", "InvalidIdentityToken", "IDPCommunicationError", "RegionDisabledException", "InternalFailure"} {
				remove := w.Inject(playground.Rule{Match: playground.Match{Service: "sts"}, Fault: &playground.Fault{Status: 400, Code: code}})
				err := describe(t, in)
				remove()
				g.Expect(err).To(MatchError(awsconfig.ErrCredentials), code)
				g.Expect(codeOf(err)).To(Equal(code))
			}
			defer w.Inject(playground.Rule{Match: playground.Match{Service: "ec2"}, Fault: &playground.Fault{Status: 400, Code: "InvalidIdentityToken"}})()
			err := describe(t, in)
			g.Expect(codeOf(err)).To(Equal("InvalidIdentityToken"))
			g.Expect(err).NotTo(MatchError(awsconfig.ErrCredentials))
		})
	}
}

// A session that is about to end is renewed before a call uses it.
func TestSessionsAreRenewed(t *testing.T) {
	g := NewWithT(t)
	w := start(t, fakests.Role{ARN: roleARN})
	config := load(t, awsconfig.Options{Attempts: 1})
	role := awsconfig.Role{ARN: roleARN}
	// The answer to AssumeRole says that the session ends within the window of renewal.
	w.sts.Put(fakests.Role{ARN: roleARN, Lasts: time.Minute})
	g.Expect(describe(t, config.In(ireland, role))).To(Succeed())
	g.Expect(describe(t, config.In(ireland, role))).To(Succeed())
	g.Expect(w.Count(playground.Match{Action: "AssumeRole"}, "")).To(Equal(2))
}

func TestClientsAreSharedAndBounded(t *testing.T) {
	g := NewWithT(t)
	start(t)
	config := load(t, awsconfig.Options{})
	made := 0
	clients := awsconfig.NewClients(config, func(c aws.Config) *ec2.Client { made++; return ec2.NewFromConfig(c) })
	role := awsconfig.Role{ARN: roleARN}
	first := clients.In(ireland, role)
	g.Expect(clients.In(ireland, role)).To(BeIdenticalTo(first))
	g.Expect(clients.In(ohio, role)).NotTo(BeIdenticalTo(first))
	g.Expect(clients.In(ireland, awsconfig.Role{})).NotTo(BeIdenticalTo(first))
	g.Expect(first.Options().Region).To(Equal(ireland))
	g.Expect(made).To(Equal(3))

	for i := range 1000 {
		clients.In(fmt.Sprintf("eu-west-%d", i), role)
	}
	g.Expect(clients.In(ireland, role)).NotTo(BeIdenticalTo(first), "what was used longest ago has gone")
}

func TestThrottledCallsAreTriedAgain(t *testing.T) {
	g, w := NewWithT(t), start(t)
	config := load(t, awsconfig.Options{Attempts: 3})
	w.Inject(playground.Rule{Times: 1, Fault: &playground.Throttled})
	g.Expect(describe(t, config.In(ireland, awsconfig.Role{}))).To(Succeed())
	w.Inject(playground.Rule{Fault: &playground.Denied})
	g.Expect(codeOf(describe(t, config.In(ireland, awsconfig.Role{})))).To(Equal("UnauthorizedOperation"))
	g.Expect(w.Count(playground.Match{}, "UnauthorizedOperation")).To(Equal(1), "denial is not tried again")
}

// A process without a region setting still uses its partition's STS.
func TestHomeRegion(t *testing.T) {
	for arn, region := range map[string]string{
		"":      "us-east-1",
		roleARN: "us-east-1",
		"arn:aws-cn:iam::111122223333:role/reader":     "cn-north-1",
		"arn:aws-us-gov:iam::111122223333:role/reader": "us-gov-west-1",
	} {
		t.Run(arn, func(t *testing.T) {
			g := NewWithT(t)
			start(t)
			t.Setenv("AWS_REGION", "")
			t.Setenv("AWS_ROLE_ARN", arn)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere")
			g.Expect(load(t, awsconfig.Options{}).Region()).To(Equal(region))
		})
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	g := NewWithT(t)
	start(t)
	t.Setenv("AWS_CA_BUNDLE", filepath.Join(t.TempDir(), "missing.pem"))
	_, err := awsconfig.Load(t.Context(), awsconfig.Options{})
	g.Expect(err).To(MatchError(ContainSubstring("reading the AWS configuration")))
	g.Expect(err).To(MatchError(ContainSubstring("missing.pem")))
}

// All requests go through the client that reads responses to their end (internal/sdkhttp).
func TestHTTPClients(t *testing.T) {
	g := NewWithT(t)
	start(t)
	config := load(t, awsconfig.Options{})
	g.Expect(config.In(ireland, awsconfig.Role{}).HTTPClient).To(BeAssignableToTypeOf(sdkhttp.Client{}))
	g.Expect(config.In(ireland, awsconfig.Role{ARN: roleARN}).HTTPClient).To(BeAssignableToTypeOf(sdkhttp.Client{}))
	g.Expect(config.Guarded(netguard.Policy{})).To(BeAssignableToTypeOf(sdkhttp.Client{}))
}

// TestGuarded proves the policy of internal/netguard for the client of key endpoint, which
// sources and sinks of SQS use: every forbidden address is refused whatever the option
// is, and loopback only where it is not allowed.
func TestGuarded(t *testing.T) {
	g := NewWithT(t)
	config, err := awsconfig.Load(t.Context(), awsconfig.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(config.Close)
	get := func(host string, allow bool) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", nil)
		g.Expect(err).NotTo(HaveOccurred(), host)
		answer, err := config.Guarded(netguard.Policy{AllowLoopback: allow}).Do(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	refused := func(a netguardtest.Address, allow bool) {
		err := get(a.HostPort("1"), allow)
		g.Expect(err).To(MatchError(netguard.ErrForbidden), a.IP)
		g.Expect(err).To(MatchError(And(ContainSubstring("key endpoint: "), ContainSubstring(a.Reason))), a.IP)
	}
	for _, a := range netguardtest.Forbidden {
		refused(a, false)
		refused(a, true)
	}
	for _, a := range netguardtest.Loopback {
		refused(a, false)
	}
	// net/http reads the environment once in a process, so the setting itself is checked.
	guarded := config.Guarded(netguard.Policy{}).(sdkhttp.Client).Next.(*awshttp.BuildableClient)
	g.Expect(guarded.GetTransport().Proxy).To(BeNil(), "a proxy would be dialled in place of the address")
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	g.Expect(get(strings.TrimPrefix(server.URL, "http://"), true)).To(Succeed())
}
