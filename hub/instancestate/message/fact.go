package message

import (
	"regexp"
	"time"
)

// Kind of a message.
type Kind string

// Kinds.
const (
	StateChange          Kind = "state-change"
	SpotInterruption     Kind = "spot-interruption"
	Rebalance            Kind = "rebalance"
	CapacityReservation  Kind = "capacity-reservation-interruption"
	ScheduledChange      Kind = "health-scheduled-change"
	HealthOther          Kind = "health-ignored"
	GroupLaunchHook      Kind = "asg-launch-lifecycle"
	GroupTerminateHook   Kind = "asg-terminate-lifecycle"
	GroupActivity        Kind = "asg-activity"
	GroupTest            Kind = "asg-test"
	CapstanTest          Kind = "capstan-test"
	Ignored              Kind = "ignored"
	Malformed            Kind = "malformed"
	maxDetail                 = 256
	noticeBeforeSpotStop      = 2 * time.Minute
)

// Title returns the name of the kind for users.
func (k Kind) Title() string {
	switch k {
	case StateChange:
		return "State change"
	case SpotInterruption:
		return "Spot interruption"
	case Rebalance:
		return "Rebalance recommendation"
	case CapacityReservation:
		return "Capacity reservation interruption"
	case ScheduledChange:
		return "Scheduled change"
	case GroupLaunchHook:
		return "Launch lifecycle hook"
	case GroupTerminateHook:
		return "Termination lifecycle hook"
	case GroupActivity:
		return "Scaling activity"
	case HealthOther, GroupTest, CapstanTest, Ignored, Malformed: // They change no label.
	}
	return string(k)
}

// Notice reports whether the kind announces something that has not happened yet. The other
// kinds of instances report the current state.
func (k Kind) Notice() bool {
	return k == SpotInterruption || k == CapacityReservation || k == Rebalance || k == ScheduledChange
}

// Group reports whether the kind is about an Auto Scaling group, not an instance.
func (k Kind) Group() bool {
	return k == GroupLaunchHook || k == GroupTerminateHook || k == GroupActivity
}

// Label values that are not AWS' own state names.
const (
	labelSpot        = "spot-interruption-" // The action follows.
	LabelRebalance   = "rebalance-recommended"
	LabelReservation = "capacity-reservation-interruption"
	LabelMaintenance = "scheduled-maintenance"
	// LabelTerminated is final for an instance.
	LabelTerminated = "terminated"
	// Values of groups.
	LabelLaunching       = "launching"
	LabelTerminating     = "terminating"
	LabelWarmPool        = "warm-pool"
	LabelLaunched        = "launched"
	LabelLaunchFailed    = "launch-failed"
	LabelTerminateFailed = "terminate-failed"
)

// Ranks order facts of the same second, as times of EC2 have a precision of one second.
// A later phase of an instance's lifecycle, or a more severe notice, has a higher rank.
const (
	rankSpot        = 70
	rankReservation = 70
	rankRebalance   = 30
	rankMaintenance = 40
	// The end of a scheduled change comes after its announcement.
	rankMaintenanceEnd = 45
	// RankTerminated is the highest.
	RankTerminated = 90
)

var stateRanks = map[string]int{
	"pending": 10, "running": 20, "stopping": 50, "stopped": 60, "shutting-down": 80, LabelTerminated: RankTerminated,
}

// Ending reports whether a label value is the state of an instance that stops or has stopped.
func Ending(label string) bool {
	switch label {
	case "stopping", "stopped", "shutting-down", LabelTerminated:
		return true
	}
	return false
}

var groupRanks = map[string]int{
	LabelLaunching: 12, LabelLaunched: 22, LabelLaunchFailed: 24,
	LabelTerminating: 82, LabelWarmPool: 82, LabelTerminateFailed: 84, LabelTerminated: RankTerminated,
}

// Fact is the information of a message about one instance or group.
type Fact struct {
	// ID of the event; the same for every delivery of it, also in different messages.
	ID   string
	Kind Kind
	// Label is the value for the label.
	Label string
	// Rank among facts of the same time.
	Rank int
	// Time of the event. Guessed is set when the event's own time is missing or implausible,
	// so that Time is when SQS received the message.
	Time    time.Time
	Guessed bool
	// Account and Region of the event; empty when it has none.
	Account, Region string
	// InstanceID, such as i-0123456789abcdef0; may be empty with a group.
	InstanceID string
	// GroupARN and GroupName of the Auto Scaling group, if the kind is a group's.
	GroupARN, GroupName string
	// Deadline of a notice: when it will happen. Zero when the event has no such time.
	Deadline time.Time
	// Change identifies the scheduled change that the fact is about: the event of AWS Health. Over
	// is set when it has ended; Label is then the value that no longer applies because of it.
	Change string
	Over   bool
	// Details for users: short texts by name.
	Details map[string]string
}

// Urgent reports whether a fact is written before others: AWS is about to terminate a node.
func (f Fact) Urgent() bool {
	return f.Kind == SpotInterruption || f.Kind == CapacityReservation || f.Label == "shutting-down"
}

var instanceID = regexp.MustCompile(`^i-[0-9a-z]{8,40}$`)

// detail adds a text that is not empty, cut at maxDetail characters.
func (f *Fact) detail(name, text string) {
	if text == "" {
		return
	}
	if f.Details == nil {
		f.Details = map[string]string{}
	}
	if runes := []rune(text); len(runes) > maxDetail {
		text = string(runes[:maxDetail])
	}
	f.Details[name] = text
}
