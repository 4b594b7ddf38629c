package gate

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/lru"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/check"
	"github.com/capstan-hub/capstan/internal/period"
	"github.com/capstan-hub/capstan/internal/revision"
	"github.com/capstan-hub/capstan/internal/window"
)

const (
	// minSoak is the shortest soak.
	minSoak = time.Second
	// MaxSoak is the longest soak, and the longest time that one tolerates a target that is unready.
	MaxSoak = 744 * time.Hour

	// defaultTolerate is how long a target may be unready without a restart of the soak.
	defaultTolerate = 5 * time.Minute
)

// Soak is a required soak of the source environment.
type Soak struct {
	// For is how long, in whole seconds.
	For time.Duration
	// Tolerate is how long a target may be unready without a restart.
	Tolerate time.Duration
}

// Rules are the gates of one environment. The zero value has none. They are used by one goroutine.
type Rules struct {
	soak *Soak
	// windows and their names and reasons have the same order.
	windows []*window.Window
	named   []named
	// wrong are the errors of the spec, by the type of gate that they make invalid.
	wrongSoak, wrongWindows, wrongChecks, wrongReject error
	rejected                                          revision.Rejected
	checks                                            []check.Check
	// measured are the states of the queries among the checks, if they are known (Measured).
	measured      []capstanv1.CheckStatus
	knowsMeasured bool
	// rollback is whether they are for a rollback (Of).
	rollback bool
	// cluster are the PromotionWindows, if they are known (Within).
	cluster *clusterWindows
	// judged has the last verdicts about windows: a promotion is judged several times at one instant.
	judged *verdicts
}

// verdicts are those of one instant; nil for those that were not asked for.
type verdicts struct {
	at           time.Time
	own, cluster *window.Verdict
	checks       []capstanv1.CheckStatus
}

// of returns the verdicts of an instant.
func (v *verdicts) of(at time.Time) *verdicts {
	if !v.at.Equal(at) {
		*v = verdicts{at: at}
	}
	return v
}

// once judges windows, unless that was done.
func once(known **window.Verdict, at time.Time, windows []*window.Window) window.Verdict {
	if *known == nil {
		v := window.Judge(at, windows)
		*known = &v
	}
	return **known
}

// named is a window as users know it.
type named struct{ name, reason, zone string }

// Soak returns the required soak; nil if there is none, or if it is invalid.
func (r Rules) Soak() *Soak { return r.soak }

// SoakInvalid returns whether a soak is required that is invalid: it is not known how long it is.
func (r Rules) SoakInvalid() bool { return r.wrongSoak != nil }

// Empty returns whether there are no gates.
func (r Rules) Empty() bool {
	return r.soak == nil && len(r.windows) == 0 && len(r.checks) == 0 && r.Errors() == nil && r.cluster.empty()
}

