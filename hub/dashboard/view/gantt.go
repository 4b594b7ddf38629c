package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const (
	// maxLanes is how many environments the picture has: those with the newest promotions.
	maxLanes = 24
	// maxSpan is how long the time is that the picture shows: promotions of a few minutes are not visible in a longer one.
	maxSpan = 7 * 24 * time.Hour
	// minuteSpan is the longest time whose end is a full minute. That of a longer one is a full hour, so that the picture
	// of a promotion under way changes rarely.
	minuteSpan = 2 * time.Hour
	// minBar is the narrowest bar, in percent of the width, and letterBar the narrowest that has its letter inside.
	minBar, letterBar = 0.5, 4
)

// SegmentKind is a part of the time of a promotion.
type SegmentKind struct {
	// Name for users, Letter in the picture and Class in the style sheet.
	Name, Letter, Class string
}

// Kinds of segments, in their order. The time of a segment between two times that the status records is one of the others;
// it is Waiting if the status does not record what it waited for.
var (
	kindDetected     = SegmentKind{"detected", "D", "detected"}
	kindWaiting      = SegmentKind{"waiting", "W", "waiting"}
	kindGates        = SegmentKind{"gates", "G", "gates"}
	kindApproval     = SegmentKind{"approval", "A", "approval"}
	kindPullRequest  = SegmentKind{"pull request", "P", "pull"}
	kindNotification = SegmentKind{"notification", "N", "pull"}
	kindRollout      = SegmentKind{"roll-out", "R", "rollout"}
	kindVerification = SegmentKind{"verification", "V", "verification"}
)

// Gantt is a picture of the times of promotions: a lane for each environment, or wave, and a bar for each segment. All positions
// are in percent of the width, as text.
type Gantt struct {
	From, To time.Time
	Lanes    []Lane
	// Left is how many promotions of the page are not in the picture: those that ended earlier, or of other lanes.
	Left int
	// Legend has the kinds that occur.
	Legend []SegmentKind
	// Times is the same as text, the newest first.
	Times []Timing
}

// Lane is an environment, or a wave of one.
type Lane struct {
	Environment string
	Bars        []Bar
}

// Bar is a segment of a promotion.
type Bar struct {
	Kind SegmentKind
	// X and Width in percent. Middle is where the letter is, if Letter is set.
	X, Width, Middle string
	Letter           bool
	// Open is whether it continues.
	Open bool
	// Title says all of it.
	Title string
}

// Timing is a promotion with its segments.
type Timing struct {
	Environment, Revision, Link string
	Mark                        Mark
	Segments                    []Segment
}

// Segment is a part of the time of a promotion; End is zero if it continues.
type Segment struct {
	Kind       SegmentKind
	Start, End time.Time
	// For is how long it was; empty if it continues.
	For string
}

// segmentsOf returns the segments of the present run of a promotion, as far as its status records their times. There is none of
// zero length.
func segmentsOf(p *capstanv1.Promotion) []Segment {
	s := &p.Status
	ends := boundaries(p)
	var all []Segment
	at := p.CreationTimestamp.Time
	until := func(kind SegmentKind, end time.Time) {
		if end.After(at) {
			all = append(all, Segment{Kind: kind, Start: at, End: end, For: lasted(end.Sub(at))})
			at = end
		}
	}
	for _, b := range ends {
		until(b.kind, b.at)
	}
	switch {
	case s.FinishTime != nil && s.Phase.Finished():
		until(lastKind(p), s.FinishTime.Time)
	case !s.Phase.Finished():
		all = append(all, Segment{Kind: phaseKind(p), Start: at})
	}
	return all
}

// boundary is a recorded time, at which a segment of the kind ended.
type boundary struct {
	at   time.Time
	kind SegmentKind
}

// boundaries returns the recorded times of the present run of a promotion, in their order.
func boundaries(p *capstanv1.Promotion) []boundary {
	s := &p.Status
	if s.StartTime == nil {
		return nil
	}
	first := kindDetected
	if s.Retry > 0 { // The times of earlier runs are not recorded any more.
		first = kindWaiting
	}
	all := []boundary{{s.StartTime.Time, first}}
	add := func(at *metav1.Time, kind SegmentKind) {
		if at != nil && at.After(s.StartTime.Time) && (s.FinishTime == nil || !at.After(s.FinishTime.Time)) {
			all = append(all, boundary{at.Time, kind})
		}
	}
	add(s.GatesCloseTime, kindWaiting)
	add(s.GatesOpenTime, kindGates)
	if a := s.Approval; a != nil && a.Retry == s.Retry && !a.ApprovalTime.IsZero() {
		add(&a.ApprovalTime, kindApproval)
	}
	add(s.CarriedOutTime, carryKind(p))
	if s.CarriedOutTime != nil || s.Phase == capstanv1.PhaseVerifying {
		add(s.VerifyTime, kindRollout)
	} else {
		add(s.VerifyTime, kindWaiting) // The environment ran it before it was carried out.
	}
	slices.SortStableFunc(all, func(a, b boundary) int { return a.at.Compare(b.at) })
	return all
}

// carryKind is what carries out a promotion.
func carryKind(p *capstanv1.Promotion) SegmentKind {
	if p.Spec.Strategy.PullRequest != nil {
		return kindPullRequest
	}
	return kindNotification
}

// lastKind is the kind of the last segment of a promotion that ended.
func lastKind(p *capstanv1.Promotion) SegmentKind {
	switch s := &p.Status; {
	case s.VerifyTime != nil:
		return kindVerification
	case s.CarriedOutTime != nil:
		return kindRollout
	}
	return kindWaiting
}

