package view

import (
	"fmt"
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// may returns the namespaces in which the viewer has the right that an action needs.
func (s Scope) may(a *useraction.Action) Namespaces {
	switch a.Name {
	case useraction.Approve, useraction.Reject:
		return s.Approve
	case useraction.Retry:
		return s.Patch
	case useraction.Override:
		return s.Override
	case useraction.Suspend, useraction.Resume:
		return s.Suspend
	case useraction.Promote, useraction.Rollback:
		return s.Request
	}
	return Namespaces{}
}

// FindAction returns the action that an address names (kind is "promotions" or "pipelines"; parts are
// namespace, name, action and, for some actions, a gate or an environment), and what it is done to;
// false if there is no such action or object, or if the viewer may not see it.
func FindAction(f *Facts, scope Scope, kind string, parts []string) (*useraction.Action, *useraction.Subject, bool) {
	const fixed = 3 // namespace, name, action
	if len(parts) < fixed {
		return nil, nil, false
	}
	namespace, name, onPromotion := parts[0], parts[1], kind == "promotions"
	a := useraction.Find(parts[2])
	if a == nil || a.OnPromotion != onPromotion || a.Parts != len(parts)-fixed {
		return nil, nil, false
	}
	s := &useraction.Subject{}
	if onPromotion {
		if !scope.Promotions.Has(namespace) {
			return nil, nil, false
		}
		j := slices.IndexFunc(f.Promotions, func(p capstanv1.Promotion) bool { return p.Namespace == namespace && p.Name == name })
		if j < 0 {
			return nil, nil, false
		}
		s.Promotion = &f.Promotions[j]
		if scope.Pipelines.Has(namespace) {
			s.Pipeline = f.pipeline(namespace, s.Promotion.Spec.Pipeline.Name)
		}
		if a.Parts > 0 {
			s.Gate = parts[fixed]
		}
		return a, s, true
	}
	if !scope.Pipelines.Has(namespace) {
		return nil, nil, false
	}
	if s.Pipeline = f.pipeline(namespace, name); s.Pipeline == nil {
		return nil, nil, false
	}
	if a.Parts > 0 {
		s.Environment = parts[fixed]
		if s.Index() < 0 {
			return nil, nil, false
		}
	}
	return a, s, true
}

func (f *Facts) pipeline(namespace, name string) *pipelinesv1.Pipeline {
	i := slices.IndexFunc(f.Pipelines, func(p pipelinesv1.Pipeline) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Pipelines[i]
}

// Refuse returns why the viewer cannot do an action to a subject now; nil if the viewer can.
func (f *Facts) Refuse(a *useraction.Action, scope Scope, s *useraction.Subject) *Refusal {
	namespace := s.Namespace()
	if scope.Nameless {
		return &Refusal{Forbidden: true, Text: "This dashboard has no sign-in and only shows the fleet. Use kubectl, or start the hub with --dashboard-auth=token."}
	}
	if !scope.may(a).Has(namespace) {
		return &Refusal{Forbidden: true, Text: fmt.Sprintf("You may not do this: you need the verb %s on %s in namespace %s, for example by the ClusterRole %s.", a.Verb, a.Resource, namespace, a.Role)}
	}
	if (a.Name == useraction.Promote || a.Name == useraction.Rollback) && !scope.Promotions.Has(namespace) { // Its page shows what was promoted.
		return &Refusal{Forbidden: true, Text: fmt.Sprintf("You may not do this: you need permission to %s in namespace %s, too.", NeedPromotions, namespace)}
	}
	if s.Gate == capstanv1.GatePromotionWindows && !scope.OverrideWindows {
		return &Refusal{Forbidden: true, Text: "You may not override PromotionWindows: you need the verb override on promotionwindows.capstan.dev, for example by the ClusterRole capstan-window-admin."}
	}
	return shown(a.Refuse(f.Promotions, s), s)
}

// Check returns why an input cannot be used with an action; empty if it can.
func (f *Facts) Check(a *useraction.Action, s *useraction.Subject, in useraction.Input) string {
	var revisions []useraction.Revision
	if a.Name == useraction.Promote {
		revisions = useraction.Revisions(f.Promotions, s, maxOptions)
	}
	return a.Check(revisions, in)
}
