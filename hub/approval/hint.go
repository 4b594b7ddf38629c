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
	"github.com/capstan-hub/capstan/hub/pipeline/quorum"
)

// event has the fields of a Flux event that are used: an application has a revision.
type event struct {
	InvolvedObject struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
	} `json:"involvedObject"`
	Metadata map[string]string `json:"metadata"`
}

// revision of the application in the event.
func (e *event) revision() string { return e.Metadata["revision"] }

// hint triggers a reconcile of a Pipeline, and waits for the promotion of the revision in the
// event. The hub decides whether there is a promotion; the event only selects the one to wait
// for.
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
	if err := executable(p, into); err != nil {
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

// fits returns an error if an event cannot lead to a promotion, with weave's order and texts.
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

// involves returns whether the event is about the Pipeline's application in the source
// environment. Only the group of the API version is compared, as everywhere: the Pipeline may
// have v2beta1 and the event v2.
func involves(p *pipelinesv1.Pipeline, source *pipelinesv1.Environment, e *event) bool {
	of, app := e.InvolvedObject, p.Spec.AppRef
	actual, err := schema.ParseGroupVersion(of.APIVersion)
	expected, wrong := schema.ParseGroupVersion(app.APIVersion)
	return err == nil && wrong == nil && actual.Group == expected.Group && of.Kind == app.Kind && of.Name == app.Name &&
		slices.ContainsFunc(source.Targets, func(t pipelinesv1.Target) bool { return t.Namespace == of.Namespace })
}

// wake triggers a reconcile on the leader: on this replica through its queue, on another one
// through an annotation, which its watch delivers.
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
			return failed(fmt.Errorf("this standby may not annotate Pipeline %s/%s to trigger a reconcile on the leader: apply config/rbac: %w", p.Namespace, p.Name, err))
		}
		return failed(fmt.Errorf("annotating Pipeline %s/%s: %w", p.Namespace, p.Name, err))
	}
	return nil
}

// promoted returns the result of a revision's promotion into an environment so far.
func (s *Server) promoted(ctx context.Context, p *pipelinesv1.Pipeline, into *pipelinesv1.Environment, revision string) (string, bool, error) {
	now := &pipelinesv1.Pipeline{}
	if err := s.Cache.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil || now.UID != p.UID {
		return "", false, nil // The cache has not seen it.
	}
	now = now.Shown()
	status := now.Status.Environments[into.Name]
	if status == nil {
		status = &pipelinesv1.EnvironmentStatus{}
	}
	promotion, err := newest(ctx, s.Cache, p, into.Name, 0)
	if err != nil {
		return "", false, nil // The cache cannot be read yet.
	}
	switch {
	case promotion == nil || !same(revision, promotion.Spec.Revision) || promotion.Status.Phase == capstanv1.PhaseSuperseded:
		return "", runs(now, into, revision), nil
	case promotion.Status.Phase == capstanv1.PhaseAwaitingApproval:
		// The wait ends when status.waitingApproval shows the revision, as in weave: the client
		// that approves reads it there.
		return "", status.WaitingApproval.Revision == promotion.Spec.Revision, nil
	default:
		return outcome(promotion)
	}
}

// runs returns whether every target of an environment, or its quorum, runs a revision: then there is nothing to
// promote.
func runs(p *pipelinesv1.Pipeline, into *pipelinesv1.Environment, revision string) bool {
	i := slices.IndexFunc(p.Spec.Environments, func(e pipelinesv1.Environment) bool { return e.Name == into.Name })
	if i < 0 {
		return false
	}
	read, agrees := quorum.FleetOf(p, i).Agree()
	return agrees && same(revision, read)
}

// same compares the revision in an event with one that the hub read. In an event, the revision
// of an OCI chart has the digest appended.
func same(event, read string) bool {
	return event == read || (read != "" && strings.HasPrefix(event, read+"+"))
}
