package view

import (
	"fmt"
	"time"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// Refusal is why an action cannot be done, with a link for the user.
type Refusal struct {
	// Forbidden is set if the user lacks a right.
	Forbidden bool
	Text      string
	// Link is the page of what replaced the object, with the text LinkText; empty if there is none.
	Link, LinkText string
	// Done is set if it was done or decided before, by this user or another one. At is when; zero if that is not known.
	Done bool
	At   time.Time
}

// shown returns a refusal of an action on a subject with its links; nil for nil.
func shown(r *useraction.Refusal, s *useraction.Subject) *Refusal {
	if r == nil {
		return nil
	}
	shown := &Refusal{Text: r.Text, Done: r.Done, At: r.At}
	switch {
	case r.Newer != nil:
		shown.Link, shown.LinkText = linkTo(r.Newer), fmt.Sprintf("Promotion of %s into %s", r.Newer.Spec.Revision, r.Newer.Spec.Environment)
	case r.Suspended:
		shown.Link, shown.LinkText = ActionPath("pipelines", s.Pipeline.Namespace, s.Pipeline.Name, useraction.Resume), "Resume the Pipeline"
	}
	return shown
}

// ReplacedBy returns the refusal of an action on an outdated page: a newer promotion exists.
func ReplacedBy(n *capstanv1.Promotion) *Refusal { return shown(useraction.ReplacedBy(n), nil) }

// linkTo returns where a promotion is shown: the page that approves it while it waits for that, else
// the page of its Pipeline.
func linkTo(p *capstanv1.Promotion) string {
	if useraction.Approvable(p) {
		return ApprovePath(p.Namespace, p.Name)
	}
	return pipelinePath(p.Namespace, p.Spec.Pipeline.Name) + "#" + entryID(p.Namespace, p.Name)
}
