package decision

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// QuestionOf returns the question whether a Promotion into environment i of a Pipeline
// is due; i is at least 1. targets holds the targets of each environment, in the order
// of the spec. promotions are those of exactly this Pipeline, into any environment.
//
// The reconciler passes the targets that it observes now, an explanation passes those of
// the status (TargetsOf). All else is read from the Pipeline here, so both decide by the
// same rules.
func QuestionOf(p *pipelinesv1.Pipeline, targets [][]Target, promotions []capstanv1.Promotion, i int) Question {
	return Question{
		Suspended: p.Spec.Suspend,
		First:     environmentOf(p, targets, promotions, 0),
		Source:    environmentOf(p, targets, promotions, i-1),
		Into:      environmentOf(p, targets, promotions, i),
	}
}

func environmentOf(p *pipelinesv1.Pipeline, targets [][]Target, promotions []capstanv1.Promotion, i int) Environment {
	env := &p.Spec.Environments[i]
	e := Environment{Name: env.Name, Targets: targets[i]}
	if promotion := p.PromotionFor(env); promotion != nil {
		e.Intent = &Intent{App: p.Spec.AppRef, Strategy: promotion.Strategy, Manual: promotion.Manual}
	}
	var mark int64
	if status := p.Status.Environments[env.Name]; status != nil {
		e.Agreed, mark = status.Agreed, status.LastPromotion
	}
	e.Ledger = LedgerOf(promotions, env.Name, mark)
	return e
}

// TargetsOf returns the targets of an environment as Pipeline.status shows them: one for
// each target of the spec, in its order. status may be nil.
//
// A target is fresh if it was observed, is not stale, and was read without an error. An
// error about a target that was observed and is not stale means that the application does
// not exist. This is a known state, so the target is fresh and runs nothing. A target that
// the status does not show yet is not fresh.
func TargetsOf(env *pipelinesv1.Environment, status *pipelinesv1.EnvironmentStatus) []Target {
	targets := make([]Target, len(env.Targets))
	if status == nil {
		return targets
	}
	for j := range targets[:min(len(targets), len(status.Targets))] {
		s := &status.Targets[j]
		absent := s.ObservedTime != nil && s.Revision == "" && !s.Ready
		targets[j] = Target{Fresh: !s.Stale && (s.Error == "" || absent), Ready: s.Ready, Revision: s.Revision}
	}
	return targets
}

// LedgerOf returns the ledger of one environment. promotions are those of one Pipeline,
// into any environment. mark is the highest number that Pipeline.status keeps for the
// environment; 0 if it keeps none.
func LedgerOf(promotions []capstanv1.Promotion, environment string, mark int64) Ledger {
	var entries []Entry
	for i := range promotions {
		if promotions[i].Spec.Environment == environment {
			entries = append(entries, EntryOf(&promotions[i]))
		}
	}
	return NewLedger(entries, mark)
}

// Outbound returns the promotions of one Pipeline whose source is an environment.
func Outbound(promotions []capstanv1.Promotion, environment string) []Entry {
	var entries []Entry
	for i := range promotions {
		if promotions[i].Spec.Source.Environment == environment {
			entries = append(entries, EntryOf(&promotions[i]))
		}
	}
	return entries
}

// NewestOf returns the promotion with the highest number into an environment, from the
// promotions of one Pipeline; nil if there is none.
func NewestOf(promotions []capstanv1.Promotion, environment string) *capstanv1.Promotion {
	var newest *capstanv1.Promotion
	for i := range promotions {
		p := &promotions[i]
		if p.Spec.Environment == environment && (newest == nil || p.Spec.Number > newest.Spec.Number) {
			newest = p
		}
	}
	return newest
}
