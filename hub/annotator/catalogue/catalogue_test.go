package catalogue_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	testclock "k8s.io/utils/clock/testing"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sts"
	"github.com/capstan-hub/capstan/playground/leaks"
)

const (
	ireland, ohio = "eu-west-1", "us-east-2"
	// patience with a busy machine.
	patience = 20 * time.Second
)

var (
	roleA = awsconfig.Role{ARN: "arn:aws:iam::111122223333:role/a"}
	roleB = awsconfig.Role{ARN: "arn:aws:iam::111122223333:role/b", ExternalID: "b"}
)

// as is the caller that EC2 sees for a role.
func as(name string) string {
	return "arn:aws:sts::111122223333:assumed-role/" + name + "/capstan"
}

// world is AWS and a running catalogue.
type world struct {
	*aws.Server
	ec2      *ec2.Service
	sts      *sts.Service
	clock    *testclock.FakeClock
	registry *prometheus.Registry
	*catalogue.EC2
	stop func()

	mu   sync.Mutex
	told map[string]int
}

func start(t testing.TB, timings catalogue.Timings) *world {
	t.Helper()
	before := goleak.IgnoreCurrent()
	w := &world{
		ec2:      ec2.New(ireland, ohio),
		sts:      sts.New(sts.Role{ARN: roleA.ARN}, sts.Role{ARN: roleB.ARN, ExternalID: roleB.ExternalID}),
		clock:    testclock.NewFakeClock(time.Now()),
		registry: prometheus.NewRegistry(),
		told:     map[string]int{},
	}
	var err error
	// AWS lives by the real clock, which the SDK does as well.
	if w.Server, err = aws.Start(aws.Options{Services: []aws.Service{w.ec2, w.sts}}); err != nil {
		t.Fatal(err)
	}
	for name, value := range w.Env() {
		t.Setenv(name, value)
	}
	config, err := awsconfig.Load(t.Context(), awsconfig.Options{Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.EC2, err = catalogue.New(catalogue.Options{
		AWS: config, Registerer: w.registry, Timings: timings, Clock: w.clock, Logger: testr.NewWithInterface(t, testr.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Notify(func(region string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told[region]++
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		w.stop()
		w.Stop()
		config.Close()
		if err := leaks.Find(before); err != nil {
			t.Error(err)
		}
	})
	return w
}

// get a type as the process itself.
func (w *world) get(t testing.TB, region, instanceType string) (catalogue.Answer, error) {
	t.Helper()
	return w.as(t, awsconfig.Role{}, region, instanceType)
}

func (w *world) as(t testing.TB, role awsconfig.Role, region, instanceType string) (catalogue.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return w.Get(ctx, catalogue.Query{Region: region, InstanceType: instanceType, Role: role})
}

func (w *world) toldOf(region string) func() int {
	return func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.told[region]
	}
}

// listings of a region that EC2 has answered: calls without a filter or a token.
func (w *world) listings(region string) int {
	n := 0
	for _, r := range w.Records(aws.Match{Service: "ec2", Region: region}) {
		if r.Form.Get("Filter.1.Name") == "" && r.Form.Get("NextToken") == "" {
			n++
		}
	}
	return n
}

func (w *world) calls(region string) int { return w.Count(aws.Match{Service: "ec2", Region: region}) }

func failureOf(g Gomega, err error) *catalogue.Error {
	var failure *catalogue.Error
	g.ExpectWithOffset(1, errors.As(err, &failure)).To(BeTrue(), "%v", err)
	return failure
}

func TestFirstAnswer(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	answer, err := w.get(t, ireland, "g5.xlarge")
	g.Expect(err).NotTo(HaveOccurred())
	want, err := capacity.FromInstanceTypeInfo(ec2.Fixture("g5.xlarge"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(catalogue.Answer{Capacity: want, Seen: w.clock.Now()}))

	for _, info := range ec2.Fixtures() {
		_, err := w.get(t, ireland, string(info.InstanceType))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.calls(ireland)).To(Equal(1), "33 types are one page")
	g.Expect(w.calls(ohio)).To(BeZero(), "a region that nobody asks about is not listed")
	g.Expect(w.toldOf(ireland)()).To(BeZero(), "nobody went without an answer")
}

// One listing per region whatever the concurrency, in pages of 100.
func TestOneListingForAll(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	all := ec2.Many(1400)
	w.ec2.Offer(ireland, all...)
	var askers sync.WaitGroup
	failures := make(chan error, 1000)
	for i := range 1000 {
		askers.Go(func() {
			_, err := w.get(t, []string{ireland, ohio}[i%2], string(all[i%33].InstanceType))
			failures <- err
		})
	}
	askers.Wait()
	for range 1000 {
		g.Expect(<-failures).NotTo(HaveOccurred())
	}
	g.Expect(w.listings(ireland)).To(Equal(1))
	g.Expect(w.listings(ohio)).To(Equal(1))
	g.Expect(w.calls(ireland)).To(Equal(14))
	g.Expect(w.Records(aws.Match{Region: ireland})[0].Form.Get("MaxResults")).To(Equal("100"))
	_, err := w.get(t, ireland, string(all[1399].InstanceType))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.calls(ireland)).To(Equal(14))
}

// A waiter goes when its context does; the listing goes on, and it is told.
func TestWaitersHonourTheirContexts(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	resume := make(chan struct{})
	w.ec2.Offer(ireland, ec2.Many(200)...)
	remove := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := w.Get(ctx, catalogue.Query{Region: ireland, InstanceType: "m5.large"})
		gone <- err
		close(resume)
	}()
	g.Eventually(func() int { return w.UnderWay(aws.Match{Region: ireland}) }, patience).Should(Equal(1))
	cancel()
	var err error
	g.Eventually(gone, patience).Should(Receive(&err))
	<-resume
	g.Expect(err).To(MatchError(catalogue.ErrPending))
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(err).To(MatchError("EC2 in region eu-west-1 has not answered yet"))

	answer, err := w.get(t, ohio, "m5.large")
	g.Expect(err).NotTo(HaveOccurred(), "a region that hangs holds no other")
	g.Expect(answer.Capacity.VCPU).To(Equal(int64(2)))
	remove()
}

// A call that hangs is given up, and whoever was turned away is told when it is over.
func TestAHangingRegionRecovers(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{Call: 3 * time.Second})
	remove := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Hang: true})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).To(MatchError(catalogue.ErrUnavailable))
	g.Expect(err).To(MatchError("EC2 in region eu-west-1 does not answer as it should"))
	remove()
	w.clock.Step(10 * time.Second)
	_, err = w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
}

