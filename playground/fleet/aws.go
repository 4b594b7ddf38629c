package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

// region of all clusters.
const region = "eu-west-1"

// startAWS starts an AWS with EC2 and SQS in it, and has the hub call it.
func (f *Fleet) startAWS(ctx context.Context, down *teardown) error {
	f.queues = sqs.New(sqs.Options{})
	server, err := aws.Start(aws.Options{Services: []aws.Service{ec2.New(region), f.queues}})
	if err != nil {
		return err
	}
	f.aws = server
	down.add(func() error { server.Stop(); return nil })
	restore, err := replaceEnvironment("AWS_", server.Env())
	down.add(restore)
	if err != nil {
		return err
	}
	config, err := awsconfig.Load(ctx, awsconfig.Options{})
	if err != nil {
		return err
	}
	down.add(func() error { config.Close(); return nil })
	f.config = config
	return f.createQueue(ctx, config.In(region, awsconfig.Role{}))
}

// replaceEnvironment puts values in place of all variables with the prefix: one that
// stayed, such as AWS_PROFILE, would lead to somebody's account. restore undoes it, also
// after an error.
func replaceEnvironment(prefix string, values map[string]string) (restore func() error, err error) {
	before := map[string]string{}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, prefix) {
			before[name] = value
		}
	}
	restore = func() error { return errors.Join(unset(values), set(before)) }
	return restore, errors.Join(unset(before), set(values))
}

func set(values map[string]string) error {
	var errs []error
	for name, value := range values {
		if err := os.Setenv(name, value); err != nil {
			errs = append(errs, fmt.Errorf("setting %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func unset(values map[string]string) error {
	var errs []error
	for name := range values {
		if err := os.Unsetenv(name); err != nil {
			errs = append(errs, fmt.Errorf("unsetting %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
