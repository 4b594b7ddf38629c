package sqs

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/capstan-hub/capstan/playground/aws"
)

// ID of a queue.
type ID struct{ Account, Region, Name string }

// home returns the id of a queue of aws.Account.
func home(region, name string) ID { return ID{aws.Account, region, name} }

// ARN returns the ARN of the queue.
func (id ID) ARN() string { return "arn:aws:sqs:" + id.Region + ":" + id.Account + ":" + id.Name }

// URL returns the URL of the queue on a server.
func (id ID) URL(server *aws.Server) string { return server.URL() + "/" + id.Account + "/" + id.Name }

// ParseARN parses the ARN of a queue.
func ParseARN(arn string) (id ID, valid bool) {
	rest, isQueue := strings.CutPrefix(arn, "arn:aws:sqs:")
	parts := strings.Split(rest, ":")
	if !isQueue || len(parts) != 3 {
		return ID{}, false
	}
	return ID{Region: parts[0], Account: parts[1], Name: parts[2]}, true
}

// queuePath is the end of a queue's URL.
var queuePath = regexp.MustCompile(`/([0-9]{12})/([^/]+)$`)

// idOf parses a queue's URL, which ends with account and name. The region is the call's, and
// the account is the caller's if the URL has none.
func idOf(c *aws.Call, queueURL string) ID {
	u, err := url.Parse(queueURL)
	if err != nil {
		return ID{}
	}
	if path := queuePath.FindStringSubmatch(u.Path); path != nil {
		return ID{path[1], c.Region, path[2]}
	}
	return ID{c.Account, c.Region, u.Path[strings.LastIndexByte(u.Path, '/')+1:]}
}

// URL returns the URL of a queue of aws.Account on a server.
func URL(server *aws.Server, name string) string { return ID{aws.Account, "", name}.URL(server) }

// ARN returns the ARN of a queue of aws.Account.
func ARN(region, name string) string { return home(region, name).ARN() }

// ResourceOf implements aws.Resourcer.
func (s *Service) ResourceOf(c *aws.Call) string {
	in, fault := parse(c)
	switch {
	case fault != nil:
		return "*"
	case in.QueueURL != "":
		return idOf(c, in.QueueURL).ARN()
	}
	return ID{c.Account, c.Region, in.QueueName}.ARN()
}