// While EC2 fails it is called once, then after 10 s, 20 s, ... 10 min, whoever asks.
func TestAFailingRegionIsNotHammered(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	w.Inject(aws.Rule{Fault: &aws.InternalError})
	for round, most := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		for i := range 100 {
			_, err := w.get(t, ireland, fmt.Sprintf("m5.x%dlarge", i))
			g.Expect(err).To(MatchError(catalogue.ErrUnavailable))
			failure := failureOf(g, err)
			g.Expect(failure.RetryAfter).To(And(BeNumerically(">=", most*time.Second/2), BeNumerically("<=", most*time.Second)))
			g.Expect(failure.Code).To(Equal("InternalError"))
		}
		g.Expect(w.calls(ireland)).To(Equal(round + 1))
		w.clock.Step(most * time.Second)
	}
}

// Known types are answered through an outage, for 30 days, and tell when they were seen.
func TestStaleIsServed(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	first, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	w.Inject(aws.Rule{Fault: &aws.Throttled})

	w.clock.Step(29 * 24 * time.Hour)
	answer, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(first))
	g.Eventually(func() int { return w.Count(aws.Match{Region: ireland}, "RequestLimitExceeded") }, patience).Should(Equal(1), "it was tried")

	w.clock.Step(25 * time.Hour)
	g.Eventually(func() error {
		_, err := w.get(t, ireland, "m5.large")
		return err
	}, patience).Should(MatchError(catalogue.ErrThrottled), "30 days are over")
}

