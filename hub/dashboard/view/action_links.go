package view

import (
	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// ActionPath returns the address of an action: kind is "promotions" or "pipelines", more is a gate or an
// environment.
func ActionPath(kind, namespace, name, action string, more ...string) string {
	return path(append([]string{kind, namespace, name, action}, more...)...)
}

// ActionLink leads to the page of an action.
type ActionLink struct {
	Name, Label, Link string
}

// ActionsOf returns the actions on a promotion that the viewer can do now.
func (f *Facts) ActionsOf(p *capstanv1.Promotion, scope Scope) []ActionLink {
	if p.Status.Phase == capstanv1.PhaseSucceeded || p.Status.Phase == capstanv1.PhaseSuperseded {
		return nil // Most are; those that can be started again are found by the address.
	}
	var links []ActionLink
	for _, a := range useraction.All() {
		if !a.OnPromotion || !scope.may(a).Has(p.Namespace) {
			continue
		}
		if a.Parts == 0 {
			if f.Refuse(a, scope, &useraction.Subject{Promotion: p}) == nil {
				links = append(links, ActionLink{a.Name, a.Label, ActionPath("promotions", p.Namespace, p.Name, a.Name)})
			}
			continue
		}
		for i := range p.Status.Gates {
			gate := p.Status.Gates[i].Name
			if f.Refuse(a, scope, &useraction.Subject{Promotion: p, Gate: gate}) == nil {
				links = append(links, ActionLink{a.Name, a.Label + " " + gate, ActionPath("promotions", p.Namespace, p.Name, a.Name, gate)})
			}
		}
	}
	return links
}

// ActionsOn returns the actions on a whole Pipeline that the viewer can do now: to suspend or to resume it.
func (f *Facts) ActionsOn(p *pipelinesv1.Pipeline, scope Scope) []ActionLink {
	var links []ActionLink
	for _, a := range useraction.All() {
		if !a.OnPromotion && a.Parts == 0 && f.Refuse(a, scope, &useraction.Subject{Pipeline: p}) == nil {
			links = append(links, ActionLink{a.Name, a.Label, ActionPath("pipelines", p.Namespace, p.Name, a.Name)})
		}
	}
	return links
}

// ActionsInto returns the actions on an environment of a Pipeline: to promote a revision into it, and to roll it
// back. Whether there is a revision to do so with is found on their pages.
func ActionsInto(p *pipelinesv1.Pipeline, environment string, scope Scope) []ActionLink {
	s := &useraction.Subject{Pipeline: p, Environment: environment}
	if !scope.Request.Has(p.Namespace) || !scope.Promotions.Has(p.Namespace) || s.Index() < 0 || useraction.RefuseRequest(s) != nil {
		return nil
	}
	return []ActionLink{
		{useraction.Promote, "Promote", ActionPath("pipelines", p.Namespace, p.Name, useraction.Promote, environment)},
		{useraction.Rollback, "Roll back", ActionPath("pipelines", p.Namespace, p.Name, useraction.Rollback, environment)},
	}
}
