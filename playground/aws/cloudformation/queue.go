package cloudformation

import (
	"context"
	"maps"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
)

const (
	queueType      = "AWS::SQS::Queue"
	queueNameKey   = "QueueName"
	maxQueueName   = 80
	policyResource = 128
)

// queueDefaults are the values of attributes that are removed from a template.
var queueDefaults = map[string]string{
	"DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
	"VisibilityTimeout": "30", "RedrivePolicy": "", "RedriveAllowPolicy": "", "SqsManagedSseEnabled": "", "KmsMasterKeyId": "",
}

var queueKind = kind{
	properties: map[string]bool{
		queueNameKey: true, tagsKey: false, "DelaySeconds": false, "MaximumMessageSize": false, "MessageRetentionPeriod": false,
		"ReceiveMessageWaitTimeSeconds": false, "VisibilityTimeout": false, "RedrivePolicy": false, "RedriveAllowPolicy": false,
		"SqsManagedSseEnabled": false, "KmsMasterKeyId": false,
	},
	attributes: []string{"Arn", queueNameKey, "QueueUrl"},
	attribute: func(e environment, physical, name string) string {
		switch name {
		case queueNameKey:
			return queueNameOf(physical)
		case "QueueUrl":
			return physical
		}
		return "arn:aws:sqs:" + e.region + ":" + e.account + ":" + queueNameOf(physical)
	},
	tagged: true,
	create: createQueue, update: updateQueue, read: readQueue,
	remove: func(ctx context.Context, w *worker, physical string, _ map[string]any) error {
		_, err := w.queues.DeleteQueue(ctx, &sqsapi.DeleteQueueInput{QueueUrl: &physical})
		return ignoreMissing(err)
	},
}

// queueNameOf returns the end of a queue's URL.
func queueNameOf(url string) string {
	for i := len(url) - 1; i >= 0; i-- {
		if url[i] == '/' {
			return url[i+1:]
		}
	}
	return url
}

// queueAttributes returns the attributes in the properties of a queue.
func queueAttributes(p map[string]any) map[string]string {
	attributes := map[string]string{}
	for name, value := range p {
		if name != queueNameKey && name != tagsKey {
			attributes[name] = text(value)
		}
	}
	return attributes
}

func createQueue(ctx context.Context, w *worker, logical string, p map[string]any) (string, error) {
	tags, err := tagsOf(p)
	if err != nil {
		return "", err
	}
	name, _ := p[queueNameKey].(string)
	if name == "" {
		name = w.name(logical, maxQueueName)
	}
	_, err = w.queues.GetQueueUrl(ctx, &sqsapi.GetQueueUrlInput{QueueName: &name})
	switch {
	case err == nil:
		return "", alreadyExists(queueType, name)
	case !notFound(err):
		return "", err
	}
	out, err := w.queues.CreateQueue(ctx, &sqsapi.CreateQueueInput{QueueName: &name, Attributes: queueAttributes(p), Tags: tags})
	if err != nil {
		return "", err
	}
	return *out.QueueUrl, nil
}

func updateQueue(ctx context.Context, w *worker, physical string, before, p map[string]any) error {
	attributes := queueAttributes(p)
	for name := range queueAttributes(before) {
		if _, has := attributes[name]; !has {
			attributes[name] = queueDefaults[name]
		}
	}
	if len(attributes) > 0 {
		if _, err := w.queues.SetQueueAttributes(ctx, &sqsapi.SetQueueAttributesInput{QueueUrl: &physical, Attributes: attributes}); err != nil {
			return err
		}
	}
	old, err := tagsOf(before)
	if err != nil {
		return err
	}
	tags, err := tagsOf(p)
	if err != nil || maps.Equal(old, tags) {
		return err
	}
	var removed []string
	for key := range old {
		if _, has := tags[key]; !has {
			removed = append(removed, key)
		}
	}
	if len(removed) > 0 {
		if _, err := w.queues.UntagQueue(ctx, &sqsapi.UntagQueueInput{QueueUrl: &physical, TagKeys: removed}); err != nil {
			return err
		}
	}
	if len(tags) == 0 {
		return nil
	}
	_, err = w.queues.TagQueue(ctx, &sqsapi.TagQueueInput{QueueUrl: &physical, Tags: tags})
	return err
}

// tagsOf returns the property Tags.
func tagsOf(p map[string]any) (map[string]string, error) {
	var in struct{ Tags []tag }
	if err := into(map[string]any{tagsKey: p[tagsKey]}, &in); err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, t := range in.Tags {
		tags[t.Key] = t.Value
	}
	return tags, nil
}

var queuePolicyKind = kind{
	properties: map[string]bool{"Queues": false, documentKey: false},
	create: func(ctx context.Context, w *worker, logical string, p map[string]any) (string, error) {
		changed, err := setQueuePolicy(ctx, w, p, nil)
		if !changed {
			return "", err
		}
		return w.name(logical, policyResource), err
	},
	update: func(ctx context.Context, w *worker, _ string, before, p map[string]any) error {
		_, err := setQueuePolicy(ctx, w, p, before)
		return err
	},
	read: readQueuePolicy,
	remove: func(ctx context.Context, w *worker, _ string, p map[string]any) error {
		_, err := setQueuePolicy(ctx, w, nil, p)
		return err
	},
}

// setQueuePolicy sets the policies of the queues in p, and removes those of the queues that
// are only in before. It reports whether it changed a queue.
func setQueuePolicy(ctx context.Context, w *worker, p, before map[string]any) (changed bool, err error) {
	var old, in struct {
		Queues         []string
		PolicyDocument any
	}
	if err := into(before, &old); err != nil {
		return false, err
	}
	if err := into(p, &in); err != nil {
		return false, err
	}
	set := func(url, policy string) error {
		_, err := w.queues.SetQueueAttributes(ctx, &sqsapi.SetQueueAttributesInput{QueueUrl: sdk.String(url), Attributes: map[string]string{"Policy": policy}})
		return err
	}
	for _, url := range in.Queues {
		if err := set(url, text(in.PolicyDocument)); err != nil {
			return changed, err
		}
		changed = true
	}
	for _, url := range without(old.Queues, in.Queues) {
		if err := ignoreMissing(set(url, "")); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}
