package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/decision"
)

// event is what is read of a Flux event: an application is at a revision.
type event struct {
	InvolvedObject struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
	} `json:"involvedObject"`
	Metadata map[string]string `json:"metadata"`
}

// revision that the event tells of.
func (e *event) revision() string { return e.Metadata["revision"] }

// hint has the hub look at a Pipeline, and waits for the promotion of the revision
// that the event tells of. Whether there is one is the hub's own decision: the event
// only says which one is waited for.
func (s *Server) hint(ctx context.Context, r *http.Request, p *pipelinesv1.Pipeline, target route, body []byte) (string, error) {
	i, source := environment(p, target.environment)
	var into *pipelinesv1.Environment
	if source != nil && i+1 < len(p.Spec.Environments) {
		into = &p.Spec.Environments[i+1]
	}
	if _, err := s.authenticate(ctx, r, p, into, target, body); err != nil {
		return "", err
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return "", &refusal{code: http.StatusBadRequest, reason: reasonBody, body: "the body is not a Flux event in JSON", cause: fmt.Errorf("decoding the body: %w", err)}
	}
	if err := fits(p, source, into, target, &e); err != nil {
		return "", err
	}
	if err := carriedOut(p, into); err != nil {
		return "", err
	}
	if err := s.wake(ctx, p); err != nil {
		return "", err
	}
	if p.Spec.Suspend {
		return "", nil
	}
	return s.await(ctx, func(ctx context.Context) (string, bool, error) { return s.promoted(ctx, p, into, e.revision()) })
}

// fits tells why nothing follows from an event, in weave's order and words.
func fits(p *pipelinesv1.Pipeline, source, into *pipelinesv1.Environment, target route, e *event) error {
	wrong := func(why reason, format string, args ...any) error {
		return refuse(http.StatusUnprocessableEntity, why, format, args...)
	}
	switch {
	case e.revision() == "":
		return wrong(reasonBody, weaveNoRevision)
	case source == nil:
		return noEnvironment(p, target.environment)
	case into == nil:
		return wrong(reasonMismatch, "cannot promote beyond last environment %s", source.Name)
	case len(into.Targets) == 0:
		return wrong(reasonMismatch, "environment %s has no targets", into.Name)
	case !involves(p, source, e):
		return wrong(reasonMismatch, weaveMismatch)
	}
	return nil
}

// involves tells whether the event is of the Pipeline's application in the source
// environment. Of the API version only the group counts, as everywhere: a Pipeline
// written for v2beta1 is told of by v2.
func involves(p *pipelinesv1.Pipeline, source *pipelinesv1.Environment, e *event) bool {
	of, app := e.InvolvedObject, p.Spec.AppRef
	said, err := schema.ParseGroupVersion(of.APIVersion)
	meant, wrong := schema.ParseGroupVersion(app.APIVersion)
	return err == nil && wrong == nil && said.Group == meant.Group && of.Kind == app.Kind && of.Name == app.Name &&
		slices.ContainsFunc(source.Targets, func(t pipelinesv1.Target) bool { return t.Namespace == of.Namespace })
}

// wake the replica that leads: this one through its queue, another by an annotation
// that its watch brings it.
func (s *Server) wake(ctx context.Context, p *pipelinesv1.Pipeline) error {
	if s.Leads() {
		s.Wake(client.ObjectKeyFromObject(p))
		return nil
	}
	before := p.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pipelinesv1.RequestedAtAnnotation] = s.Clock.Now().UTC().Format(time.RFC3339Nano)
	if err := s.Client.Patch(ctx, p, client.MergeFrom(before)); err != nil {
		if apierrors.IsForbidden(err) {
			return failed(fmt.Errorf("this standby may not annotate Pipeline %s/%s for the leader to look: apply config/rbac: %w", p.Namespace, p.Name, err))
		}
		return failed(fmt.Errorf("annotating Pipeline %s/%s: %w", p.Namespace, p.Name, err))
	}
	return nil
}

// promoted tells what has come of a revision's promotion into an environment.
func (s *Server) promoted(ctx context.Context, p *pipelinesv1.Pipeline, into *pipelinesv1.Environment, revision string) (string, bool, error) {
	now := &pipelinesv1.Pipeline{}
	if err := s.Cache.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil || now.UID != p.UID {
		return "", false, nil // The cache has not seen it.
	}
	status := now.Status.Environments[into.Name]
	if status == nil {
		status = &pipelinesv1.EnvironmentStatus{}
	}
	promotion, err := newest(ctx, s.Cache, p, into.Name, 0)
	if err != nil {
		return "", false, nil // Likewise.
	}
	switch {
	case promotion == nil || !same(revision, promotion.Spec.Revision) || promotion.Status.Phase == capstanv1.PhaseSuperseded:
		return "", runs(into, status, revision), nil
	case promotion.Status.Phase == capstanv1.PhaseAwaitingApproval:
		// Whoever approves next finds the revision where weave shows it.
		return "", status.WaitingApproval.Revision == promotion.Spec.Revision, nil
	default:
		return come(promotion)
	}
}

// runs tells whether every target of an environment runs a revision: then there is
// nothing to promote.
func runs(into *pipelinesv1.Environment, status *pipelinesv1.EnvironmentStatus, revision string) bool {
	targets := decision.TargetsOf(into, status)
	return len(targets) > 0 && !slices.ContainsFunc(targets, func(t decision.Target) bool {
		return !t.Fresh || !t.Ready || !same(revision, t.Revision)
	})
}

// same compares a revision that an event tells of with one that the hub read: that
// of an OCI chart has the digest appended in the event.
func same(told, read string) bool {
	return told == read || (read != "" && strings.HasPrefix(told, read+"+"))
}
