package awsset

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/capstan-hub/capstan/hub/instancestate/provision"
)

// Attributes that are rows of their own.
const (
	attributeEncryption   = "SqsManagedSseEnabled"
	attributeRedrive      = "RedrivePolicy"
	attributeRedriveAllow = "RedriveAllowPolicy"
)

// ownItems are the names of those rows.
var ownItems = map[string]string{attributeEncryption: "encryption", attributeRedrive: "redrive policy", attributeRedriveAllow: "redrive allow policy"}

// queues checks the queues, with their policies.
func (c *checker) queues(ctx context.Context) {
	policies := map[string]any{}
	for _, p := range c.set.Of(provision.TypeQueuePolicy) {
		for _, name := range texts(p.Properties["Queues"]) {
			policies[name] = p.Properties["PolicyDocument"]
		}
	}
	for _, q := range c.set.Of(provision.TypeQueue) {
		c.queue(ctx, q, policies[q.Name])
	}
}

func (c *checker) queue(ctx context.Context, q provision.Resource, policy any) {
	item := "queue " + q.Name
	arn := c.set.ARN(q)
	url, attributes, failed := c.readQueue(ctx, q.Name, arn)
	if failed != nil {
		c.failedRow(item, failed.err, failed.Action, arn)
		return
	}
	c.found[q.Name] = url
	var problems []string
	judged := map[string][]string{}
	for key, want := range q.Properties {
		if key == "QueueName" {
			continue
		}
		problem := attribute(key, want, attributes[key])
		if _, own := ownItems[key]; own {
			judged[key] = append([]string{}, problem...)
		} else {
			problems = append(problems, problem...)
		}
	}
	slices.Sort(problems)
	c.judge(item, problems...)
	for _, key := range []string{attributeEncryption, attributeRedrive, attributeRedriveAllow} {
		if found, is := judged[key]; is {
			c.judge(item+" "+ownItems[key], found...)
		}
	}
	c.judge(item+" policy", differences(policy, attributes[string(types.QueueAttributeNamePolicy)], c.ownSenders)...)
	c.letters(q, attributes)
}

// letters warns of messages in a dead-letter queue. The queue of the hub has others all the time.
func (c *checker) letters(q provision.Resource, attributes map[string]string) {
	n := count(attributes)
	if q.Name == c.options.name() || n == 0 {
		return
	}
	c.add("queue "+q.Name+" messages", Wrong, strconv.Itoa(n)+" dead letters",
		"aws sqs receive-message --region="+c.Region+" --queue-url="+c.found[q.Name]+" --message-attribute-names=All --visibility-timeout=0")
}

// readQueue returns the URL and the attributes of a queue of the target's account.
func (t *Target) readQueue(ctx context.Context, name, arn string) (string, map[string]string, *Failure) {
	url, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(name)})
	if err != nil {
		return "", nil, t.failed(err, "sqs:GetQueueUrl", arn)
	}
	out, err := t.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: url.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		return "", nil, t.failed(err, "sqs:GetQueueAttributes", arn)
	}
	return aws.ToString(url.QueueUrl), out.Attributes, nil
}

// attribute compares an attribute of a queue with a property of the template.
func attribute(key string, want any, got string) []string {
	switch want := want.(type) {
	case map[string]any:
		if got == "" {
			return []string{"there is none"}
		}
		var read map[string]any
		if json.Unmarshal([]byte(got), &read) != nil {
			return []string{"it is no JSON"}
		}
		var problems []string
		for field, value := range want {
			if !reflect.DeepEqual(plain(value), plain(read[field])) {
				problems = append(problems, fmt.Sprintf("%s is %v, not %v", field, plain(read[field]), plain(value)))
			}
		}
		slices.Sort(problems)
		return problems
	case float64:
		if text := strconv.FormatFloat(want, 'f', -1, 64); got != text {
			return []string{fmt.Sprintf("%s is %s, not %s", key, got, text)}
		}
	case bool:
		if got != strconv.FormatBool(want) {
			return []string{fmt.Sprintf("%s is %q, not %t", key, got, want)}
		}
	}
	return nil
}

// plain returns a value of a redrive policy in one form: AWS has numbers as texts, too.
func plain(v any) any {
	if list, is := v.([]any); is {
		return texts(list)
	}
	return fmt.Sprint(v)
}