// The timer lists again after a day, if somebody has asked since; what changed is told.
func TestRefresh(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(w.clock.HasWaiters, patience).Should(BeTrue())
	w.clock.Step(48 * time.Hour)
	g.Eventually(func() int { return w.listings(ireland) }, patience).Should(Equal(2), "somebody had asked")
	g.Eventually(w.clock.HasWaiters, patience).Should(BeTrue())
	w.clock.Step(48 * time.Hour)
	g.Consistently(func() int { return w.listings(ireland) }, 100*time.Millisecond).Should(Equal(2), "nobody has, since")

	_, err = w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return w.listings(ireland) }, patience).Should(Equal(3))
	g.Consistently(w.toldOf(ireland), 100*time.Millisecond).Should(BeZero(), "nothing has changed")

	// In use, it is listed by the timer alone: not before 90 % of a day, nor after 110 %.
	grown := ec2.Fixture("m5.large")
	*grown.MemoryInfo.SizeInMiB *= 2
	w.ec2.Offer(ireland, grown)
	g.Eventually(func() time.Time { a, _ := w.get(t, ireland, "m5.large"); return a.Seen }, patience).Should(Equal(w.clock.Now()))
	g.Eventually(w.clock.HasWaiters, patience).Should(BeTrue())
	w.clock.Step(21*time.Hour + 35*time.Minute)
	g.Consistently(func() int { return w.listings(ireland) }, 100*time.Millisecond).Should(Equal(3))
	w.clock.Step(5 * time.Hour)
	g.Eventually(func() int { return w.listings(ireland) }, patience).Should(Equal(4))
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
	answer, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Capacity.MemoryMiB).To(Equal(int64(16384)))

	// A type that EC2 retired is still answered for.
	answer, err = w.get(t, ireland, "t3.micro")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Seen).To(BeTemporally("<", w.clock.Now().Add(-24*time.Hour)))
	w.clock.Step(30 * 24 * time.Hour)
	g.Eventually(func() error { _, err := w.get(t, ireland, "t3.micro"); return err }, patience).
		Should(MatchError(catalogue.ErrInstanceTypeUnknown))
}

// Unknown types are looked up, those that are wanted together in one call, and not
// again for 15 minutes.
func TestUnknownTypes(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.calls(ireland)).To(Equal(1))

	// One look-up is under way while fifty more are wanted: they are the next call.
	hold := w.Inject(aws.Rule{Match: aws.Match{Region: ireland}, Times: 1, Latency: time.Second})
	defer hold()
	var askers sync.WaitGroup
	failures := make(chan error, 51)
	ask := func(name string) {
		askers.Go(func() { _, err := w.get(t, ireland, name); failures <- err })
	}
	ask("m9.first")
	g.Eventually(func() int { return w.UnderWay(aws.Match{Region: ireland}) }, patience).Should(Equal(1))
	for i := range 50 {
		ask(fmt.Sprintf("m9.x%dlarge", i))
	}
	askers.Wait()
	for range 51 {
		err := <-failures
		g.Expect(err).To(MatchError(catalogue.ErrInstanceTypeUnknown))
		g.Expect(failureOf(g, err).RetryAfter).To(Equal(15 * time.Minute))
	}
	g.Expect(w.calls(ireland)).To(BeNumerically("<=", 4), "the listing, the first, the rest, and one for a late asker")

	calls := w.calls(ireland)
	w.clock.Step(14 * time.Minute)
	_, err = w.get(t, ireland, "m9.first")
	g.Expect(err).To(MatchError(`EC2 has no instance type "m9.first" in region eu-west-1`))
	g.Expect(w.calls(ireland)).To(Equal(calls))

	// It is released, and found by the next who asks after the 15 minutes; all are told.
	released := ec2.Fixture("m5.large")
	released.InstanceType = "m9.first"
	w.ec2.Offer(ireland, append(ec2.Fixtures(), released)...)
	w.clock.Step(time.Minute)
	answer, err := w.get(t, ireland, "m9.first")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Capacity.InstanceType).To(Equal("m9.first"))
	g.Expect(w.calls(ireland)).To(Equal(calls + 1))
	g.Expect(w.listings(ireland)).To(Equal(1))
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1))
}

