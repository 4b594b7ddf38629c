package aws_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	ec2api "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	stsapi "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const region = "eu-west-1"

func TestMain(m *testing.M) {
	SetDefaultEventuallyTimeout(2 * time.Minute) // A machine may be busy.
	os.Exit(m.Run())
}

// world is a server with its services, and the SDK's configuration for a program in Env.
type world struct {
	*aws.Server
	ec2   *ec2.Service
	sts   *sts.Service
	clock *testclock.FakeClock
	sdk   sdk.Config
}

func start(t *testing.T, roles ...sts.Role) *world {
	t.Helper()
	leaks.AtEnd(t)
	w := &world{ec2: ec2.New(region, "us-east-1"), sts: sts.New(roles...), clock: testclock.NewFakeClock(time.Now())}
	var err error
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.ec2, w.sts}, Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	for name, value := range w.Env() {
		t.Setenv(name, value)
	}
	w.load(t)
	return w
}

// load the configuration of the environment, without retries.
func (w *world) load(t *testing.T) {
	t.Helper()
	var err error
	w.sdk, err = config.LoadDefaultConfig(t.Context(), config.WithRetryer(func() sdk.Retryer { return sdk.NopRetryer{} }))
	if err != nil {
		t.Fatal(err)
	}
	direct, closeConnections := w.Config(aws.Root(), "")
	t.Cleanup(closeConnections)
	w.sdk.HTTPClient = direct.HTTPClient
}