// phaseKind is the kind of the last segment of a promotion under way.
func phaseKind(p *capstanv1.Promotion) SegmentKind {
	switch p.Status.Phase {
	case "":
		return kindDetected
	case capstanv1.PhaseAwaitingGates:
		return kindGates
	case capstanv1.PhaseAwaitingApproval:
		return kindApproval
	case capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge:
		return carryKind(p)
	case capstanv1.PhaseAwaitingRollout:
		return kindRollout
	case capstanv1.PhaseVerifying:
		return kindVerification
	case capstanv1.PhaseSucceeded, capstanv1.PhaseFailed, capstanv1.PhaseRejected, capstanv1.PhaseSuperseded:
	}
	return kindWaiting
}

// ganttOf returns the picture of the newest promotions of a Pipeline; of is in the order of newestFirst.
func ganttOf(p *pipelinesv1.Pipeline, of []*capstanv1.Promotion, now time.Time) Gantt {
	var all []Timing
	for _, one := range of[:min(len(of), maxAttempts)] {
		if segments := segmentsOf(one); len(segments) > 0 {
			all = append(all, Timing{
				Environment: one.Spec.Environment, Revision: one.Spec.Revision, Link: "#" + entryID(one.Namespace, one.Name),
				Mark: phaseMark(one.Status.Phase, stalled(one)), Segments: segments,
			})
		}
	}
	if len(all) == 0 {
		return Gantt{}
	}
	g := axisOf(all, now)
	lanes := lanesOf(all)
	for _, t := range all {
		lane, ok := lanes[t.Environment]
		if !ok || !t.end().IsZero() && !t.end().After(g.From) {
			g.Left++
			continue
		}
		g.Times = append(g.Times, t)
		for _, s := range t.Segments {
			if bar, ok := g.bar(t, s); ok {
				lane.Bars = append(lane.Bars, bar)
				if !slices.Contains(g.Legend, s.Kind) {
					g.Legend = append(g.Legend, s.Kind)
				}
			}
		}
	}
	for _, name := range laneOrder(p, lanes) {
		if lane := lanes[name]; len(lane.Bars) > 0 {
			g.Lanes = append(g.Lanes, *lane)
		}
	}
	order := []SegmentKind{kindDetected, kindWaiting, kindGates, kindApproval, kindPullRequest, kindNotification, kindRollout, kindVerification}
	slices.SortFunc(g.Legend, func(a, b SegmentKind) int { return cmp.Compare(slices.Index(order, a), slices.Index(order, b)) })
	return g
}

// end is when a promotion ended; zero if it did not.
func (t Timing) end() time.Time { return t.Segments[len(t.Segments)-1].End }

// axisOf returns a Gantt with the time that it shows: from the first of the promotions, but at most maxSpan, to the end of the
// last one, or to now if one is under way. Its end is a full minute or hour.
func axisOf(all []Timing, now time.Time) Gantt {
	first, last := all[0].Segments[0].Start, time.Time{}
	for _, t := range all {
		if start := t.Segments[0].Start; start.Before(first) {
			first = start
		}
		end := t.end()
		if end.IsZero() {
			end = now
		}
		if end.After(last) {
			last = end
		}
	}
	unit := time.Minute
	if last.Sub(first) > minuteSpan {
		unit = time.Hour
	}
	g := Gantt{From: first, To: last.Truncate(unit).Add(unit)}
	if g.To.Sub(g.From) > maxSpan {
		g.From = g.To.Add(-maxSpan)
	}
	return g
}

// lanesOf returns the lanes of the environments with the newest promotions, by their names.
func lanesOf(all []Timing) map[string]*Lane {
	lanes := map[string]*Lane{}
	for _, t := range all {
		if lanes[t.Environment] == nil && len(lanes) < maxLanes {
			lanes[t.Environment] = &Lane{Environment: t.Environment}
		}
	}
	return lanes
}

// laneOrder returns the names of lanes in the order of the environments, then those that the Pipeline does not have any more.
func laneOrder(p *pipelinesv1.Pipeline, lanes map[string]*Lane) []string {
	names := make([]string, 0, len(lanes))
	for name := range lanes {
		names = append(names, name)
	}
	at := func(name string) int {
		if i := p.Find(name); i >= 0 {
			return i
		}
		return len(p.Spec.Environments)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a, b)) })
	return names
}

// bar returns the bar of a segment; false if it is before the time that the picture shows.
func (g Gantt) bar(t Timing, s Segment) (Bar, bool) {
	end := s.End
	if end.IsZero() {
		end = g.To
	}
	if !end.After(g.From) {
		return Bar{}, false
	}
	x, right := g.at(s.Start), g.at(end)
	width := max(right-x, minBar)
	x = min(x, percent-width)
	b := Bar{
		Kind: s.Kind, X: percentage(x), Width: percentage(width), Middle: percentage(x + width/2), //nolint:mnd // The half.
		Letter: width >= letterBar, Open: s.End.IsZero(),
	}
	b.Title = fmt.Sprintf("%s into %s: %s since %s", t.Revision, t.Environment, s.Kind.Name, stamp(s.Start))
	if !s.End.IsZero() {
		b.Title = fmt.Sprintf("%s into %s: %s from %s to %s (%s)", t.Revision, t.Environment, s.Kind.Name, stamp(s.Start), stamp(s.End), s.For)
	}
	return b, true
}

// at returns the place of a time, in percent of the width.
func (g Gantt) at(t time.Time) float64 {
	share := float64(t.Sub(g.From)) / float64(g.To.Sub(g.From)) * percent
	return min(max(share, 0), percent)
}

// percentage writes a length of an SVG.
func percentage(of float64) string { return strconv.FormatFloat(of, 'f', 2, 64) + "%" }

// stamp writes a time for a title.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
