package provision

// Actions of a consumer: on the queue, and on its dead-letter queue, whose messages it
// counts. (A batch needs the permission for its single action.)
var (
	queueActions = []string{"sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ReceiveMessage"}
	deadActions  = []string{"sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
)

// consume returns the permissions of a consumer.
func consume() document {
	return policy(
		statement{Sid: "ReadTheQueue", Effect: allow, Action: queueActions, Resource: arnOf(logicalQueue)},
		statement{Sid: "CountDeadLetters", Effect: allow, Action: deadActions, Resource: arnOf(logicalDead)},
	)
}

// trust returns the trust policy of the role that a hub of another account assumes.
func (o Options) trust() document {
	s := statement{Sid: "Hub", Effect: allow, Principal: map[string]string{"AWS": o.AssumedBy}, Action: []string{"sts:AssumeRole"}}
	if o.ExternalID != "" {
		s.Condition = map[string]map[string]any{"StringEquals": {"sts:ExternalId": o.ExternalID}}
	}
	return policy(s)
}

func (o Options) hubRoles() []string {
	if o.HubRole == "" {
		return nil
	}
	return []string{o.HubRole}
}

// senders returns the statements for senders to the queue: the rules of its account, and
// the roles of the rules of members.
func (o Options) senders(logical string) []statement {
	all := []statement{o.ownRules(logical)}
	if len(o.Members) == 0 && o.Organization == "" {
		return all
	}
	// The accounts are principals, not their roles: AWS rejects a policy with a role that does
	// not exist yet.
	members := statement{
		Sid: "RulesOfMembers", Effect: allow, Principal: map[string]any{"AWS": "*"}, Action: []string{sendMessage}, Resource: arnOf(logical),
		Condition: map[string]map[string]any{"ArnLike": {
			"aws:PrincipalArn": sub("arn:${AWS::Partition}:iam::*:role/" + o.Name + roleMiddle + "${AWS::Region}"),
		}},
	}
	if o.Organization != "" {
		members.Condition["StringEquals"] = map[string]any{"aws:PrincipalOrgID": o.Organization}
	} else {
		var roots []any
		for _, account := range o.Members {
			roots = append(roots, sub("arn:${AWS::Partition}:iam::"+account+":root"))
		}
		members.Principal = map[string]any{"AWS": roots}
	}
	return append(all, members)
}

// ownRules allows the two rules to send to a queue of their account.
func (o Options) ownRules(logical string) statement {
	return statement{
		Sid: "RulesOfThisAccount", Effect: allow, Principal: service(eventBridge), Action: []string{sendMessage},
		Resource: arnOf(logical), Condition: o.fromOwnRules(),
	}
}

// fromOwnRules returns the condition that EventBridge acts for one of the two rules.
func (o Options) fromOwnRules() map[string]map[string]any {
	const arn = "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:rule/"
	return map[string]map[string]any{
		"StringEquals": {"aws:SourceAccount": ref("AWS::AccountId")},
		"ArnEquals":    {"aws:SourceArn": []any{sub(arn + o.Name + instancesSuffix), sub(arn + o.Name + healthSuffix)}},
	}
}

// onlyTLS denies calls of a queue without TLS.
func onlyTLS(logical string) statement {
	return statement{
		Sid: "OnlyByTLS", Effect: deny, Principal: "*", Action: []string{"sqs:*"}, Resource: arnOf(logical),
		Condition: map[string]map[string]any{"Bool": {"aws:SecureTransport": "false"}},
	}
}

func service(name string) any { return map[string]string{"Service": name} }

func queueARN(account, name string) string {
	return "arn:${AWS::Partition}:sqs:${AWS::Region}:" + account + ":" + name
}
