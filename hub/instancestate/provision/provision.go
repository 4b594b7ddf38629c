package provision

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Properties of the queues.
const (
	// retention of the queue in seconds: a day. It is longer than an outage of the hub, and
	// older events are outdated.
	retention = 24 * 60 * 60
	// deadRetention is the maximum of SQS, in seconds. Dead letters keep the time at which
	// they were first sent, so it must be longer than retention.
	deadRetention = 14 * 24 * 60 * 60
	// waitTime in seconds of a receive without a wait time: the maximum. The hub's receives
	// have one.
	waitTime = 20
	// visibility in seconds: the default of an EventingBackend.
	visibility = 60
	// maxReceiveCount is the number of receives after which SQS dead-letters a message. A
	// message that cannot be decoded reaches it within two seconds. A message that is retried,
	// for example while the API server is unreachable, has growing delays and reaches it after
	// three hours (queue's lastRetry).
	maxReceiveCount = 20
)

// Suffixes of names.
const (
	deadSuffix        = "-dead"
	undeliveredSuffix = "-undelivered"
	instancesSuffix   = "-instances"
	healthSuffix      = "-health"
	// roleMiddle is between name and region of a member's role.
	roleMiddle = "-events-"
)

// Logical names in the templates. The exported ones have names that AWS generates.
const (
	logicalQueue          = "Queue"
	logicalQueuePolicy    = "QueuePolicy"
	logicalDead           = "DeadLetterQueue"
	logicalDeadPolicy     = "DeadLetterQueuePolicy"
	LogicalConsumerPolicy = "ConsumerPolicy"
	LogicalConsumerRole   = "ConsumerRole"
	logicalSend           = "EventsRole"
	logicalInstances      = "InstanceRule"
	logicalHealth         = "HealthRule"
)

const (
	templateVersion = "2010-09-09"
	sourceHealth    = "aws.health"
	eventBridge     = "events.amazonaws.com"
	sendMessage     = "sqs:SendMessage"
)

// Hub returns the template of the account with the queue, for each region. Errors: of
// class ErrInvalid.
func Hub(o Options) ([]byte, error) {
	t, err := hub(o)
	if err != nil {
		return nil, err
	}
	return t.write("# Deploy this to each region of the account that has the queue.\n")
}

func hub(o Options) (template, error) {
	o, err := o.complete()
	if err != nil {
		return template{}, err
	}
	t := template{
		Version:     templateVersion,
		Description: "Capstan: the queue for the events of instances in this region, its dead-letter queue, and the rules of this account.",
		Resources: map[string]resource{
			logicalQueue: {Type: "AWS::SQS::Queue", Properties: queue{
				QueueName: o.Name, MessageRetentionPeriod: retention, ReceiveMessageWaitTimeSeconds: waitTime,
				VisibilityTimeout: visibility, SqsManagedSseEnabled: true,
				RedrivePolicy: &redrivePolicy{arnOf(logicalDead), maxReceiveCount},
			}},
			logicalDead: {Type: "AWS::SQS::Queue", Properties: queue{
				QueueName: o.Name + deadSuffix, MessageRetentionPeriod: deadRetention, SqsManagedSseEnabled: true,
				RedriveAllowPolicy: &redriveAllow{"byQueue", []any{sub(queueARN("${AWS::AccountId}", o.Name))}},
			}},
			logicalQueuePolicy: {Type: "AWS::SQS::QueuePolicy", Properties: queuePolicy{
				[]any{ref(logicalQueue)}, policy(append(o.senders(logicalQueue), onlyTLS(logicalQueue))...),
			}},
			logicalDeadPolicy: {Type: "AWS::SQS::QueuePolicy", Properties: queuePolicy{
				[]any{ref(logicalDead)}, policy(o.ownRules(logicalDead), onlyTLS(logicalDead)),
			}},
			LogicalConsumerPolicy: {Type: "AWS::IAM::ManagedPolicy", Properties: managedPolicy{
				// A change of this text makes CloudFormation replace the policy: the ARN would change.
				Description:    "What the hub of Capstan needs to read the queue " + o.Name + ".",
				PolicyDocument: consume(), Roles: o.hubRoles(),
			}},
		},
		Outputs: map[string]output{
			"QueueUrl":           {"For queueUrl of the EventingBackend.", ref(logicalQueue)},
			"QueueArn":           {"The queue that the rules of members send to.", arnOf(logicalQueue)},
			"DeadLetterQueueUrl": {"The queue of messages that could not be decoded, and of events that the rules of this account could not send.", ref(logicalDead)},
			"ConsumerPolicyArn":  {"The permissions of a consumer, for the role of the hub.", ref(LogicalConsumerPolicy)},
		},
	}
	if o.AssumedBy != "" {
		t.Resources[LogicalConsumerRole] = resource{Type: "AWS::IAM::Role", Properties: role{
			Description: "Reads the queue " + o.Name + " for the Capstan hub.", AssumeRolePolicyDocument: o.trust(),
			ManagedPolicyArns: []any{ref(LogicalConsumerPolicy)},
		}}
		t.Outputs["ConsumerRoleArn"] = output{"For roleArn of the EventingBackend.", arnOf(LogicalConsumerRole)}
	}
	o.addRules(t, arnOf(logicalQueue), nil, logicalQueuePolicy, logicalDeadPolicy)
	return t, nil
}

