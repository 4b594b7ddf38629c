package catalogue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	testclock "k8s.io/utils/clock/testing"

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
	leaks.AtEnd(t)
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