// in returns EC2 in a region.
func (w *world) in(region string) *ec2api.Client {
	return ec2api.NewFromConfig(w.sdk, func(o *ec2api.Options) { o.Region = region })
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// The SDK decodes every field of the offered types.
func TestTypesSurviveTheWire(t *testing.T) {
	g, w := NewWithT(t), start(t)
	var got []types.InstanceTypeInfo
	pages := ec2api.NewDescribeInstanceTypesPaginator(w.in(region), &ec2api.DescribeInstanceTypesInput{MaxResults: sdk.Int32(5)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(page.InstanceTypes)).To(BeNumerically("<=", 5))
		got = append(got, page.InstanceTypes...)
	}
	for i, want := range ec2.Fixtures() {
		g.Expect(got[i]).To(Equal(want), "%s", want.InstanceType)
	}
	g.Expect(w.Count(aws.Match{Service: "ec2", Action: "DescribeInstanceTypes", Region: region, Caller: aws.RootARN}, "")).To(Equal(7))
	g.Expect(w.Count(aws.Match{Region: "us-east-1"})).To(BeZero())
	g.Expect(w.Records(aws.Match{})[0].Form.Get("MaxResults")).To(Equal("5"))
}

func TestNamesAndFilters(t *testing.T) {
	g, w := NewWithT(t), start(t)
	names := func(in ec2api.DescribeInstanceTypesInput) (names []string, code string) {
		out, err := w.in(region).DescribeInstanceTypes(t.Context(), &in)
		if err != nil {
			return nil, codeOf(err)
		}
		for _, info := range out.InstanceTypes {
			names = append(names, string(info.InstanceType))
		}
		return names, ""
	}
	filter := func(name string, values ...string) []types.Filter {
		return []types.Filter{{Name: sdk.String(name), Values: values}}
	}

	for _, c := range []struct {
		in    ec2api.DescribeInstanceTypesInput
		names []string
		code  string
	}{
		{in: ec2api.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.large"}}, names: []string{"m5.large"}},
		{in: ec2api.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.large", "no.such"}}, code: "InvalidInstanceType"},
		{in: ec2api.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.large"}, MaxResults: sdk.Int32(5)}, code: "InvalidParameterCombination"},
		{in: ec2api.DescribeInstanceTypesInput{Filters: filter("instance-type", "t3.micro", "no.such", "g5.*")}, names: []string{"t3.micro", "g5.xlarge"}},
		{in: ec2api.DescribeInstanceTypesInput{Filters: filter("instance-type", "no.such")}},
		{in: ec2api.DescribeInstanceTypesInput{Filters: filter("hypervisor", "xen")}, code: "InvalidParameterValue"},
		{in: ec2api.DescribeInstanceTypesInput{MaxResults: sdk.Int32(101)}, code: "InvalidParameterValue"},
		{in: ec2api.DescribeInstanceTypesInput{MaxResults: sdk.Int32(4)}, code: "InvalidParameterValue"},
		{in: ec2api.DescribeInstanceTypesInput{NextToken: sdk.String("bm9uc2Vuc2U=")}, code: "InvalidNextToken"},
	} {
		got, code := names(c.in)
		g.Expect(got).To(Equal(c.names))
		g.Expect(code).To(Equal(c.code))
	}
}

func TestRegions(t *testing.T) {
	g, w := NewWithT(t), start(t)
	in := &ec2api.DescribeInstanceTypesInput{}
	_, err := w.in("eu-nowhere-1").DescribeInstanceTypes(t.Context(), in)
	g.Expect(codeOf(err)).To(Equal("AuthFailure"))
	g.Expect(err).To(MatchError(ContainSubstring("Credential should be scoped to a valid region")))

	w.ec2.Enable(region, false)
	_, err = w.in(region).DescribeInstanceTypes(t.Context(), in)
	g.Expect(codeOf(err)).To(Equal("AuthFailure"))
	w.ec2.Enable(region, true)
	w.ec2.Offer(region, ec2.Many(200)...)
	out, err := w.in(region).DescribeInstanceTypes(t.Context(), in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.InstanceTypes).To(HaveLen(100))
	g.Expect(out.NextToken).NotTo(BeNil())
}

func TestRules(t *testing.T) {
	g, w := NewWithT(t), start(t)
	call := func(ctx context.Context, in string) error {
		_, err := w.in(in).DescribeInstanceTypes(ctx, &ec2api.DescribeInstanceTypesInput{})
		return err
	}
	w.Inject(aws.Rule{Match: aws.Match{Service: "ec2", Region: region}, Times: 2, Fault: &aws.Throttled})
	g.Expect(codeOf(call(t.Context(), region))).To(Equal("RequestLimitExceeded"))
	g.Expect(call(t.Context(), "us-east-1")).To(Succeed())
	g.Expect(codeOf(call(t.Context(), region))).To(Equal("RequestLimitExceeded"))
	g.Expect(call(t.Context(), region)).To(Succeed())
	g.Expect(w.Count(aws.Match{Region: region}, "RequestLimitExceeded")).To(Equal(2))

	remove := w.Inject(aws.Rule{Match: aws.Match{Action: "DescribeInstanceTypes"}, Fault: &aws.Denied})
	w.Inject(aws.Rule{Match: aws.Match{Region: region}, Times: 1, Fault: &aws.InternalError})
	g.Expect(codeOf(call(t.Context(), region))).To(Equal("InternalError"), "the newest rule decides")
	g.Expect(codeOf(call(t.Context(), region))).To(Equal("UnauthorizedOperation"))
	remove()

	w.Inject(aws.Rule{Latency: time.Hour, Times: 1})
	done := make(chan error, 1)
	go func() { done <- call(context.Background(), region) }()
	g.Eventually(w.clock.HasWaiters).Should(BeTrue())
	g.Expect(w.UnderWay(aws.Match{Region: region})).To(Equal(1))
	w.clock.Step(time.Hour)
	g.Eventually(done).Should(Receive(BeNil()))

	w.Inject(aws.Rule{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- call(ctx, region) }()
	g.Eventually(func() int { return w.UnderWay(aws.Match{}) }).Should(Equal(1))
	cancel()
	g.Eventually(done).Should(Receive(MatchError(context.Canceled)))
	g.Eventually(func() int { return w.UnderWay(aws.Match{}) }).Should(BeZero())

	go func() { done <- call(context.Background(), region) }()
	g.Eventually(func() int { return w.UnderWay(aws.Match{}) }).Should(Equal(1))
	w.Stop()
	g.Eventually(done).Should(Receive(HaveOccurred()), "the end of the server ends a call that hangs")
}

const roleARN = "arn:aws:iam::111122223333:role/teams/reader"

func TestAssumeRole(t *testing.T) {
	g, w := NewWithT(t), start(t, sts.Role{ARN: roleARN, ExternalID: "xyz"})
	client := stsapi.NewFromConfig(w.sdk)
	assume := func(externalID *string) error {
		w.sdk.Credentials = sdk.NewCredentialsCache(stscreds.NewAssumeRoleProvider(client, roleARN, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName, o.ExternalID = "session", externalID
		}))
		_, err := w.in(region).DescribeInstanceTypes(t.Context(), &ec2api.DescribeInstanceTypesInput{})
		return err
	}
	g.Expect(codeOf(assume(nil))).To(Equal("AccessDenied"))
	g.Expect(codeOf(assume(sdk.String("abc")))).To(Equal("AccessDenied"))
	g.Expect(assume(sdk.String("xyz"))).To(Succeed())
	const session = "arn:aws:sts::111122223333:assumed-role/teams/reader/session"
	g.Expect(w.Count(aws.Match{Service: "ec2", Caller: session}, "")).To(Equal(1))

	who, err := stsapi.NewFromConfig(w.sdk).GetCallerIdentity(t.Context(), &stsapi.GetCallerIdentityInput{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*who.Arn).To(Equal(session))

	w.sts.Delete(roleARN)
	_, err = w.in(region).DescribeInstanceTypes(t.Context(), &ec2api.DescribeInstanceTypesInput{})
	g.Expect(err).NotTo(HaveOccurred(), "a session outlives its role")
	g.Expect(codeOf(assume(sdk.String("xyz")))).To(Equal("AccessDenied"))
}

func TestSessionsExpire(t *testing.T) {
	g, w := NewWithT(t), start(t, sts.Role{ARN: roleARN})
	out, err := stsapi.NewFromConfig(w.sdk).AssumeRole(t.Context(), &stsapi.AssumeRoleInput{
		RoleArn: sdk.String(roleARN), RoleSessionName: sdk.String("s"), DurationSeconds: sdk.Int32(900),
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*out.Credentials.Expiration).To(BeTemporally("~", w.clock.Now().Add(15*time.Minute), time.Second))
	t.Setenv("AWS_ACCESS_KEY_ID", *out.Credentials.AccessKeyId)
	t.Setenv("AWS_SECRET_ACCESS_KEY", *out.Credentials.SecretAccessKey)
	t.Setenv("AWS_SESSION_TOKEN", *out.Credentials.SessionToken)
	w.load(t)
	who := func() string {
		_, err := stsapi.NewFromConfig(w.sdk).GetCallerIdentity(t.Context(), &stsapi.GetCallerIdentityInput{})
		return codeOf(err)
	}
	g.Expect(who()).To(BeEmpty())
	w.clock.Step(15 * time.Minute)
	g.Expect(who()).To(Equal("ExpiredToken"))
	_, err = w.in(region).DescribeInstanceTypes(t.Context(), &ec2api.DescribeInstanceTypesInput{})
	g.Expect(codeOf(err)).To(Equal("RequestExpired"))

	t.Setenv("AWS_SESSION_TOKEN", "forged")
	w.load(t)
	g.Expect(who()).To(Equal("InvalidClientTokenId"))
}

// The SDK's default chain finds the token as in a pod with IRSA.
func TestWebIdentity(t *testing.T) {
	g, w := NewWithT(t), start(t, sts.Role{ARN: roleARN, Token: "jwt"})
	token := filepath.Join(t.TempDir(), "token")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_ROLE_ARN", roleARN)
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	call := func() error {
		w.load(t)
		_, err := w.in(region).DescribeInstanceTypes(t.Context(), &ec2api.DescribeInstanceTypesInput{})
		return err
	}
	g.Expect(os.WriteFile(token, []byte("forged"), 0o600)).To(Succeed())
	err := call()
	g.Expect(codeOf(err)).To(Equal("InvalidIdentityToken"), "%v", err)
	g.Expect(os.WriteFile(token, []byte("jwt"), 0o600)).To(Succeed())
	g.Expect(call()).To(Succeed())
}

// Calls without a signature, and calls with an unknown key, are rejected.
func TestUnsignedCallsAreRefused(t *testing.T) {
	g, w := NewWithT(t), start(t)
	response, err := http.Post(w.URL(), "application/x-www-form-urlencoded", strings.NewReader("Action=DescribeInstanceTypes&Version=2016-11-15"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusForbidden))
	http.DefaultClient.CloseIdleConnections()

	t.Setenv("AWS_ACCESS_KEY_ID", "AKIASOMEBODY")
	w.load(t)
	_, err = w.in(region).DescribeInstanceTypes(t.Context(), &ec2api.DescribeInstanceTypesInput{})
	g.Expect(codeOf(err)).To(Equal("AuthFailure"))
	g.Expect(w.Count(aws.Match{Caller: aws.RootARN})).To(BeZero())
}

func TestEnvIsAllThatIsNeeded(t *testing.T) {
	g, w := NewWithT(t), start(t)
	g.Expect(slices.Collect(maps.Keys(w.Env()))).To(ContainElements("AWS_ENDPOINT_URL", "AWS_REGION"))
	out, err := ec2api.NewFromConfig(w.sdk).DescribeInstanceTypes(t.Context(), &ec2api.DescribeInstanceTypesInput{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.InstanceTypes).NotTo(BeEmpty())
}
