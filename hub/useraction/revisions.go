package useraction

import (
	"cmp"
	"slices"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
	"github.com/capstan-hub/capstan/internal/revision"
)

// Revision is a revision that can be promoted.
type Revision struct {
	Revision string
	// Runs are the environments that run it.
	Runs []string
}

// Revisions returns the revisions of a Pipeline, at most a number of them, that can be promoted into the environment of a subject:
// those that its environments run, in their order, then those of its promotions, newest first.
func Revisions(promotions []capstanv1.Promotion, s *Subject, most int) []Revision {
	p, i := s.Pipeline, s.Index()
	rejected := decision.Rejects(p, i)
	var all []Revision
	find := func(one string) int {
		return slices.IndexFunc(all, func(o Revision) bool { return revision.Same(o.Revision, one) })
	}
	note := func(one, environment string) {
		j := find(one)
		if j < 0 {
			if one == "" || len(all) >= most || rejected(one) {
				return
			}
			all = append(all, Revision{Revision: one})
			j = len(all) - 1
		}
		if environment != "" && !slices.Contains(all[j].Runs, environment) {
			all[j].Runs = append(all[j].Runs, environment)
		}
	}
	for e := range p.Spec.Environments {
		name := p.Spec.Environments[e].Name
		if status := p.Status.Environments[name]; status != nil {
			for t := range status.Targets {
				note(status.Targets[t].Revision, name)
			}
		}
	}
	of := ofPipeline(promotions, p)
	slices.SortFunc(of, func(a, b capstanv1.Promotion) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for j := range of {
		note(of[j].Spec.Revision, "")
	}
	return all
}

// ResolveRollback returns what a rollback of the environment of a subject promotes, as the hub decides it.
func ResolveRollback(promotions []capstanv1.Promotion, s *Subject) (*decision.Request, error) {
	i := s.Index()
	q := decision.QuestionOf(s.Pipeline, quorum.FleetsOf(s.Pipeline), ofPipeline(promotions, s.Pipeline), i)
	return decision.ResolveRollback(s.Pipeline, q, i)
}

// ofPipeline returns the promotions of a Pipeline, also of former ones of its name, as the hub decides by them.
func ofPipeline(promotions []capstanv1.Promotion, p *pipelinesv1.Pipeline) []capstanv1.Promotion {
	var all []capstanv1.Promotion
	for i := range promotions {
		if q := &promotions[i]; q.Namespace == p.Namespace && q.Spec.Pipeline.Name == p.Name {
			all = append(all, *q)
		}
	}
	return all
}