// Names that cannot be are answered without a call: a filter takes wildcards, and a
// region is part of a host.
func TestNamesThatCannotBe(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	for _, name := range []string{"", "m5", "m5.*", "m?.large", "M5.large", ".large", "m5.", "m5 .large", "m5.large,t3.micro"} {
		_, err := w.get(t, ireland, name)
		g.Expect(err).To(MatchError(catalogue.ErrInstanceTypeUnknown), name)
	}
	for _, region := range []string{"", "europe", "eu-west-1.example.com/", "eu-west-1#", "EU-WEST-1", "eu-west", "a-b-1"} {
		_, err := w.get(t, region, "m5.large")
		g.Expect(err).To(MatchError(catalogue.ErrRegionUnknown), region)
	}
	g.Expect(w.Count(aws.Match{})).To(BeZero())
	for _, region := range []string{"us-gov-west-1", "cn-north-1", "us-isob-east-1", "ap-southeast-5", "eusc-de-east-1", "mx-central-1"} {
		_, err := w.get(t, region, "u7in-32tb.224xlarge")
		g.Expect(err).To(MatchError(catalogue.ErrRegionUnknown), "it is asked about, and is not here")
		g.Expect(w.calls(region)).To(Equal(1))
	}
}

func TestErrorClasses(t *testing.T) {
	fault := func(status int, code string) *aws.Fault {
		return &aws.Fault{Status: status, Code: code, Message: "secret-" + code}
	}
	for name, c := range map[string]struct {
		rule         aws.Rule
		prepare      func(*world)
		region       string
		role         awsconfig.Role
		class        error
		action, code string
		message      string
	}{
		"denied": {
			rule: aws.Rule{Match: aws.Match{Service: "ec2"}, Fault: &aws.Denied}, class: catalogue.ErrAccessDenied,
			action: "ec2:DescribeInstanceTypes", code: "UnauthorizedOperation",
			message: "AWS denies ec2:DescribeInstanceTypes in region eu-west-1: allow it in an IAM policy (UnauthorizedOperation)",
		},
		"throttled": {
			rule: aws.Rule{Fault: &aws.Throttled}, class: catalogue.ErrThrottled, code: "RequestLimitExceeded",
			message: "AWS throttles calls in region eu-west-1 (RequestLimitExceeded)",
		},
		"another word for it": {
			rule: aws.Rule{Fault: fault(400, "ThrottlingException")}, class: catalogue.ErrThrottled, code: "ThrottlingException",
			message: "AWS throttles calls in region eu-west-1 (ThrottlingException)",
		},
		"not subscribed": {
			rule: aws.Rule{Fault: &aws.OptInRequired}, class: catalogue.ErrRegionNotOptedIn, code: "OptInRequired",
			message: "region eu-west-1 is not enabled for the AWS account (OptInRequired)",
		},
		"region not enabled": {
			prepare: func(w *world) { w.ec2.Enable(ireland, false) }, class: catalogue.ErrRegionNotOptedIn, code: "AuthFailure",
			message: "region eu-west-1 is not enabled for the AWS account (AuthFailure)",
		},
		"credentials that AWS does not know": {
			rule: aws.Rule{Fault: &aws.AuthFailure}, class: catalogue.ErrCredentials, code: "AuthFailure",
			message: "AWS credentials are missing or not accepted in region eu-west-1 (AuthFailure)",
		},
		"expired": {
			rule: aws.Rule{Fault: fault(400, "RequestExpired")}, class: catalogue.ErrCredentials, code: "RequestExpired",
			message: "AWS credentials are missing or not accepted in region eu-west-1 (RequestExpired)",
		},
		"no such region": {
			region: "eu-nowhere-1", class: catalogue.ErrRegionUnknown, code: "AuthFailure",
			message: `"eu-nowhere-1" is no region of AWS that answers (AuthFailure)`,
		},
		"a failure of EC2's": {
			rule: aws.Rule{Fault: &aws.InternalError}, class: catalogue.ErrUnavailable, code: "InternalError",
			message: "EC2 in region eu-west-1 does not answer as it should (InternalError)",
		},
		"something in between": {
			rule: aws.Rule{Fault: &aws.Fault{Status: http.StatusBadGateway}}, class: catalogue.ErrUnavailable, code: "UnknownError",
			message: "EC2 in region eu-west-1 does not answer as it should (UnknownError)",
		},
		"an empty listing": {
			prepare: func(w *world) { w.ec2.Offer(ireland) }, class: catalogue.ErrUnavailable,
			message: "EC2 in region eu-west-1 does not answer as it should",
		},
		"a role that may not be assumed": {
			role: awsconfig.Role{ARN: roleB.ARN, ExternalID: "guess"}, class: catalogue.ErrAccessDenied, action: "sts:AssumeRole", code: "AccessDenied",
			message: "AWS denies sts:AssumeRole in region eu-west-1 with role " + roleB.ARN + ": allow it in an IAM policy (AccessDenied)",
		},
		"a role that is none": {
			role: awsconfig.Role{ARN: "reader"}, class: catalogue.ErrCredentials, code: "ValidationError",
			message: "AWS credentials with role reader are missing or not accepted in region eu-west-1 (ValidationError)",
		},
		"STS throttles": {
			rule: aws.Rule{Match: aws.Match{Service: "sts"}, Fault: &aws.Throttled}, role: roleA, class: catalogue.ErrThrottled, code: "Throttling",
			message: "AWS throttles calls in region eu-west-1 with role " + roleA.ARN + " (Throttling)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), start(t, catalogue.Timings{})
			if c.rule.Fault != nil {
				w.Inject(c.rule)
			}
			if c.prepare != nil {
				c.prepare(w)
			}
			if c.region == "" {
				c.region = ireland
			}
			_, err := w.as(t, c.role, c.region, "m5.large")
			g.Expect(err).To(MatchError(c.class))
			g.Expect(err).To(MatchError(c.message))
			failure := failureOf(g, err)
			g.Expect(failure.Action).To(Equal(c.action))
			g.Expect(failure.Code).To(Equal(c.code))
			g.Expect(failure.RetryAfter).To(BeNumerically(">=", 5*time.Second))
			g.Expect(failure.Query).To(Equal(catalogue.Query{Region: c.region, InstanceType: "m5.large", Role: c.role}))

			_, again := w.as(t, c.role, c.region, "t3.micro")
			g.Expect(again).To(MatchError(c.message), "the same words for the same trouble")
		})
	}
}

