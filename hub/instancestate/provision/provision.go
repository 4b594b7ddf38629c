package provision

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Properties of the queues.
const (
	// retention of the queue, a day: it outlasts an outage of the hub, and what is older
	// is no news.
	retention = 24 * 60 * 60
	// deadRetention is the longest that there is. Dead letters keep the time at which they
	// were first sent, so that it must be longer than retention.
	deadRetention = 14 * 24 * 60 * 60
	// waitTime of a receive that does not say: the longest. The hub's say.
	waitTime = 20
	// visibility as by default in an EventingBackend.
	visibility = 60
	// maxReceiveCount is after how many receives a message is dead. What cannot be read is
	// so within a second or two; what is put off, as while the API server is away, waits
	// longer each time, and is received as often in three hours (queue's lastRetry).
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

// Logical names in the templates.
const (
	logicalQueue       = "Queue"
	logicalQueuePolicy = "QueuePolicy"
	logicalDead        = "DeadLetterQueue"
	logicalDeadPolicy  = "DeadLetterQueuePolicy"
	logicalConsume     = "ConsumerPolicy"
	logicalConsumer    = "ConsumerRole"
	logicalSend        = "EventsRole"
	logicalInstances   = "InstanceRule"
	logicalHealth      = "HealthRule"
)

const (
	templateVersion = "2010-09-09"
	sourceHealth    = "aws.health"
	eventBridge     = "events.amazonaws.com"
	sendMessage     = "sqs:SendMessage"
)

// Hub is the template of the account with the queue, for each region. Errors: of class
// ErrInvalid.
func Hub(o Options) ([]byte, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	t := template{
		Version:     templateVersion,
		Description: "Capstan: the queue of what AWS says of instances in this region, its dead letters, and this account's rules.",
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
			logicalConsume: {Type: "AWS::IAM::ManagedPolicy", Properties: managedPolicy{
				Description:    "What the hub of Capstan needs to read the queue " + o.Name + ".",
				PolicyDocument: consume(), Roles: o.hubRoles(),
			}},
		},
		Outputs: map[string]output{
			"QueueUrl":           {"For queueUrl of the EventingBackend.", ref(logicalQueue)},
			"QueueArn":           {"Where rules of members send to.", arnOf(logicalQueue)},
			"DeadLetterQueueUrl": {"What could not be read, and what this account's rules could not send.", ref(logicalDead)},
			"ConsumerPolicyArn":  {"The rights of a consumer, for the role of the hub.", ref(logicalConsume)},
		},
	}
	if o.AssumedBy != "" {
		t.Resources[logicalConsumer] = resource{Type: "AWS::IAM::Role", Properties: role{
			Description: "Reads the queue " + o.Name + " for the hub of Capstan.", AssumeRolePolicyDocument: o.trust(),
			ManagedPolicyArns: []any{ref(logicalConsume)},
		}}
		t.Outputs["ConsumerRoleArn"] = output{"For roleArn of the EventingBackend.", arnOf(logicalConsumer)}
	}
	o.addRules(t, arnOf(logicalQueue), nil, logicalQueuePolicy, logicalDeadPolicy)
	return t.write("# Deploy this to each region of the account that has the queue.\n")
}

// Member is the template of an account whose events go to the queue of another, for each
// region. Errors: of class ErrInvalid.
func Member(o Options, hub string) ([]byte, error) {
	o, err := o.complete()
	if err == nil && !accounts.MatchString(hub) {
		err = fmt.Errorf("%w: --member-of: %q is no account id of 12 digits", ErrInvalid, hub)
	}
	if err == nil && (len(o.Members) > 0 || o.Organization != "" || o.HubRole != "" || o.AssumedBy != "") {
		err = fmt.Errorf("%w: --member-of: members have no queue; leave out --members, --organization, --hub-role and --assumed-by, which are for the account that has it", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	target := sub(queueARN(hub, o.Name))
	t := template{
		Version:     templateVersion,
		Description: "Capstan: sends what AWS says of this account's instances in this region to the queue of account " + hub + ".",
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
			"DeadLetterQueueUrl": {"What this account's rules could not send.", ref(logicalDead)},
			"EventsRoleArn":      {"What the policy of the queue lets in.", arnOf(logicalSend)},
		},
	}
	o.addRules(t, target, arnOf(logicalSend), logicalDeadPolicy)
	return t.write("# Deploy this to each region of each member; the account " + hub + " has the queue.\n")
}

// addRules of an account and region: one for what is all of interest, and one for
// AWS Health, which is narrowed further, as a pattern narrows all of its sources.
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
	add(logicalInstances, instancesSuffix, "States and interruptions of instances, and what Auto Scaling groups do, for Capstan.",
		pattern{Source: sources, DetailType: others})
	add(logicalHealth, healthSuffix, "Scheduled maintenance of instances, for Capstan.", pattern{
		Source: []string{sourceHealth}, DetailType: types[sourceHealth],
		Detail: map[string][]string{"service": {message.HealthService}, "eventTypeCategory": {message.HealthCategory}},
	})
}
