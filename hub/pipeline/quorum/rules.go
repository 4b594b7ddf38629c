package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/period"
)

// Rules say which targets of an environment may be left out. The zero value requires all of them.
type Rules struct {
	// percent of the targets that count must run a revision; 0 for all of them.
	percent int
	// LostAfter is how long a target cannot be observed until it is lost; 0 for never.
	LostAfter time.Duration
	// maxLost targets may be lost, or that percentage of them.
	maxLost        int
	maxLostPercent bool
	// JoinWithin is how long a new or returned target is left out; 0 for not at all.
	JoinWithin time.Duration
	wrong      error
}

// Defaults and limits of quorums.
const (
	defaultJoinWithin = 30 * time.Minute
	defaultLostAfter  = time.Hour
	leastLostAfter    = time.Minute
	longestQuorum     = 744 * time.Hour
)

// For returns the rules of environment i of a Pipeline.
func For(p *pipelinesv1.Pipeline, i int) Rules {
	env := &p.Spec.Environments[i]
	switch {
	case env.Quorum != nil:
		return parse(env.Quorum, p.Path(i)+".quorum")
	case env.Selects(), env.Stage != nil:
		return Rules{JoinWithin: defaultJoinWithin}
	}
	return Rules{}
}

func parse(spec *pipelinesv1.Quorum, path string) Rules {
	r := Rules{JoinWithin: defaultJoinWithin}
	var errs []error
	invalid := func(field string, err error) { errs = append(errs, fmt.Errorf("%s.%s: %w", path, field, err)) }
	if spec.Ready != "" {
		percent, ok := percentage(spec.Ready)
		if !ok || percent <= 50 || percent > 100 {
			invalid("ready", fmt.Errorf("%q is not a percentage from 51%% to 100%%, such as 95%%: with half of the targets, two revisions could both be run", spec.Ready))
		}
		r.percent = percent
	}
	if spec.JoinWithin != "" {
		var err error
		if r.JoinWithin, err = period.Parse(spec.JoinWithin, 0, longestQuorum); err != nil {
			invalid("joinWithin", err)
		}
	}
	if lost := spec.Lost; lost != nil {
		r.LostAfter = defaultLostAfter
		if lost.After != "" {
			var err error
			if r.LostAfter, err = period.Parse(lost.After, leastLostAfter, longestQuorum); err != nil {
				invalid("lost.after", err)
			}
		}
		switch percent, ok := percentage(lost.Max.StrVal); {
		case lost.Max.Type == intstr.Int && lost.Max.IntVal >= 0:
			r.maxLost = int(lost.Max.IntVal)
		case lost.Max.Type == intstr.String && ok && percent < 50:
			r.maxLost, r.maxLostPercent = percent, true
		default:
			invalid("lost.max", fmt.Errorf("%s is neither a number of targets nor a percentage from 0%% to 49%%", lost.Max.String()))
		}
	}
	if len(errs) > 0 {
		return Rules{wrong: errors.Join(errs...)}
	}
	return r
}

func percentage(text string) (int, bool) {
	digits, is := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	return n, is && err == nil && n >= 0
}

// Err returns what is invalid, with the path of the field and what to do; nil if all is valid.
func (r Rules) Err() error { return r.wrong }

// of returns how many of n targets that count must run a revision.
func (r Rules) of(n int) int {
	if r.percent == 0 {
		return n
	}
	return (n*r.percent + 99) / 100
}

// MayBeLost returns how many of n targets may be lost.
func (r Rules) MayBeLost(n int) int {
	if r.maxLostPercent {
		return n * r.maxLost / 100
	}
	return r.maxLost
}

// Member is what is known about a target of a fleet beside what it shows now.
type Member struct {
	// New is whether it was not in the environment before.
	New bool
	// Standing of the target, and since when it has it.
	Standing pipelinesv1.TargetStanding
	Since    time.Time
}

// Stand returns the standing of a target, and the time until it changes if the target shows nothing else; 0 if it does
// not. joined has the revisions with which a target has joined: the one of the environment, and the one that most targets run
// that count; either may be empty. unobserved is since when the target cannot be observed; it is zero if it can be.
//
// A target that can be observed is never lost. One that was lost and can be observed again joins, as a new one does. One that
// cannot be observed, and may not be lost any more, counts.
func (r Rules) Stand(was Member, t Target, joined []string, unobserved, now time.Time) (Member, time.Duration) {
	if !t.Fresh && r.LostAfter > 0 {
		left := r.LostAfter - now.Sub(unobserved)
		switch {
		case was.Standing == pipelinesv1.TargetLost:
			return was, 0
		case left <= 0:
			return Member{Standing: pipelinesv1.TargetLost, Since: now}, 0
		}
		is, joins := r.join(was, t, joined, now)
		if joins == 0 || left < joins {
			joins = left
		}
		return is, joins
	}
	if was.Standing == pipelinesv1.TargetLost {
		was = Member{New: t.Fresh}
	}
	return r.join(was, t, joined, now)
}

// join returns the standing of a target that is not lost.
func (r Rules) join(was Member, t Target, joined []string, now time.Time) (Member, time.Duration) {
	if was.New || was.Since.After(now) { // In the latter case the clock was set back.
		was = Member{Standing: pipelinesv1.TargetJoining, Since: now}
	}
	switch left := was.Since.Add(r.JoinWithin).Sub(now); {
	case was.Standing == "" || r.JoinWithin == 0 || slices.ContainsFunc(joined, t.Runs):
		return Member{}, 0
	case was.Standing == pipelinesv1.TargetLate:
		return was, 0
	case left <= 0:
		return Member{Standing: pipelinesv1.TargetLate, Since: now}, 0
	default:
		return was, left
	}
}
