package guard

import (
	"cmp"
	"errors"
	"regexp"
	"time"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Annotation is the key of the annotation that holds an Instance or a Group.
const Annotation = "instancestate.capstan.dev/guard"

// Record is the part of a fact that is stored.
type Record struct {
	// Label is the value for the label. The key in the annotation is older than the name.
	Label string       `json:"word"`
	Kind  message.Kind `json:"kind"`
	Time  time.Time    `json:"time"`
	Rank  int          `json:"rank"`
	// ID of the event.
	ID string `json:"id"`
	// Instance is the instance of a group's event.
	Instance string `json:"instance,omitempty"`
	// Due is when the announced change of a notice will happen. It is zero when the event does
	// not say it, and in records of earlier versions. Records of one event differ in nothing
	// else, so that order ignores it.
	Due time.Time `json:"due,omitzero"`
	// Change is the scheduled change that the record is about; empty for other kinds, and in
	// records of earlier versions. Over is set when it has ended.
	Change string `json:"change,omitempty"`
	Over   bool   `json:"over,omitempty"`
}

func recordOf(f message.Fact) Record {
	return Record{Label: f.Label, Kind: f.Kind, Time: f.Time.UTC(), Rank: f.Rank, ID: f.ID, Due: f.Deadline.UTC(), Change: f.Change, Over: f.Over}
}

var errLabel = errors.New("it has a value that is no valid label value")

// labelValue matches label values that are not empty.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// validLabel reports whether Label is a valid label value.
func (r Record) validLabel() bool { return labelValue.MatchString(r.Label) }

// age compares records by time and, at the same time, by rank.
func age(a, b Record) int {
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Rank, b.Rank))
}

// order is age as a total order: two different records are never equal.
func order(a, b Record) int {
	return cmp.Or(age(a, b), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Change, b.Change))
}
