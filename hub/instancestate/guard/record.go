package guard

import (
	"cmp"
	"errors"
	"regexp"
	"time"

	"github.com/capstan-hub/capstan/hub/instancestate/message"
)

// Record is what is remembered of a fact.
type Record struct {
	// Word for the label.
	Word string       `json:"word"`
	Kind message.Kind `json:"kind"`
	Time time.Time    `json:"time"`
	Rank int          `json:"rank"`
	// ID of the event.
	ID string `json:"id"`
	// Instance that a group's event is about.
	Instance string `json:"instance,omitempty"`
}

func recordOf(f message.Fact) Record {
	return Record{Word: f.Word, Kind: f.Kind, Time: f.Time.UTC(), Rank: f.Rank, ID: f.ID}
}

var errWord = errors.New("it has a word that no label takes")

// labelValue that is not empty.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// tellable is whether a label takes the word.
func (r Record) tellable() bool { return labelValue.MatchString(r.Word) }

// age compares records by time and, at the same time, by rank.
func age(a, b Record) int {
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Rank, b.Rank))
}

// order is age, made total: of two different records one always comes first.
func order(a, b Record) int {
	return cmp.Or(age(a, b), cmp.Compare(a.Word, b.Word), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}
