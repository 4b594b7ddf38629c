package message

import (
	"encoding/json"
	"regexp"
	"time"
)

// ec2Detail has the fields of the details of aws.ec2.
type ec2Detail struct {
	InstanceID      string `json:"instance-id"`
	State           string `json:"state"`
	Action          string `json:"instance-action"`
	TerminationTime string `json:"instance-termination-time"`
}

func readEC2(e EventBridgeEvent) (ec2Detail, error) {
	var detail ec2Detail
	if err := json.Unmarshal(e.Detail, &detail); err != nil {
		return detail, malformed("%s: %w", e.DetailType, err)
	}
	if !instanceID.MatchString(detail.InstanceID) {
		return detail, malformed("%s without an instance id", e.DetailType)
	}
	return detail, nil
}

func (d decoder) stateChange(e EventBridgeEvent) (Message, error) {
	detail, err := readEC2(e)
	if err != nil {
		return Message{}, err
	}
	if detail.State == "" {
		return Message{}, malformed("%s without state", e.DetailType)
	}
	rank, known := stateRanks[detail.State]
	if !known {
		return ignore(StateChange, "state"), nil
	}
	f := d.fact(e, StateChange, detail.State, rank)
	f.InstanceID = detail.InstanceID
	return apply(f), nil
}

// action of an interruption. EC2 has terminate, stop and hibernate so far.
var action = regexp.MustCompile(`^[a-z]([a-z-]{0,30}[a-z])?$`)

func (d decoder) spot(e EventBridgeEvent) (Message, error) {
	detail, err := readEC2(e)
	if err != nil {
		return Message{}, err
	}
	if !action.MatchString(detail.Action) {
		return Message{}, malformed("%s without instance-action", e.DetailType)
	}
	f := d.fact(e, SpotInterruption, labelSpot+detail.Action, rankSpot)
	f.InstanceID = detail.InstanceID
	if detail.Action != "hibernate" { // Hibernation begins at once.
		f.Deadline = f.Time.Add(noticeBeforeSpotStop)
	}
	return apply(f), nil
}

func (d decoder) rebalance(e EventBridgeEvent) (Message, error) {
	detail, err := readEC2(e)
	if err != nil {
		return Message{}, err
	}
	f := d.fact(e, Rebalance, LabelRebalance, rankRebalance)
	f.InstanceID = detail.InstanceID
	return apply(f), nil
}

func (d decoder) reservation(e EventBridgeEvent) (Message, error) {
	detail, err := readEC2(e)
	if err != nil {
		return Message{}, err
	}
	f := d.fact(e, CapacityReservation, LabelReservation, rankReservation)
	f.InstanceID = detail.InstanceID
	if at, err := time.Parse(time.RFC3339, detail.TerminationTime); err == nil {
		f.Deadline = at.UTC()
	}
	f.detail("action", detail.Action)
	return apply(f), nil
}
