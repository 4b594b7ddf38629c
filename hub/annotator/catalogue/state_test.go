package catalogue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
)

// A failure of a region is counted from its first call to the first success, in the metrics and in the
// State, which names the role and what to fix.
func TestStateOfAFailure(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	began := w.clock.Now().UTC().Truncate(time.Second)
	remove := w.Inject(aws.Rule{Match: aws.Match{Service: "ec2"}, Fault: &aws.Denied})
	for range 3 {
		_, err := w.as(t, roleB, ireland, "m5.large")
		g.Expect(err).To(MatchError(catalogue.ErrAccessDenied))
		w.clock.Step(5 * time.Minute)
	}
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_failing_seconds")).To(Equal(900.0))
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_failures_total")).To(Equal(3.0))
	s := w.State()
	g.Expect(s.Regions).To(HaveLen(1))
	g.Expect(s.Regions[0]).To(Equal(catalogue.RegionState{Name: ireland, Failing: []catalogue.FailureState{{
		Role: roleB.ARN, Since: began, Class: "access_denied",
		Message: "AWS denies ec2:DescribeInstanceTypes in region eu-west-1 with role " + roleB.ARN + ": allow it in an IAM policy (UnauthorizedOperation)",
	}}}))
	g.Expect(fmt.Sprint(s)).NotTo(ContainSubstring("External"))

	remove()
	w.clock.Step(10 * time.Minute)
	_, err := w.as(t, roleB, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_failing_seconds")).To(BeZero())
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_failures_total")).To(Equal(3.0), "it is a counter")
	g.Expect(w.State().Regions[0]).To(Equal(catalogue.RegionState{Name: ireland, Listed: w.clock.Now().UTC().Truncate(time.Second), Types: 33}))
	before := w.State()
	w.clock.Step(time.Minute)
	_, err = w.as(t, roleB, ireland, "m5.large")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.State()).To(Equal(before), "a query does not change it")
}

// A failure ends when no call is repeated, because no node group needs the region any more.
func TestAFailureThatNobodyRepeatsEnds(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	w.Inject(aws.Rule{Match: aws.Match{Service: "ec2"}, Fault: &aws.Denied})
	_, err := w.get(t, ireland, "m5.large")
	g.Expect(err).To(HaveOccurred())
	w.clock.Step(10 * time.Minute)
	g.Expect(w.State().Regions[0].Failing).To(HaveLen(1))
	w.clock.Step(20 * time.Minute)
	g.Expect(w.gauge(g, "capstan_annotator_catalogue_failing_seconds")).To(BeZero())
	g.Expect(w.State().Regions[0].Failing).To(BeEmpty())
}

// Users name regions and roles: the State has a bound, also of its texts.
func TestStateIsBounded(t *testing.T) {
	g, w := NewWithT(t), start(t, catalogue.Timings{})
	w.Inject(aws.Rule{Match: aws.Match{Service: "sts"}, Fault: &aws.Denied})
	for i := range 110 {
		_, err := w.as(t, awsconfig.Role{ARN: fmt.Sprintf("arn:aws:iam::111122223333:role/%s%d", strings.Repeat("x", 2000), i)}, ireland, "m5.large")
		g.Expect(err).To(HaveOccurred())
	}
	s := w.State()
	failing := 0
	for _, r := range s.Regions {
		failing += len(r.Failing)
		for _, f := range r.Failing {
			g.Expect(len(f.Role)).To(BeNumerically("<=", 640))
			g.Expect(len(f.Message)).To(BeNumerically("<=", 1024))
		}
	}
	g.Expect(len(s.Regions) + failing).To(BeNumerically("<=", 100))
}
