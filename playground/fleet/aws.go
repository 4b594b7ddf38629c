package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"k8s.io/utils/ptr"

	"github.com/capstan-hub/capstan/hub/awsconfig"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/ec2"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

// region of all clusters.
const region = "eu-west-1"

// cloud is the simulated AWS.
type cloud struct {
	server *aws.Server
	// config leads the hub there, and client EventBridge. queues shows what is in SQS.
	config *awsconfig.Config
	client *sdk.Client
	queues *sqs.Service
}

// startCloud starts EC2 and SQS in this process, and makes the hub call them.
func startCloud(ctx context.Context, down *teardown) (*cloud, error) {
	queues := sqs.New(sqs.Options{})
	server, err := aws.Start(aws.Options{Services: []aws.Service{ec2.New(region), queues}})
	if err != nil {
		return nil, err
	}
	down.add(func() error { server.Stop(); return nil })
	restore, err := replaceEnvironment("AWS_", server.Env())
	down.add(restore)
	if err != nil {
		return nil, err
	}
	config, err := awsconfig.Load(ctx, awsconfig.Options{})
	if err != nil {
		return nil, err
	}
	down.add(func() error { config.Close(); return nil })
	c := &cloud{server: server, config: config, queues: queues, client: sdk.NewFromConfig(config.In(region, awsconfig.Role{}))}
	return c, c.createQueue(ctx)
}

func (c *cloud) queueURL() string { return sqs.URL(c.server, instanceQueue) }

// createQueue for the events of instances.
func (c *cloud) createQueue(ctx context.Context) error {
	if _, err := c.client.CreateQueue(ctx, &sdk.CreateQueueInput{QueueName: ptr.To(instanceQueue)}); err != nil {
		return fmt.Errorf("creating queue %s: %w", instanceQueue, err)
	}
	return nil
}

// publish puts an event of the instance into the queue, as EC2 and EventBridge do.
func (c *cloud) publish(ctx context.Context, detailType string, detail map[string]string) error {
	now := time.Now().UTC()
	detail["instance-id"] = spotInstance
	body, err := json.Marshal(map[string]any{
		"version": "0", "id": fmt.Sprintf("playground-%d", now.UnixNano()), "source": "aws.ec2", "detail-type": detailType,
		"account": aws.Account, "region": region, "time": now.Format(time.RFC3339), "detail": detail,
		"resources": []string{"arn:aws:ec2:" + region + ":" + aws.Account + ":instance/" + spotInstance},
	})
	if err != nil {
		return err
	}
	_, err = c.client.SendMessage(ctx, &sdk.SendMessageInput{
		QueueUrl: ptr.To(c.queueURL()), MessageBody: ptr.To(string(body)),
	})
	if err != nil {
		return fmt.Errorf("sending an event: %w", err)
	}
	return nil
}

// replaceEnvironment replaces all variables with the prefix by the values: one that stayed,
// such as AWS_PROFILE, would lead to a real account. restore undoes it, also after an error.
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
