package catalogue

import (
	"context"
	"time"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Catalogue says what the instance types of a region offer.
type Catalogue interface {
	// Get returns the capacity of an instance type in a region. What is known is
	// returned at once. What is not is waited for while AWS is asked, as long as ctx
	// lasts; the question goes on when the caller has gone. An error is an *Error,
	// whose sentinels are those of this package.
	Get(ctx context.Context, q Query) (Answer, error)

	// Notify has f called with a region when there are answers there that there were
	// not: a type that is new or has changed, the first answer after failures, or a
	// failure where somebody was told ErrPending. It is to be called before the
	// catalogue is started. f must not block.
	Notify(f func(region string))
}

// Query is a question to the catalogue.
type Query struct {
	// Region such as "eu-west-1".
	Region string
	// InstanceType such as "m5.large".
	InstanceType string
	// Role to ask with; the process' own identity when zero.
	Role awsconfig.Role
}

// Answer of the catalogue.
type Answer struct {
	Capacity capacity.Capacity
	// Seen is when EC2 last said so.
	Seen time.Time
}
