package catalogue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/awsconfig"
)

const (
	// pageSize is the maximum of EC2.
	pageSize = 100
	// mostPages is the maximum length of a listing; AWS has about 1,400 types.
	mostPages = 100
	// mostNames is the maximum number of types in one lookup: an answer of one page.
	mostNames = pageSize
)

// caller calls EC2.
type caller struct {
	config  *awsconfig.Config
	clients *awsconfig.Clients[*ec2.Client]
	timeout time.Duration
	metrics *metrics
}

func newClient(c aws.Config) *ec2.Client { return ec2.NewFromConfig(c) }

// found is the result of a call: complete capacities, and types with missing facts.
type found struct {
	whole  []capacity.Capacity
	halves []*capacity.IncompleteError
}

func (f *found) add(infos []types.InstanceTypeInfo) {
	for _, info := range infos {
		c, err := capacity.FromInstanceTypeInfo(info)
		var half *capacity.IncompleteError
		if errors.As(err, &half) {
			f.halves = append(f.halves, half)
			continue
		}
		f.whole = append(f.whole, c)
	}
}

// do runs a job. The error's Query has no instance type.
func (c *caller) do(ctx context.Context, region string, j job) (found, *Error) {
	operation, input := "list", &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(pageSize)}
	if len(j.demands) > 0 {
		// A filter leaves out unknown types. A list of names with an unknown type fails as a
		// whole.
		names := make([]string, 0, len(j.demands))
		for _, w := range j.demands {
			names = append(names, w.instanceType)
		}
		operation, input.Filters = "lookup", []types.Filter{{Name: aws.String("instance-type"), Values: names}}
	}
	query := Query{Region: region, Role: j.role}
	var f found
	for range mostPages {
		out, failure := c.page(ctx, query, input)
		c.metrics.called(operation, failure)
		if failure != nil {
			return found{}, failure
		}
		f.add(out.InstanceTypes)
		if input.NextToken = out.NextToken; aws.ToString(input.NextToken) != "" {
			continue
		}
		if operation == "list" && len(f.whole) == 0 {
			return found{}, &Error{Class: ErrUnavailable, Query: query, Err: errors.New("the listing contains no instance types")}
		}
		return f, nil
	}
	return found{}, &Error{Class: ErrUnavailable, Query: query, Err: fmt.Errorf("the listing has more than %d pages", mostPages)}
}

// page requests one page.
func (c *caller) page(ctx context.Context, q Query, input *ec2.DescribeInstanceTypesInput) (*ec2.DescribeInstanceTypesOutput, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client := c.clients.In(q.Region, q.Role)
	// The call would fetch the credentials by itself, but its errors would be ambiguous.
	if _, err := client.Options().Credentials.Retrieve(ctx); err != nil {
		return nil, classifyCredentials(err).about(q)
	}
	out, err := client.DescribeInstanceTypes(ctx, input)
	if err == nil {
		return out, nil
	}
	failure := classify(err).about(q)
	// EC2 returns the same error for bad credentials and for good ones in a region that their
	// account has not enabled. A call to STS distinguishes them.
	if failure.Code == codeAuthFailure && errors.Is(failure.Class, ErrCredentials) && c.config.Verify(ctx, q.Role) == nil {
		failure.Class = ErrRegionNotOptedIn
	}
	return nil, failure
}
