package events

import (
	"github.com/capstan-hub/capstan/playground/aws"
	"github.com/capstan-hub/capstan/playground/aws/policy"
	"github.com/capstan-hub/capstan/playground/aws/sqs"
)

// Principal is the service principal of EventBridge.
const Principal = "events.amazonaws.com"

// Codes in the attribute ERROR_CODE of a dead letter.
const (
	NoPermissions      = "NO_PERMISSIONS"
	NoResource         = "NO_RESOURCE"
	FailedToAssumeRole = "FAILED_TO_ASSUME_ROLE"
	ErrorFromTarget    = "ERROR_FROM_TARGET"
)

const sendMessage = "sqs:SendMessage"

// failure of a delivery; the zero value is a success.
type failure struct{ code, message string }

// deliver sends an event to a target, or to the target's dead-letter queue.
func (s *Service) deliver(at place, d delivery, body string) {
	failed := s.send(at, d, body)
	dead := failed != failure{} && s.bury(at, d, body, failed)
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats[at]
	stats.Matched++
	switch {
	case failed == failure{}:
		stats.Delivered++
	case dead:
		stats.DeadLettered++
	default:
		stats.Dropped++
	}
	s.stats[at] = stats
}

func (s *Service) send(at place, d delivery, body string) failure {
	id, _ := sqs.ParseARN(d.target.Arn) // PutTargets has checked it.
	attributes, exists := s.queues.Attributes(id)
	if d.target.RoleArn == "" {
		if id.Account != at.account {
			return failure{NoPermissions, "The target " + d.target.Arn + " is in another account and has no RoleArn."}
		}
		switch {
		case !exists:
			return failure{NoResource, "The specified queue does not exist."}
		case !allowsService(attributes, asService(at, d.rule, sendMessage, d.target.Arn)):
			return notAllowed(Principal, d.target.Arn)
		}
		return sent(s.queues.Send(id, sqs.Message{Body: body}))
	}
	if s.roles == nil || s.roles.Trusts(d.target.RoleArn, asService(at, d.rule, "sts:AssumeRole", d.target.RoleArn)) != policy.Allowed {
		return failure{FailedToAssumeRole, "The role " + d.target.RoleArn + " cannot be assumed."}
	}
	r := s.asRole(d.target)
	permitted, allowed := s.roles.Permits(d.target.RoleArn, r), decide(attributes, r)
	switch {
	// SQS does not reveal whether a queue exists to a caller without permission.
	case permitted == policy.Denied || allowed == policy.Denied || permitted != policy.Allowed && (id.Account != at.account || allowed != policy.Allowed):
		return notAllowed(d.target.RoleArn, d.target.Arn)
	case !exists:
		return failure{NoResource, "The specified queue does not exist."}
	case id.Account != at.account && allowed != policy.Allowed:
		return notAllowed(d.target.RoleArn, d.target.Arn)
	}
	return sent(s.queues.Send(id, sqs.Message{Body: body}))
}

// bury sends an event that could not be delivered to the dead-letter queue of its target.
func (s *Service) bury(at place, d delivery, body string, why failure) bool {
	if d.target.DeadLetterConfig == nil {
		return false
	}
	arn := d.target.DeadLetterConfig.Arn
	id, _ := sqs.ParseARN(arn) // PutTargets has checked it.
	attributes, exists := s.queues.Attributes(id)
	if !exists || !allowsService(attributes, asService(at, d.rule, sendMessage, arn)) {
		return false
	}
	return s.queues.Send(id, sqs.Message{Body: body, Attributes: map[string]string{
		"ERROR_CODE": why.code, "ERROR_MESSAGE": why.message, "RULE_ARN": d.rule, "TARGET_ARN": d.target.Arn,
	}}) == nil
}

// asService returns a request that EventBridge makes for a rule.
func asService(at place, rule, action, resource string) policy.Request {
	return policy.Request{
		Principal: policy.Principal{Service: Principal}, Action: action, Resource: resource,
		Context: map[string]string{"aws:SourceArn": rule, "aws:SourceAccount": at.account, "aws:SecureTransport": "true"},
	}
}

// asRole returns the request that EventBridge makes with a target's role.
func (s *Service) asRole(t target) policy.Request {
	account := aws.AccountOf(t.RoleArn)
	r := policy.Request{
		Principal: policy.Principal{ARN: t.RoleArn}, Action: sendMessage, Resource: t.Arn,
		Context: map[string]string{"aws:PrincipalArn": t.RoleArn, "aws:PrincipalAccount": account, "aws:SecureTransport": "true"},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if organization := s.organizations[account]; organization != "" {
		r.Context["aws:PrincipalOrgID"] = organization
	}
	return r
}

// allowsService reports whether a queue allows EventBridge.
func allowsService(attributes map[string]string, r policy.Request) bool {
	// The key policy of this key allows callers of its account only.
	return attributes["KmsMasterKeyId"] != "alias/aws/sqs" && decide(attributes, r) == policy.Allowed
}

// decide returns the decision of a queue's policy.
func decide(attributes map[string]string, r policy.Request) policy.Decision {
	d, err := policy.Parse(attributes["Policy"], policy.Resource)
	if err != nil {
		return policy.Undecided // The queue has no policy: SetQueueAttributes refuses an invalid one.
	}
	return d.Evaluate(r)
}

func notAllowed(who, queue string) failure {
	return failure{NoPermissions, "User: " + who + " is not authorized to perform: " + sendMessage + " on resource: " + queue}
}

func sent(fault *aws.Fault) failure {
	if fault == nil {
		return failure{}
	}
	return failure{ErrorFromTarget, fault.Message}
}