func TestNoCredentials(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	config, err := awsconfig.Load(t.Context(), awsconfig.Options{Attempts: 1})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(config.Close)
	poor, err := catalogue.New(catalogue.Options{AWS: config, Logger: testr.New(t)})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- poor.Start(ctx) }()
	_, err = poor.Get(t.Context(), catalogue.Query{Region: ireland, InstanceType: "m5.large"})
	g.Expect(err).To(MatchError(catalogue.ErrCredentials))
	cancel()
	g.Expect(<-ended).To(Succeed())
	g.Expect(w.Count(aws.Match{})).To(BeZero())
}

// Half an answer is an error of its own, until a later listing has the rest; a whole
// answer is not lost to half a one.
func TestHalfAnswers(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	half := ec2.Fixture("m5.large")
	memory := half.MemoryInfo
	half.MemoryInfo = nil
	w.ec2.Offer(ireland, half, ec2.Fixture("t3.micro"))
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).To(MatchError(catalogue.ErrIncomplete))
	g.Expect(err).To(MatchError(`EC2 does not say the memory of instance type "m5.large", in region eu-west-1`))
	var incomplete *capacity.IncompleteError
	g.Expect(errors.As(err, &incomplete)).To(BeTrue())

	whole, wasWhole := half, ec2.Fixture("t3.micro")
	whole.MemoryInfo, wasWhole.VCpuInfo = memory, nil
	w.ec2.Offer(ireland, whole, wasWhole)
	w.clock.Step(27 * time.Hour)
	g.Eventually(func() error { _, err := w.get(t, ireland, "t3.micro"); return err }, patience).Should(Succeed())
	g.Eventually(func() error { _, err := w.get(t, ireland, "m5.large"); return err }, patience).Should(Succeed())
	answer, err := w.get(t, ireland, "t3.micro")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Capacity.VCPU).To(Equal(int64(2)))
}

