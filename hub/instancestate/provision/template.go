package provision

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// template of CloudFormation, with the fields that are used.
type template struct {
	Version     string              `yaml:"AWSTemplateFormatVersion"`
	Description string              `yaml:"Description"`
	Resources   map[string]resource `yaml:"Resources"`
	Outputs     map[string]output   `yaml:"Outputs"`
}

type resource struct {
	Type       string   `yaml:"Type"`
	DependsOn  []string `yaml:"DependsOn,omitempty"`
	Properties any      `yaml:"Properties"`
}

type output struct {
	Description string `yaml:"Description"`
	Value       any    `yaml:"Value"`
}

type queue struct {
	QueueName                     string         `yaml:"QueueName"`
	MessageRetentionPeriod        int            `yaml:"MessageRetentionPeriod"`
	ReceiveMessageWaitTimeSeconds int            `yaml:"ReceiveMessageWaitTimeSeconds,omitempty"`
	VisibilityTimeout             int            `yaml:"VisibilityTimeout,omitempty"`
	SqsManagedSseEnabled          bool           `yaml:"SqsManagedSseEnabled"`
	RedrivePolicy                 *redrivePolicy `yaml:"RedrivePolicy,omitempty"`
	RedriveAllowPolicy            *redriveAllow  `yaml:"RedriveAllowPolicy,omitempty"`
}

type redrivePolicy struct {
	DeadLetterTargetArn any `yaml:"deadLetterTargetArn"`
	MaxReceiveCount     int `yaml:"maxReceiveCount"`
}

type redriveAllow struct {
	RedrivePermission string `yaml:"redrivePermission"`
	SourceQueueArns   []any  `yaml:"sourceQueueArns"`
}

type queuePolicy struct {
	Queues         []any    `yaml:"Queues"`
	PolicyDocument document `yaml:"PolicyDocument"`
}

type rule struct {
	Name         any      `yaml:"Name"`
	Description  string   `yaml:"Description"`
	State        string   `yaml:"State"`
	EventPattern pattern  `yaml:"EventPattern"`
	Targets      []target `yaml:"Targets"`
}

// pattern of EventBridge.
type pattern struct {
	Source     []string            `yaml:"source"`
	DetailType []string            `yaml:"detail-type"`
	Detail     map[string][]string `yaml:"detail,omitempty"`
}

// target is a rule's target.
type target struct {
	ID               string     `yaml:"Id"`
	Arn              any        `yaml:"Arn"`
	RoleArn          any        `yaml:"RoleArn,omitempty"`
	DeadLetterConfig deadLetter `yaml:"DeadLetterConfig"`
}

type deadLetter struct {
	Arn any `yaml:"Arn"`
}

type role struct {
	RoleName                 any      `yaml:"RoleName,omitempty"`
	Description              string   `yaml:"Description"`
	AssumeRolePolicyDocument document `yaml:"AssumeRolePolicyDocument"`
	ManagedPolicyArns        []any    `yaml:"ManagedPolicyArns,omitempty"`
	Policies                 []inline `yaml:"Policies,omitempty"`
}

type inline struct {
	PolicyName     string   `yaml:"PolicyName"`
	PolicyDocument document `yaml:"PolicyDocument"`
}

type managedPolicy struct {
	Description    string   `yaml:"Description"`
	PolicyDocument document `yaml:"PolicyDocument"`
	Roles          []string `yaml:"Roles,omitempty"`
}

// document of IAM.
type document struct {
	Version   string      `yaml:"Version"`
	Statement []statement `yaml:"Statement"`
}

type statement struct {
	Sid       string                    `yaml:"Sid"`
	Effect    string                    `yaml:"Effect"`
	Principal any                       `yaml:"Principal,omitempty"`
	Action    []string                  `yaml:"Action"`
	Resource  any                       `yaml:"Resource,omitempty"`
	Condition map[string]map[string]any `yaml:"Condition,omitempty"`
}

func policy(statements ...statement) document {
	return document{Version: "2012-10-17", Statement: statements}
}

const allow, deny = "Allow", "Deny"

// sub makes CloudFormation insert the account, region and partition of the stack into a text.
func sub(text string) any { return map[string]string{"Fn::Sub": text} }

func ref(logical string) any { return map[string]string{"Ref": logical} }

func arnOf(logical string) any {
	return map[string][]string{"Fn::GetAtt": {logical, "Arn"}}
}

// write encodes a template, after lines of comment.
func (t template) write(comment string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(comment)
	encoder := yaml.NewEncoder(&out)
	const indent = 2
	encoder.SetIndent(indent)
	if err := encoder.Encode(t); err != nil {
		return nil, fmt.Errorf("writing a template: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("writing a template: %w", err)
	}
	return out.Bytes(), nil
}
