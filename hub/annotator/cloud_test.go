package annotator_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capstan-hub/capstan/hub/annotator/catalogue"
	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sts"
)

// cloud is AWS with EC2 and STS.
type cloud struct {
	*aws.Server
	ec2     *ec2.Service
	sts     *sts.Service
	timings catalogue.Timings
	// loadOptions of the configuration of AWS; a test may append to them before the start.
	loadOptions []func(*config.LoadOptions) error
}

// newCloud whose regions offer the fixtures.
func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{ec2: ec2.New("eu-west-1", "eu-central-1", "us-east-1", "us-west-2", "ap-south-1", "ap-northeast-1", "sa-east-1"), sts: sts.New(assumable, member)}
	var err error
	if c.Server, err = aws.Start(aws.Options{Services: []aws.Service{c.ec2, c.sts}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	c.loadOptions = c.LoadOptions()
	c.timings = catalogue.Timings{Retry: 1500 * time.Millisecond, RetryDenied: 1500 * time.Millisecond, RetryMost: 2 * time.Second, Negative: time.Second}
	return c
}

// catalogue of it that runs with a manager.
func (c *cloud) catalogue(t *testing.T, mgr manager.Manager) catalogue.Catalogue {
	t.Helper()
	g := NewWithT(t)
	loaded, err := awsconfig.Load(t.Context(), awsconfig.Options{Attempts: 1, LoadOptions: c.loadOptions})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(loaded.Close)
	types, err := catalogue.New(catalogue.Options{AWS: loaded, Timings: c.timings})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mgr.Add(types)).To(Succeed())
	return types
}

// describes counts EC2's answers in a region: all, or those with a code.
func (c *cloud) describes(region string, codes ...string) int {
	return c.Count(aws.Match{Service: "ec2", Action: "DescribeInstanceTypes", Region: region}, codes...)
}

// assumable is a role that the process may assume.
var assumable = sts.Role{ARN: "arn:aws:iam::222222222222:role/capa"}

// member is a role that only assumable may assume.
var member = sts.Role{ARN: "arn:aws:iam::222222222222:role/member", TrustedCaller: "arn:aws:sts::222222222222:assumed-role/capa/capstan"}
