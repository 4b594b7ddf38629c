package message

import (
	"encoding/json"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
)

const (
	detailLaunchHook    = "EC2 Instance-launch Lifecycle Action"
	detailTerminateHook = "EC2 Instance-terminate Lifecycle Action"

	launchTransition    = "autoscaling:EC2_INSTANCE_LAUNCHING"
	terminateTransition = "autoscaling:EC2_INSTANCE_TERMINATING"
	testNotification    = "autoscaling:TEST_NOTIFICATION"
)

// groupDetail has the fields of the details of aws.autoscaling, and of the notifications
// that a group sends directly.
type groupDetail struct {
	Event         string `json:"Event"`
	Transition    string `json:"LifecycleTransition"`
	Group         string `json:"AutoScalingGroupName"`
	GroupARN      string `json:"AutoScalingGroupARN"`
	InstanceID    string `json:"EC2InstanceId"`
	Hook          string `json:"LifecycleHookName"`
	Token         string `json:"LifecycleActionToken"`
	Destination   string `json:"Destination"`
	StatusMessage string `json:"StatusMessage"`
	AccountID     string `json:"AccountId"`
	RequestID     string `json:"RequestId"`
	Time          string `json:"Time"`
}

func (g groupDetail) test() bool {
	return g.Event == testNotification || g.Transition == testNotification
}

func readGroup(e EventBridgeEvent) (groupDetail, error) {
	var detail groupDetail
	if err := json.Unmarshal(e.Detail, &detail); err != nil {
		return detail, malformed("%s: %w", e.DetailType, err)
	}
	return detail, nil
}

func test() Message {
	m := ignore(GroupTest, "test")
	m.Test = true
	return m
}

// hook decodes an event of a lifecycle hook of a group.
func (d decoder) hook(e EventBridgeEvent) (Message, error) {
	detail, err := readGroup(e)
	if err != nil {
		return Message{}, err
	}
	if detail.test() {
		return test(), nil
	}
	kind, label := GroupLaunchHook, LabelLaunching
	if e.DetailType == detailTerminateHook {
		kind, label = GroupTerminateHook, LabelTerminating
		if detail.Destination == "WarmPool" {
			label = LabelWarmPool
		}
	}
	if !instanceID.MatchString(detail.InstanceID) {
		return Message{}, malformed("%s without EC2InstanceId", e.DetailType)
	}
	return d.group(e, detail, kind, label)
}

// activities are the detail-types of finished activities. Their StatusCode is InProgress even
// when they succeeded.
var activities = map[string]string{
	"EC2 Instance Launch Successful":      LabelLaunched,
	"EC2 Instance Launch Unsuccessful":    LabelLaunchFailed,
	"EC2 Instance Terminate Successful":   LabelTerminated,
	"EC2 Instance Terminate Unsuccessful": LabelTerminateFailed,
}

func (d decoder) activity(e EventBridgeEvent) (Message, error) {
	detail, err := readGroup(e)
	if err != nil {
		return Message{}, err
	}
	if detail.test() {
		return test(), nil
	}
	// A launch that failed may have no instance.
	if detail.InstanceID != "" && !instanceID.MatchString(detail.InstanceID) {
		return Message{}, malformed("%s with a wrong EC2InstanceId", e.DetailType)
	}
	return d.group(e, detail, GroupActivity, activities[e.DetailType])
}

func (d decoder) group(e EventBridgeEvent, detail groupDetail, kind Kind, label string) (Message, error) {
	if detail.Group == "" {
		return Message{}, malformed("%s without AutoScalingGroupName", e.DetailType)
	}
	if err := short(detail.Group); err != nil {
		return Message{}, err
	}
	f := d.fact(e, kind, label, groupRanks[label])
	f.InstanceID, f.GroupName = detail.InstanceID, detail.Group
	for _, resource := range e.Resources {
		if named, err := arn.Parse(resource); err == nil && named.Service == "autoscaling" && strings.HasPrefix(named.Resource, "autoScalingGroup:") {
			f.GroupARN = resource
			break
		}
	}
	f.detail("hook", detail.Hook)
	f.detail("statusMessage", detail.StatusMessage)
	return apply(f), nil
}

// notifications: type of a direct notification of a group → detail-type of the same event.
var notifications = map[string]string{
	"autoscaling:EC2_INSTANCE_LAUNCH":          "EC2 Instance Launch Successful",
	"autoscaling:EC2_INSTANCE_LAUNCH_ERROR":    "EC2 Instance Launch Unsuccessful",
	"autoscaling:EC2_INSTANCE_TERMINATE":       "EC2 Instance Terminate Successful",
	"autoscaling:EC2_INSTANCE_TERMINATE_ERROR": "EC2 Instance Terminate Unsuccessful",
	launchTransition:                           detailLaunchHook,
	terminateTransition:                        detailTerminateHook,
}

// direct decodes a direct notification of a group: it converts it to the same event first.
func (d decoder) direct(body []byte) (Message, error) {
	var detail groupDetail
	if err := json.Unmarshal(body, &detail); err != nil {
		return Message{}, malformed("notification of Auto Scaling: %w", err)
	}
	if detail.test() {
		return test(), nil
	}
	transition := detail.Transition
	if transition == "" {
		transition = detail.Event
	}
	detailType, known := notifications[transition]
	if !known {
		return ignore(Ignored, "transition"), nil
	}
	e := EventBridgeEvent{
		ID: detail.RequestID, DetailType: detailType, Source: "aws.autoscaling",
		Account: detail.AccountID, Time: detail.Time, Detail: body,
	}
	if e.ID == "" {
		e.ID = detail.Token
	}
	if e.ID == "" {
		e.ID = digest(body)
	}
	if named, err := arn.Parse(detail.GroupARN); err == nil {
		e.Region, e.Resources = named.Region, []string{detail.GroupARN}
	}
	m, err := d.facts(e)
	m.Event = e
	return m, err
}
