package provision_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/capstan-hub/capstan/hub/instancestate/queue"
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
	"github.com/capstan-hub/capstan/playground/leaks"
)

var sent = time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC)

// The consumer's policy has exactly the actions that a consumer calls, on exactly these
// queues. A real consumer makes all of its calls on the queues of the template, and the test
// compares them with the policy.
func TestConsumerCallsWhatItMay(t *testing.T) {
	defer leaks.VerifyNone(t)
	g := NewWithT(t)
	s := deploy(t, made(t, "hub"), aws.Account, region)
	service := sqs.New(sqs.Options{Seed: 1})
	server, err := aws.Start(aws.Options{Services: []aws.Service{service}})
	g.Expect(err).NotTo(HaveOccurred())
	defer server.Stop()
	config, closeConnections := server.Config(aws.Root(), region)
	defer closeConnections()
	administrator := api.NewFromConfig(config)
	for _, logical := range []string{"DeadLetterQueue", "Queue"} {
		create(t, administrator, s.properties(logical))
	}
	administrators := len(server.Records(aws.Match{}))

	good, err := os.ReadFile(fixtures + "/ec2-spot-interruption-terminate.json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(service.Put(region, "capstan", string(good), string(good), "no JSON")).To(BeNil())
	calls := &recorder{next: config.HTTPClient, seen: map[string]map[string]bool{}}
	config.HTTPClient = calls
	var mu sync.Mutex
	retried := false
	consumer := queue.New(queue.Options{
		Client: api.NewFromConfig(config), QueueName: "capstan", WaitTime: time.Second, VisibilityTimeout: 10 * time.Second, PollersMin: 1, PollersMax: 1,
		Clock: clock.RealClock{}, Log: logr.Discard(),
		Handler: func(_ context.Context, d *queue.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			if retried {
				d.Ack()
				return
			}
			retried = true
			d.Retry()
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		consumer.Run(ctx)
	}()
	may := statements(s.properties("ConsumerPolicy")["PolicyDocument"])
	g.Expect(may).To(HaveLen(2))
	allowed := map[string][]string{}
	for _, statement := range may {
		g.Expect(statement["Effect"]).To(Equal("Allow"))
		arn := statement["Resource"].(string)
		allowed[arn[strings.LastIndexByte(arn, ':')+1:]] = list(statement["Action"])
	}
	g.Expect(allowed).To(HaveLen(2))
	for name, actions := range allowed {
		g.Eventually(func() []string { return calls.of(name) }).WithTimeout(20*time.Second).Should(ConsistOf(actions), name)
	}
	// What cannot be read is dead after the 20 receives of the template.
	g.Eventually(func() []string { return service.Bodies(region, "capstan-dead") }).WithTimeout(20 * time.Second).Should(Equal([]string{"no JSON"}))
	stop()
	<-done
	for name, actions := range allowed {
		g.Expect(calls.of(name)).To(ConsistOf(actions), "nor when it stops")
	}
	for _, r := range server.Records(aws.Match{})[administrators:] {
		g.Expect(allowed["capstan"]).To(ContainElement(right(r.Action)), "what the service saw")
		g.Expect(r.Code).To(BeEmpty())
	}
}

// create a queue as CloudFormation does.
func create(t *testing.T, client *api.Client, properties map[string]any) {
	t.Helper()
	g := NewWithT(t)
	attributes := map[string]string{}
	for name, value := range properties {
		switch value := value.(type) {
		case int:
			attributes[name] = strconv.Itoa(value)
		case bool:
			attributes[name] = strconv.FormatBool(value)
		case map[string]any:
			raw, err := json.Marshal(value)
			g.Expect(err).NotTo(HaveOccurred())
			attributes[name] = string(raw)
		}
	}
	_, err := client.CreateQueue(t.Context(), &api.CreateQueueInput{QueueName: sdk.String(properties["QueueName"].(string)), Attributes: attributes})
	g.Expect(err).NotTo(HaveOccurred())
}

// right returns the permission of an operation: for a batch, that of its single action.
func right(operation string) string { return "sqs:" + strings.TrimSuffix(operation, "Batch") }

// recorder records the permissions that are used on each queue.
type recorder struct {
	next sdk.HTTPClient

	mu   sync.Mutex
	seen map[string]map[string]bool
}

// Do implements sdk.HTTPClient.
func (r *recorder) Do(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	var of struct{ QueueURL, QueueName string }
	if err := json.Unmarshal(body, &of); err != nil {
		return nil, err
	}
	name := of.QueueName
	if name == "" {
		name = of.QueueURL[strings.LastIndexByte(of.QueueURL, '/')+1:]
	}
	_, operation, _ := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	r.mu.Lock()
	if r.seen[name] == nil {
		r.seen[name] = map[string]bool{}
	}
	r.seen[name][right(operation)] = true
	r.mu.Unlock()
	return r.next.Do(request)
}

func (r *recorder) of(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rights []string
	for one := range r.seen[name] {
		rights = append(rights, one)
	}
	return rights
}
