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
	Ignored              Kind = "ignored"
	Malformed            Kind = "malformed"
	maxDetail                 = 256
	noticeBeforeSpotStop      = 2 * time.Minute
)

// Notice says that the kind announces something that has not happened yet; the other
// kinds of instances tell what is.
func (k Kind) Notice() bool {
	return k == SpotInterruption || k == CapacityReservation || k == Rebalance || k == ScheduledChange
}

// Group says that the kind tells of an Auto Scaling group, not of an instance.
func (k Kind) Group() bool {
	return k == GroupLaunchHook || k == GroupTerminateHook || k == GroupActivity
}

// Label words that are not AWS' own state names.
const (
	wordSpot        = "spot-interruption-" // and the action
	WordRebalance   = "rebalance-recommended"
	WordReservation = "capacity-reservation-interruption"
	WordMaintenance = "scheduled-maintenance"
	// WordTerminated is the last word on an instance.
	WordTerminated = "terminated"
	// Words of groups.
	WordLaunching       = "launching"
	WordTerminating     = "terminating"
	WordWarmPool        = "warm-pool"
	WordLaunched        = "launched"
	WordLaunchFailed    = "launch-failed"
	WordTerminateFailed = "terminate-failed"
)

// Ranks order facts of one second, for EC2 tells time to the second: what comes later
// in an instance's life, or is graver, ranks higher.
const (
	rankSpot        = 70
	rankReservation = 70
	rankRebalance   = 30
	rankMaintenance = 40
	// RankTerminated is the highest.
	RankTerminated = 90
)

var stateRanks = map[string]int{
	"pending": 10, "running": 20, "stopping": 50, "stopped": 60, "shutting-down": 80, WordTerminated: RankTerminated,
}

// Ending is whether a word is a state of an instance that stops or has stopped.
func Ending(word string) bool {
	switch word {
	case "stopping", "stopped", "shutting-down", WordTerminated:
		return true
	}
	return false
}

var groupRanks = map[string]int{
	WordLaunching: 12, WordLaunched: 22, WordLaunchFailed: 24,
	WordTerminating: 82, WordWarmPool: 82, WordTerminateFailed: 84, WordTerminated: RankTerminated,
}

// Fact is what a message says of one instance or group.
type Fact struct {
	// ID of the event; the same for every delivery of it, whatever the message.
	ID   string
	Kind Kind
	// Word for the label.
	Word string
	// Rank among facts of the same time.
	Rank int
	// Time of the event. Guessed is set where the event's own is missing or cannot be
	// true, and the time at which SQS got the message is taken.
	Time    time.Time
	Guessed bool
	// Account and Region that the event is of; empty when it does not say.
	Account, Region string
	// InstanceID, such as i-0123456789abcdef0; may be empty with a group.
	InstanceID string
	// GroupARN and GroupName of the Auto Scaling group, if the kind is a group's.
	GroupARN, GroupName string
	// Deadline of a notice: when it will happen. Zero when nothing is said of it.
	Deadline time.Time
	// Details for people: short texts by name.
	Details map[string]string
}

// Urgent facts go before others: a node is about to be taken away.
func (f Fact) Urgent() bool {
	return f.Kind == SpotInterruption || f.Kind == CapacityReservation || f.Word == "shutting-down"
}

var instanceID = regexp.MustCompile(`^i-[0-9a-z]{8,40}$`)

// detail adds a text, if there is one, cut to what an annotation can take.
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
