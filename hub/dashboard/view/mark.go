package view

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/promotions"
)

// Tone is the severity of a state; lists are sorted by it. It selects icon and colour,
// which appear next to a word with the same meaning.
type Tone int

// Tones, worst first.
const (
	Bad Tone = iota
	// Stale: only an outdated observation is known.
	Stale
	Warning
	// Asking waits for a person.
	Asking
	Busy
	Good
	Idle
)

// String names the tone in style sheets.
func (t Tone) String() string {
	switch t {
	case Bad:
		return "bad"
	case Stale:
		return "stale"
	case Warning:
		return "warning"
	case Asking:
		return "asking"
	case Busy:
		return "busy"
	case Good:
		return "good"
	case Idle:
		return "idle"
	}
	return "idle"
}

// Mark is a state on a page: an icon, by its tone, and a word.
type Mark struct {
	Tone Tone
	Word string
}

func worse(a, b Tone) int { return cmp.Compare(a, b) }

// connectionMark returns the Mark of a standing.
func connectionMark(s standing, now time.Time) Mark {
	if s.Leaderless {
		return Mark{Stale, "Stale"}
	}
	switch s.State {
	case capstanv1.ConnectionReady:
		if s.silent(now) {
			return Mark{Stale, "Stale"}
		}
		return Mark{Good, "Ready"}
	case capstanv1.ConnectionDegraded:
		return Mark{Warning, "Degraded"}
	case capstanv1.ConnectionUnreachable:
		return Mark{Bad, "Unreachable"}
	case capstanv1.ConnectionAuthFailed:
		return Mark{Bad, "Auth failed"}
	case capstanv1.ConnectionConnecting:
		return Mark{Busy, "Connecting"}
	case capstanv1.ConnectionUnused:
		return Mark{Idle, "Unused"}
	case capstanv1.ConnectionRemoved:
		return Mark{Idle, "Removed"}
	}
	return Mark{Stale, "Unknown"}
}

// ConnectionTone returns the tone of a state of a connection, without regard to its age.
func ConnectionTone(state capstanv1.ConnectionState) Tone {
	return connectionMark(standing{Known: true, Observed: Observed{State: state}}, time.Time{}).Tone
}

// stalledWord is the state of the filter for all stalled promotions, and stalledPrefix begins the states of those in a phase.
const stalledWord, stalledPrefix = "Stalled", "Stalled: "

// phaseMark returns the Mark of a promotion.
func phaseMark(phase capstanv1.PromotionPhase, stalled bool) Mark {
	if stalled && !phase.Finished() {
		return Mark{Warning, stalledPrefix + promotions.PhaseWord(phase)}
	}
	switch phase {
	case capstanv1.PhaseAwaitingApproval:
		return Mark{Asking, promotions.PhaseWord(phase)}
	case "", capstanv1.PhaseAwaitingGates, capstanv1.PhasePromoting, capstanv1.PhaseAwaitingMerge, capstanv1.PhaseAwaitingRollout, capstanv1.PhaseVerifying:
		return Mark{Busy, promotions.PhaseWord(phase)}
	case capstanv1.PhaseSucceeded:
		return Mark{Good, promotions.PhaseWord(phase)}
	case capstanv1.PhaseFailed:
		return Mark{Bad, promotions.PhaseWord(phase)}
	case capstanv1.PhaseRejected:
		return Mark{Warning, promotions.PhaseWord(phase)}
	case capstanv1.PhaseSuperseded:
		return Mark{Idle, promotions.PhaseWord(phase)}
	}
	return Mark{Idle, string(phase)}
}

func stalled(p *capstanv1.Promotion) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, capstanv1.StalledCondition)
}

// targetMark returns the Mark of the last observation of a target. A stale target has the
// Mark Stale, also when it was last observed as ready.
func targetMark(seen *pipelinesv1.TargetStatus, stale bool) Mark {
	switch {
	case stale:
		return Mark{Stale, "Stale"}
	case seen == nil:
		return Mark{Idle, "Not observed yet"}
	case seen.Error != "":
		return Mark{Bad, "Error"}
	case seen.Ready:
		return Mark{Good, "Ready"}
	case seen.Revision == "":
		return Mark{Idle, "Runs nothing"}
	}
	return Mark{Warning, "Not ready"}
}

// standingMark returns the Mark of a target of a fleet that is lost, joins or is late.
func standingMark(s pipelinesv1.TargetStanding) Mark {
	switch s {
	case pipelinesv1.TargetLost, pipelinesv1.TargetLate:
		return Mark{Warning, string(s)}
	case pipelinesv1.TargetJoining:
	}
	return Mark{Busy, string(s)}
}

// checkMark returns the Mark of a check. Without a result it neither passes nor fails.
func checkMark(c *capstanv1.CheckStatus) Mark {
	switch c.Verdict {
	case capstanv1.CheckPass:
		if c.Done {
			return Mark{Good, "Passed"}
		}
		return Mark{Busy, "Passes"}
	case capstanv1.CheckFail:
		if c.Done {
			return Mark{Bad, "Failed"}
		}
		return Mark{Warning, "Fails"}
	case capstanv1.CheckNoData:
		return Mark{Warning, "No data"}
	case capstanv1.CheckError:
		return Mark{Warning, "Error"}
	}
	return Mark{Idle, "Not measured yet"}
}

// heldMark is the Mark of an environment that a rollback or a request holds.
var heldMark = Mark{Warning, "Held"}

// Words are the states of the filters, worst first.
var (
	pipelineWords  = []string{"Error", "Failed", "Stalled", "Stale", "Not ready", "Lost", "Late", "Rejected", "Awaiting approval", "Awaiting gates", "Decided", "Promoting", "Awaiting merge", "Awaiting rollout", "Verifying", "Joining", "Ready", "Runs nothing", "Not observed yet", "Nothing runs"}
	promotionWords = []string{"Failed", stalledWord, "Stalled: Decided", "Stalled: Awaiting gates", "Stalled: Awaiting approval", "Stalled: Promoting", "Stalled: Awaiting merge", "Stalled: Awaiting rollout", "Stalled: Verifying", "Rejected", "Awaiting approval", "Awaiting gates", "Decided", "Promoting", "Awaiting merge", "Awaiting rollout", "Verifying", "Succeeded", "Superseded"}
)
