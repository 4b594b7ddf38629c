package catalogue_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
)

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
			message: `"eu-nowhere-1" is not a region of AWS, or does not answer (AuthFailure)`,
		},
		"a failure of EC2's": {
			rule: aws.Rule{Fault: &aws.InternalError}, class: catalogue.ErrUnavailable, code: "InternalError",
			message: "EC2 in region eu-west-1 is unreachable or returned an invalid answer (InternalError)",
		},
		"something in between": {
			rule: aws.Rule{Fault: &aws.Fault{Status: http.StatusBadGateway}}, class: catalogue.ErrUnavailable, code: "UnknownError",
			message: "EC2 in region eu-west-1 is unreachable or returned an invalid answer (UnknownError)",
		},
		"an empty listing": {
			prepare: func(w *world) { w.ec2.Offer(ireland) }, class: catalogue.ErrUnavailable,
			message: "EC2 in region eu-west-1 is unreachable or returned an invalid answer",
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
	g.Expect(err).To(MatchError(`EC2 does not report memory of instance type "m5.large", in region eu-west-1`))
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
