package catalogue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
)

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
	g, w := NewWithT(t), start(t, catalogue.Timings{Call: 2 * time.Second})
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

// A caller that queries before the start, or waits at the end, gets an answer.
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
