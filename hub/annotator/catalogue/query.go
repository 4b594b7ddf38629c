package catalogue

import (
	"context"
	"time"

	"github.com/capstan-hub/capstan/hub/annotator/capacity"
	"github.com/capstan-hub/capstan/hub/awsconfig"
)

// Catalogue returns the capacity of instance types.
type Catalogue interface {
	// Get returns the capacity of an instance type in a region. It returns known data at
	// once. For unknown data it waits for a call to AWS until ctx ends; the call continues
	// after that. An error is an *Error with a class of this package.
	Get(ctx context.Context, q Query) (Answer, error)

	// Notify registers a function that is called with a region when there are new answers: a
	// new or changed type, the first answer after failures, or a failure after a caller got
	// ErrPending. It must be called before the catalogue is started. f must not block.
	Notify(f func(region string))
}

// Query is a query to the catalogue.
type Query struct {
	// Region such as "eu-west-1".
	Region string
	// InstanceType such as "m5.large".
	InstanceType string
	// Role for the call; the process' own identity when zero.
	Role awsconfig.Role
}

// Answer is an answer of the catalogue.
type Answer struct {
	Capacity capacity.Capacity
	// Seen is when EC2 last returned this capacity.
	Seen time.Time
}
