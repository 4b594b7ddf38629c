package schema

import (
	"cmp"
	"net/url"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
)

// SQSQueue is how the configuration of type sqs names its queue: the values of the keys queueUrl, queueName,
// queueOwnerAccountId, region and roleArn.
type SQSQueue struct{ URL, Name, Owner, Region, RoleARN string }

// QueueOf returns the queue of a configuration; text returns the text of a key, empty if it is not set.
func QueueOf(text func(key string) string) SQSQueue {
	return SQSQueue{URL: text("queueUrl"), Name: text("queueName"), Owner: text("queueOwnerAccountId"), Region: text("region"), RoleARN: text("roleArn")}
}

// In returns the region and account of the queue. The region defaults to the hub's own; the account is
// empty when it is not known.
func (q SQSQueue) In(home string) (region, account string) {
	region = home
	if role, err := arn.Parse(q.RoleARN); err == nil {
		account = role.AccountID
	}
	if u, err := url.Parse(q.URL); err == nil && q.URL != "" {
		// sqs.REGION.amazonaws.com, and REGION.queue.amazonaws.com before that.
		if host := strings.Split(u.Hostname(), "."); len(host) > 2 {
			if host[0] == "sqs" {
				region = host[1]
			} else if host[1] == "queue" {
				region = host[0]
			}
		}
		account = cmp.Or(accountIn(q.URL), account)
	}
	return cmp.Or(q.Region, region), cmp.Or(q.Owner, account)
}

// Named returns the name of the queue.
func (q SQSQueue) Named() string {
	if u, err := url.Parse(q.URL); err == nil && q.URL != "" {
		return path.Base(u.Path)
	}
	return q.Name
}

// accountIn returns the account in the URL of a queue; empty when it names none.
func accountIn(queueURL string) string {
	u, err := url.Parse(queueURL)
	if err != nil {
		return ""
	}
	account, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if len(account) != len("111122223333") || strings.Trim(account, "0123456789") != "" {
		return ""
	}
	return account
}