// Member returns the template of an account that sends events to the queue of another
// account, for each region. Errors: of class ErrInvalid.
func Member(o Options, hub string) ([]byte, error) {
	t, err := member(o, hub)
	if err != nil {
		return nil, err
	}
	return t.write("# Deploy this to each region of each member; the account " + hub + " has the queue.\n")
}

func member(o Options, hub string) (template, error) {
	o, err := o.complete()
	if err == nil && !accounts.MatchString(hub) {
		err = fmt.Errorf("%w: --member-of: %q is not an account id of 12 digits", ErrInvalid, hub)
	}
	if err == nil && (len(o.Members) > 0 || o.Organization != "" || o.HubRole != "" || o.AssumedBy != "") {
		err = fmt.Errorf("%w: --member-of: members have no queue; remove --members, --organization, --hub-role and --assumed-by, which are for the account with the queue", ErrInvalid)
	}
	if err != nil {
		return template{}, err
	}
	target := sub(queueARN(hub, o.Name))
	t := template{
		Version:     templateVersion,
		Description: "Capstan: sends the events of this account's instances in this region to the queue of account " + hub + ".",
		Resources: map[string]resource{
			logicalSend: {Type: "AWS::IAM::Role", Properties: role{
				RoleName: sub(o.Name + roleMiddle + "${AWS::Region}"), Description: "EventBridge sends to the queue " + o.Name + " of account " + hub + ".",
				AssumeRolePolicyDocument: policy(statement{
					Sid: "RulesOfThisAccount", Effect: allow, Principal: service(eventBridge), Action: []string{"sts:AssumeRole"}, Condition: o.fromOwnRules(),
				}),
				Policies: []inline{{"send", policy(statement{Sid: "Send", Effect: allow, Action: []string{sendMessage}, Resource: target})}},
			}},
			logicalDead: {Type: "AWS::SQS::Queue", Properties: queue{
				QueueName: o.Name + undeliveredSuffix, MessageRetentionPeriod: deadRetention, SqsManagedSseEnabled: true,
			}},
			logicalDeadPolicy: {Type: "AWS::SQS::QueuePolicy", Properties: queuePolicy{
				[]any{ref(logicalDead)}, policy(o.ownRules(logicalDead), onlyTLS(logicalDead)),
			}},
		},
		Outputs: map[string]output{
			"DeadLetterQueueUrl": {"The queue of events that the rules of this account could not send.", ref(logicalDead)},
			"EventsRoleArn":      {"The role that the policy of the queue allows to send.", arnOf(logicalSend)},
		},
	}
	o.addRules(t, target, arnOf(logicalSend), logicalDeadPolicy)
	return t, nil
}

// addRules adds the rules of an account and region: one for sources whose types are read
// completely, and one for AWS Health, whose events are filtered by detail. A filter applies
// to all sources of a pattern, so it needs its own rule.
func (o Options) addRules(t template, queue, role any, after ...string) {
	types := message.EventTypes()
	sources := slices.DeleteFunc(slices.Sorted(maps.Keys(types)), func(source string) bool { return source == sourceHealth })
	var others []string
	for _, source := range sources {
		others = append(others, types[source]...)
	}
	add := func(logical, suffix, description string, p pattern) {
		t.Resources[logical] = resource{Type: "AWS::Events::Rule", DependsOn: after, Properties: rule{
			Name: o.Name + suffix, Description: description, State: "ENABLED", EventPattern: p,
			Targets: []target{{ID: "capstan", Arn: queue, RoleArn: role, DeadLetterConfig: deadLetter{arnOf(logicalDead)}}},
		}}
	}
	add(logicalInstances, instancesSuffix, "States and interruptions of instances, activities of Auto Scaling groups, and test events, for Capstan.",
		pattern{Source: sources, DetailType: others})
	add(logicalHealth, healthSuffix, "Scheduled maintenance of instances, for Capstan.", pattern{
		Source: []string{sourceHealth}, DetailType: types[sourceHealth],
		Detail: map[string][]string{"service": {message.HealthService}, "eventTypeCategory": {message.HealthCategory}},
	})
}