// Errors returns what is invalid, with the path of each field and what to do; nil if all is valid.
func (r Rules) Errors() []error {
	var all []error
	for _, err := range []error{r.wrongReject, r.wrongSoak, r.wrongWindows, r.wrongChecks} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// RejectError returns what is invalid in spec.reject; nil if it is valid. It is one of Errors.
func (r Rules) RejectError() error { return r.wrongReject }

// Parse makes Rules. path is that of the gates in the Pipeline, such as spec.gates, for errors.
func Parse(g *pipelinesv1.Gates, path string) Rules {
	r := Rules{judged: &verdicts{}}
	if g == nil {
		return r
	}
	if g.Soak != nil {
		r.soak, r.wrongSoak = parseSoak(g.Soak, path+".soak")
	}
	r.checks, r.wrongChecks = check.Parse(g.Checks, path+".checks")
	seen := map[string]bool{}
	for i := range g.Windows {
		at := fmt.Sprintf("%s.windows[%d]", path, i)
		w, err := parseWindow(&g.Windows[i].WindowSpec)
		if err == nil && seen[g.Windows[i].Name] {
			err = &window.Error{Field: "name", Problem: "it is used twice; give each window a different name"}
		}
		seen[g.Windows[i].Name] = true
		var wrong *window.Error
		switch {
		case err == nil:
			r.windows = append(r.windows, w)
			r.named = append(r.named, named{g.Windows[i].Name, g.Windows[i].Reason, g.Windows[i].TimeZone})
		case errors.As(err, &wrong):
			r.wrongWindows = errors.Join(r.wrongWindows, fmt.Errorf("%s.%s (window %q): %s", at, wrong.Field, g.Windows[i].Name, wrong.Problem))
		default:
			r.wrongWindows = errors.Join(r.wrongWindows, fmt.Errorf("%s (window %q): %w", at, g.Windows[i].Name, err))
		}
	}
	return r
}

// For returns the rules that apply to promotions into environment i of a Pipeline. The waves of an environment have its
// windows and its checks. The first of them has its soak, too; the others have that of the wave before.
func For(p *pipelinesv1.Pipeline, i int) Rules {
	env := &p.Spec.Environments[i]
	gates, path := p.Spec.Gates, "spec.gates"
	if env.Gates != nil {
		gates, path = env.Gates, p.Path(i)+".gates"
	}
	r := Parse(gates, path)
	if s := env.Stage; s != nil && !s.First {
		r.soak, r.wrongSoak = nil, nil
		if s.Soak != nil {
			r.soak, r.wrongSoak = parseSoak(s.Soak, s.SoakPath)
		}
	}
	var err error
	if r.rejected, err = revision.ParseRejected(p.Spec.Reject); err != nil {
		r.wrongReject = fmt.Errorf("spec.reject%w", err)
	}
	return r
}

// WavesError returns what is invalid in the soaks of an environment's waves; nil if all are valid. path is that of the
// environment.
func WavesError(env *pipelinesv1.Environment, path string) error {
	var all []error
	for i := range env.Waves {
		w := &env.Waves[i]
		switch at := fmt.Sprintf("%s.waves[%d].soak", path, i); {
		case w.Soak == nil:
		case i == len(env.Waves)-1 && w.Batches <= 1:
			all = append(all, fmt.Errorf("%s: no wave or batch is behind wave %q: remove it, or set gates.soak of the environment behind", at, w.Name))
		default:
			_, err := parseSoak(w.Soak, at)
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// Of returns the rules that apply to a promotion. A rollback is not held by what a new revision must prove, and
// not by the windows of the Pipeline: it ends an incident. PromotionWindows decide themselves (Within).
func (r Rules) Of(p *capstanv1.Promotion) Rules {
	if p.Spec.RollbackOf == nil {
		return r
	}
	return Rules{rollback: true, rejected: r.rejected, wrongReject: r.wrongReject, judged: &verdicts{}}
}

// Rejected returns the entry of spec.reject that contains a revision.
func (r Rules) Rejected(revision string) (entry string, is bool) { return r.rejected.Has(revision) }

func parseSoak(s *pipelinesv1.Soak, path string) (*Soak, error) {
	length, err := period.Parse(s.For, minSoak, MaxSoak)
	if err != nil {
		return nil, fmt.Errorf("%s.for: %w", path, err)
	}
	tolerate := defaultTolerate
	if s.Tolerate != "" {
		if tolerate, err = period.Parse(s.Tolerate, 0, MaxSoak); err != nil {
			return nil, fmt.Errorf("%s.tolerate: %w", path, err)
		}
	}
	return &Soak{For: length, Tolerate: tolerate}, nil
}

// parsed are the windows that were parsed last, by their specs. Many Pipelines have the same ones, each is parsed whenever
// it is judged, and a window remembers when it changes.
var parsed = lru.New(maxParsed)

// maxParsed bounds them; each needs about 1 KiB.
const maxParsed = 4096

// parsedWindow is the result of parseWindow.
type parsedWindow struct {
	window *window.Window
	err    error
}

// parseWindow makes a window. Except for texts that are no time or duration, the error is a
// *window.Error.
func parseWindow(s *pipelinesv1.WindowSpec) (*window.Window, error) {
	if known, is := parsed.Get(*s); is {
		if p, is := known.(parsedWindow); is {
			return p.window, p.err
		}
	}
	w, err := newWindow(s)
	parsed.Add(*s, parsedWindow{w, err})
	return w, err
}

func newWindow(s *pipelinesv1.WindowSpec) (*window.Window, error) {
	spec := window.Spec{Type: window.Type(s.Type), Schedule: s.Schedule, TimeZone: s.TimeZone}
	var err error
	if s.Duration != "" {
		if spec.Duration, err = time.ParseDuration(s.Duration); err != nil {
			return nil, &window.Error{Field: "duration", Problem: fmt.Sprintf("%q is not a duration, such as 8h or 90m", s.Duration)}
		}
	}
	for _, limit := range []struct {
		field, text string
		to          *time.Time
	}{{"from", s.From, &spec.From}, {"until", s.Until, &spec.Until}} {
		if limit.text == "" {
			continue
		}
		if *limit.to, err = time.Parse(time.RFC3339, limit.text); err != nil {
			return nil, &window.Error{Field: limit.field, Problem: fmt.Sprintf("%q is not a time of RFC 3339, such as 2026-12-20T00:00:00Z", limit.text)}
		}
	}
	return window.Parse(spec)
}
