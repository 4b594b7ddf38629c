package check

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/expression"
	"github.com/capstan-hub/capstan/internal/period"
)

const (
	// defaultInterval is the time between two measurements.
	defaultInterval = time.Minute
	// minQueryInterval is the shortest one of queries: endpoints are shared.
	minQueryInterval = 30 * time.Second
	// minInterval is the shortest one of cel checks, which cost the hub little.
	minInterval = time.Second
	// maxInterval is the longest interval.
	maxInterval = 24 * time.Hour

	defaultPasses   = 1
	defaultFailures = 3
)

// Kinds of checks, for metrics.
const (
	KindCEL        = "cel"
	KindPrometheus = "prometheus"
)

// Check is a check that was parsed.
type Check struct {
	Name string
	// Endpoint and Query of a prometheus check; empty for a cel check.
	Endpoint, Query string
	// Interval between two measurements.
	Interval time.Duration
	// Passes and Failures are how many in sequence decide.
	Passes, Failures int

	text string
	expr *expression.Expression
}

// Parse parses checks. path is that of the list in the Pipeline, for errors. The error joins one for each
// check that is invalid, with the path of its field and what to do.
func Parse(list []pipelinesv1.Check, path string) ([]Check, error) {
	var all []Check
	var wrong []error
	seen := map[string]bool{}
	for i := range list {
		c, field, err := parse(&list[i])
		if err == nil && seen[c.Name] {
			field, err = ".name", errors.New("it is used twice; give each check a different name")
		}
		seen[list[i].Name] = true
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s[%d]%s (check %q): %w", path, i, field, list[i].Name, err))
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(wrong...)
}

// parse returns a check, or the field that is invalid and why.
func parse(spec *pipelinesv1.Check) (c Check, field string, err error) {
	c = Check{Name: spec.Name, Interval: defaultInterval, Passes: defaultPasses, Failures: defaultFailures}
	least := minInterval
	switch {
	case (spec.CEL == nil) == (spec.Prometheus == nil):
		return c, "", errors.New("set exactly one of cel and prometheus")
	case spec.CEL != nil:
		c.text, field = spec.CEL.Expression, ".cel.expression"
		c.expr, err = expression.ForTargets(c.text)
	default:
		least = minQueryInterval
		c.Endpoint, c.Query, c.text, field = spec.Prometheus.Endpoint, spec.Prometheus.Query, spec.Prometheus.Expression, ".prometheus.expression"
		c.expr, err = expression.ForValue(c.text)
	}
	if err != nil {
		return c, field, err
	}
	if spec.Interval != "" {
		if c.Interval, err = period.Parse(spec.Interval, least, maxInterval); err != nil {
			return c, ".interval", err
		}
	}
	if spec.Passes > 0 {
		c.Passes = int(spec.Passes)
	}
	if spec.Failures > 0 {
		c.Failures = int(spec.Failures)
	}
	return c, "", nil
}

// IsQuery returns whether the check is measured at an endpoint.
func (c Check) IsQuery() bool { return c.Endpoint != "" }

// Identity returns a text that differs when the check was edited: what was counted before does not count
// then.
func (c Check) Identity() string {
	return strings.Join([]string{c.Name, c.Endpoint, c.Query, c.text}, "\x00")
}

// Result of one measurement.
type Result struct {
	Verdict capstanv1.CheckVerdict
	// Value that was judged, as text; empty if there is none.
	Value string
	// Message for users.
	Message string
}

// Observe judges a cel check by what the status of a Pipeline shows of the targets.
func (c Check) Observe(o Observed) Result {
	if !o.Fresh {
		return Result{Verdict: capstanv1.CheckNoData, Message: "a target cannot be observed"}
	}
	return c.result(c.expr.EvalTargets(o.Targets))
}

// Judge judges the value of a query.
func (c Check) Judge(value float64) Result {
	r := c.result(c.expr.EvalValue(value))
	r.Value = strconv.FormatFloat(value, 'g', 6, 64)
	if r.Verdict == capstanv1.CheckFail {
		r.Message = fmt.Sprintf("%s, with the value %s", r.Message, r.Value)
	}
	return r
}

func (c Check) result(holds bool, err error) Result {
	switch {
	case err != nil:
		return Result{Verdict: capstanv1.CheckError, Message: err.Error()}
	case holds:
		return Result{Verdict: capstanv1.CheckPass, Message: "it passes"}
	default:
		return Result{Verdict: capstanv1.CheckFail, Message: fmt.Sprintf("%q is false", c.shown())}
	}
}

// maxShown is how much of an expression messages show, in bytes.
const maxShown = 120

func (c Check) shown() string {
	if len(c.text) <= maxShown {
		return c.text
	}
	return strings.ToValidUTF8(c.text[:maxShown], "") + "..."
}

// Observed is what a cel check judges.
type Observed struct {
	// Fresh is whether every target is, or enough of a fleet are.
	Fresh   bool
	Targets expression.Targets
}

// Observe returns what the status of a Pipeline shows of the environment that a promotion is for, and of
// its source.
//
// Of a fleet, these are the targets that the status lists: up to 100 of them, those first that do not run the revision of
// the fleet. Those that are left out or late do not count, nor, if the others are enough, those that cannot be observed.
func Observe(p *pipelinesv1.Pipeline, promotion *capstanv1.Promotion) Observed {
	p = p.Shown()
	o := Observed{Fresh: true, Targets: expression.Targets{
		Revision: promotion.Spec.Revision, Environment: promotion.Spec.Environment, Source: promotion.Spec.Source.Environment,
	}}
	if promotion.Spec.From != nil {
		o.Targets.From = promotion.Spec.From.Revisions
	}
	o.Targets.Targets = o.targets(p, promotion.Spec.Environment, promotion.Spec.Wave)
	o.Targets.SourceTargets = o.targets(p, promotion.Spec.Source.Environment, nil)
	return o
}

func (o *Observed) targets(p *pipelinesv1.Pipeline, environment string, wave *capstanv1.PromotionWave) []expression.Target {
	i := slices.IndexFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == environment })
	status := p.Status.Environments[environment]
	if i < 0 || status == nil || len(status.Targets) < len(p.Spec.Environments[i].Targets) {
		o.Fresh = false
		return nil
	}
	fleet, listed := quorum.FleetOf(p, i), true // listed is whether all that are listed and count can be observed
	all := make([]expression.Target, 0, len(p.Spec.Environments[i].Targets))
	for j := range p.Spec.Environments[i].Targets {
		t := &status.Targets[j]
		if !fleet.Targets[j].Judged(wave) {
			continue
		}
		if !t.Fresh() {
			listed = false
			continue
		}
		one := expression.Target{
			Namespace: p.Spec.Environments[i].Targets[j].Namespace, Revision: t.Revision, Ready: t.Ready, Progressing: t.Progressing, Message: t.Message,
		}
		if ref := t.ClusterAppRef.ClusterRef; ref != nil {
			one.Cluster = ref.Name
		}
		all = append(all, one)
	}
	// If more than are listed run another revision, the status does not say whether the others can be observed.
	judged := fleet.Judged(wave)
	o.Fresh = o.Fresh && (len(fleet.Targets) == 0 || judged.Observed() || listed && judged.Required() <= len(judged.Targets))
	return all
}