// What one role learns serves all; what one may not do stops no other.
func TestRolesShareWhatIsKnown(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	w.Inject(aws.Rule{Match: aws.Match{Service: "ec2", Caller: as("a")}, Fault: &aws.Denied})
	_, err := w.as(t, roleA, ireland, "m5.large")
	g.Expect(err).To(MatchError(catalogue.ErrAccessDenied))
	g.Expect(err).To(MatchError(ContainSubstring("with role " + roleA.ARN)))

	_, err = w.as(t, roleB, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.as(t, roleA, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred(), "it is known now")
	g.Expect(w.Count(aws.Match{Caller: as("b")}, "")).To(Equal(1))
	g.Eventually(w.toldOf(ireland), patience).Should(Equal(1), "role a had been turned away")

	_, err = w.as(t, roleA, ireland, "no.such")
	g.Expect(err).To(MatchError(catalogue.ErrAccessDenied), "what must be asked for is asked with its own rights")
	_, err = w.as(t, roleB, ireland, "no.such")
	g.Expect(err).To(MatchError(catalogue.ErrInstanceTypeUnknown))

	// Throttling is an account's, too.
	w.Inject(aws.Rule{Match: aws.Match{Service: "ec2", Caller: as("b")}, Fault: &aws.Throttled})
	_, err = w.as(t, roleB, ohio, "m5.large")
	g.Expect(err).To(MatchError(catalogue.ErrThrottled))
	_, err = w.get(t, ohio, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
}

// A region that does not answer is not tried with each of a thousand roles.
func TestASilentRegionFailsForAllRoles(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{Call: 200 * time.Millisecond})
	w.Inject(aws.Rule{Match: aws.Match{Service: "ec2"}, Hang: true})
	for _, role := range []awsconfig.Role{{}, roleA, roleB} {
		_, err := w.as(t, role, ireland, "m5.large")
		g.Expect(err).To(MatchError(catalogue.ErrUnavailable))
	}
	g.Eventually(func() int { return w.calls(ireland) }, patience).Should(Equal(1))
}

// Users name types, roles and regions: what is kept of them is bounded, and no answer
// is lost over it.
func TestWhatUsersNameIsBounded(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	const many = 2500
	var askers sync.WaitGroup
	failures := make(chan error, many)
	for i := range many {
		askers.Go(func() {
			_, err := w.get(t, ireland, fmt.Sprintf("m5.x%dlarge", i))
			failures <- err
		})
	}
	askers.Wait()
	for range many {
		g.Expect(<-failures).To(MatchError(catalogue.ErrInstanceTypeUnknown))
	}
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_unknown_instance_types")).To(BeNumerically("<=", 2000))
	g.Expect(w.calls(ireland)).To(BeNumerically("<", 200))

	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	for i := range 200 {
		_, err := w.get(t, fmt.Sprintf("eu-%c%c-1", 'a'+i/26, 'a'+i%26), "m5.large")
		g.Expect(err).To(MatchError(catalogue.ErrRegionUnknown))
	}
	calls := w.calls(ireland)
	_, err = w.get(t, ireland, "t3.micro")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.calls(ireland)).To(Equal(calls), "a region that answers is not forgotten for those that do not")
}

// gauge of the registry, the sum of its series.
func (w *world) gauge(g Gomega, name string) float64 {
	families, err := w.registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		if family.GetName() == name {
			g.Expect(family.GetHelp()).NotTo(BeEmpty())
			for _, metric := range family.GetMetric() {
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestMetrics(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = w.get(t, ireland, "no.such")
	g.Expect(err).To(HaveOccurred())
	w.clock.Step(time.Hour)
	g.Expect(w.gauge(g, "capstan_annotator_ec2_calls_total")).To(Equal(2.0))
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_instance_types")).To(Equal(33.0))
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_unknown_instance_types")).To(Equal(1.0))
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_age_seconds")).To(Equal(3600.0))
}

// Who asks before the start, or waits at the end, is not left behind.
func TestStartAndStop(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	w.Inject(aws.Rule{Hang: true})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := w.Get(ctx, catalogue.Query{Region: ireland, InstanceType: "m5.large"})
		done <- err
	}()
	g.Eventually(func() int { return w.UnderWay(aws.Match{}) }, patience).Should(Equal(1))
	w.stop()
	cancel()
	g.Eventually(done, patience).Should(Receive(MatchError(catalogue.ErrPending)))
}
