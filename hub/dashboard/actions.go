package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

const (
	// actTries is how often an action is written: the hub writes to the same objects, and each of its
	// writes between a read and a write here is a conflict.
	actTries = 5
	// requestTries is how many earlier requests for the same promotion may have ended without one.
	requestTries = 8
	// requestDigest is how many hex digits of a digest are in the name of a PromotionRequest.
	requestDigest = 16
)

// Results of actions, as values of a metric.
const (
	resultOK      = "ok"
	resultRefused = "refused"
	resultError   = "error"
)

// order is an action that a user has confirmed.
type order struct {
	action  *view.Action
	subject *view.Subject
	input   view.Input
	// by is the user's name.
	by string
}

// writers write the actions with a client of the user, over the versions of the objects that were
// judged: a conflict means that the object must be judged again.
var writers = map[string]func(context.Context, client.Client, order) error{
	view.ActionApprove: func(ctx context.Context, own client.Client, o order) error {
		p := o.subject.Promotion
		return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"approval": capstanv1.Approval{By: o.by, Retry: p.Run(), Comment: o.input.Comment}})
	},
	view.ActionReject: func(ctx context.Context, own client.Client, o order) error {
		p := o.subject.Promotion
		return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"rejection": capstanv1.Rejection{By: o.by, Retry: p.Run(), Comment: o.input.Comment}})
	},
	view.ActionRetry: func(ctx context.Context, own client.Client, o order) error {
		p := o.subject.Promotion
		return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"retry": max(p.Spec.Retry, p.Status.Retry, p.Status.IgnoredRetry) + 1})
	},
	view.ActionOverride: func(ctx context.Context, own client.Client, o order) error {
		p := o.subject.Promotion
		all := append(p.DeepCopy().Spec.Overrides, capstanv1.Override{Gate: o.subject.Gate, By: o.by, Reason: o.input.Comment, Retry: p.Run()})
		return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"overrides": all})
	},
	view.ActionSuspend: func(ctx context.Context, own client.Client, o order) error { return suspend(ctx, own, o, true) },
	view.ActionResume:  func(ctx context.Context, own client.Client, o order) error { return suspend(ctx, own, o, false) },
	view.ActionPromote: func(ctx context.Context, own client.Client, o order) error {
		return request(ctx, own, o, capstanv1.PromotionRequestSpec{Revision: o.input.Revision})
	},
	view.ActionRollback: func(ctx context.Context, own client.Client, o order) error {
		return request(ctx, own, o, capstanv1.PromotionRequestSpec{Rollback: &capstanv1.RollbackRequest{}})
	},
}

func suspend(ctx context.Context, own client.Client, o order, is bool) error {
	return patchSpec(ctx, own, o.subject.Pipeline, &pipelinesv1.Pipeline{}, map[string]any{"suspend": is})
}

// patchSpec merges fields into the spec of an object at the version of o.
func patchSpec(ctx context.Context, own client.Client, o, into client.Object, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()},
		"spec":     spec,
	})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	into.SetNamespace(o.GetNamespace())
	into.SetName(o.GetName())
	return own.Patch(ctx, into, client.RawPatch(types.MergePatchType, patch))
}

// requestedError is returned when another user has requested a promotion into the same environment, and the
// hub has not made it yet.
type requestedError struct{ request *capstanv1.PromotionRequest }

// Error implements error.
func (e requestedError) Error() string {
	return fmt.Sprintf("already requested by %s in PromotionRequest %s", e.request.Spec.By, e.request.Name)
}

// request creates a PromotionRequest. Its name follows from the environment and its newest promotion, so
// that of two users who request something at once the second is refused.
func request(ctx context.Context, own client.Client, o order, spec capstanv1.PromotionRequestSpec) error {
	p := o.subject.Pipeline
	spec.Pipeline, spec.Environment, spec.By, spec.Reason = p.Name, o.subject.Environment, o.by, o.input.Comment
	for try := range requestTries {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", p.UID, o.subject.Environment, o.input.Newest, try))
		r := &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "dashboard-" + hex.EncodeToString(sum[:])[:requestDigest]}, Spec: spec}
		err := own.Create(ctx, r)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		other := &capstanv1.PromotionRequest{}
		if err := own.Get(ctx, client.ObjectKeyFromObject(r), other); err != nil {
			return err
		}
		switch other.Status.Phase {
		case capstanv1.RequestRefused, capstanv1.RequestExpired, capstanv1.RequestSuperseded: // It promotes nothing.
		case "", capstanv1.RequestPromoted:
			return requestedError{other}
		}
	}
	return fmt.Errorf("%d requests for this promotion were refused or have expired: delete the PromotionRequests of the environment", requestTries)
}

// own returns a client with the token of the viewer.
func (s *Server) own(v viewer) (client.Client, error) {
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = v.session.Token
	own, err := client.New(config, client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return own, nil
}

// act returns the handler that carries out the actions on a kind of object with the token of the user.
func (s *Server) act(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := s.viewer(r.Context(), r)
		if err != nil {
			s.unseen(w, r, v, err)
			return
		}
		parts := []string{r.PathValue("namespace"), r.PathValue("name"), r.PathValue("action")}
		if part := r.PathValue("part"); part != "" {
			parts = append(parts, part)
		}
		action, subject, ok := view.FindAction(v.facts, v.scope, kind, parts)
		if !ok {
			s.absent(w, r, v)
			return
		}
		o := order{action: action, subject: subject, by: v.user.Username, input: view.Input{
			Comment: strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(r.PostFormValue("comment"), ""), "\r\n", "\n")), Revision: r.PostFormValue("revision"),
		}}
		if code, refusal := s.judge(r, v, &o); refusal != nil {
			s.refuse(w, r, v, o, code, refusal, nil)
			return
		}
		if refusal, err := s.carryOut(r.Context(), v, &o); refusal != nil || err != nil {
			s.notWritten(w, r, v, o, refusal, err)
			return
		}
		s.metrics.actions.WithLabelValues(action.Name, resultOK).Inc()
		s.Logger.Info("action of a user", append(o.logged(), "client", r.RemoteAddr)...)
		http.Redirect(w, r, subject.Back(v.scope), http.StatusSeeOther)
	}
}

// logged returns the keys and values of an action in the log of the hub.
func (o order) logged() []any {
	all := []any{"action", o.action.Name, "by", o.by}
	if p := o.subject.Promotion; p != nil {
		all = append(all, "promotion", client.ObjectKeyFromObject(p).String(), "environment", p.Spec.Environment, "revision", p.Spec.Revision)
	} else {
		all = append(all, "pipeline", client.ObjectKeyFromObject(o.subject.Pipeline).String())
	}
	if o.subject.Environment != "" {
		all = append(all, "environment", o.subject.Environment)
	}
	if o.subject.Gate != "" {
		all = append(all, "gate", o.subject.Gate)
	}
	if o.input.Revision != "" {
		all = append(all, "requested", o.input.Revision)
	}
	return all
}

// judge returns why a form cannot be carried out, with the status code; nil if it can. It reads the rest of the
// input.
func (s *Server) judge(r *http.Request, v viewer, o *order) (int, *view.Refusal) {
	if !s.sessions.genuine(v.session, r.PostFormValue("csrf")) {
		return http.StatusForbidden, &view.Refusal{Text: "The form belongs to another session: go back, reload the page and try again."}
	}
	if refusal := o.action.Refuse(v.facts, v.scope, o.subject); refusal != nil {
		return refusalCode(refusal), refusal
	}
	newest, err := strconv.ParseInt(r.PostFormValue("newest"), 10, 64)
	if err != nil {
		newest = -1
	}
	o.input.Newest = v.facts.Newest(o.subject)
	if r.PostFormValue("uid") != o.subject.UID() || newest != o.input.Newest {
		return http.StatusConflict, outdated(v.facts, o.subject)
	}
	if text := o.action.Check(v.facts, o.subject, o.input); text != "" {
		return http.StatusUnprocessableEntity, &view.Refusal{Text: text}
	}
	return http.StatusOK, nil
}

// outdated is the refusal of a form of an object that was replaced since.
func outdated(f *view.Facts, s *view.Subject) *view.Refusal {
	if s.Promotion == nil {
		if n := f.NewestPromotion(s); n != nil {
			return view.ReplacedBy(n)
		}
	}
	return &view.Refusal{Text: "The object was deleted and created again since the page was shown. Open the form again and check it."}
}

func refusalCode(r *view.Refusal) int {
	if r.Forbidden {
		return http.StatusForbidden
	}
	return http.StatusConflict
}

// carryOut writes an action. After a conflict it reads the object with the token of the user and judges it
// again, so that nothing of another user is overwritten.
func (s *Server) carryOut(ctx context.Context, v viewer, o *order) (*view.Refusal, error) {
	own, err := s.own(v)
	if err != nil {
		return nil, err
	}
	write := writers[o.action.Name]
	for try := 1; ; try++ {
		err := write(ctx, own, *o)
		if !apierrors.IsConflict(err) || try == actTries {
			return nil, err
		}
		fresh := *o.subject
		if fresh.Promotion != nil {
			fresh.Promotion = &capstanv1.Promotion{}
			err = own.Get(ctx, client.ObjectKeyFromObject(o.subject.Promotion), fresh.Promotion)
		} else {
			fresh.Pipeline = o.subject.Pipeline.DeepCopy()
			err = own.Get(ctx, client.ObjectKeyFromObject(o.subject.Pipeline), fresh.Pipeline)
		}
		if err != nil {
			return nil, err
		}
		if fresh.UID() != o.subject.UID() {
			return outdated(v.facts, o.subject), nil
		}
		if refusal := o.action.Refuse(v.facts, v.scope, &fresh); refusal != nil {
			if refusal.Done && refusal.At.IsZero() {
				refusal.At = lastWrite(&fresh)
			}
			return refusal, nil
		}
		o.subject = &fresh
	}
}

// lastWrite returns when a user last wrote the object of a subject; zero if that is not known. The hub writes the status.
func lastWrite(s *view.Subject) time.Time {
	var o client.Object = s.Pipeline
	if s.Promotion != nil {
		o = s.Promotion
	}
	var last time.Time
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" && m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}

// notWritten answers a request whose action was refused, or failed.
func (s *Server) notWritten(w http.ResponseWriter, r *http.Request, v viewer, o order, refusal *view.Refusal, err error) {
	var requested requestedError
	switch {
	case refusal != nil:
		s.refuse(w, r, v, o, refusalCode(refusal), refusal, nil)
	case errors.As(err, &requested):
		q := requested.request
		what := q.Spec.Revision
		if q.Spec.Rollback != nil {
			what = "a rollback"
		}
		s.refuse(w, r, v, o, http.StatusConflict, &view.Refusal{
			Text: fmt.Sprintf("It was already requested by %s: %s into %s (%s). The hub carries that out first.", q.Spec.By, what, q.Spec.Environment, q.Spec.Reason), At: q.CreationTimestamp.Time,
		}, err)
	case apierrors.IsUnauthorized(err):
		s.unseen(w, r, v, errNotAuthenticated)
	case apierrors.IsForbidden(err):
		s.refuse(w, r, v, o, http.StatusForbidden, &view.Refusal{Text: forbidden(o, err)}, err)
	case apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		text := "The object changed since the page was shown. Open the form again and check it."
		if why, ok := ofPolicy(err); ok {
			text = "The API server refused it: " + why + "."
		}
		s.refuse(w, r, v, o, http.StatusConflict, &view.Refusal{Text: text}, err)
	default:
		s.fail(w, r, v, o, err)
	}
}

// forbidden explains a refusal by RBAC or by an admission policy.
func forbidden(o order, err error) string {
	if why, ok := ofPolicy(err); ok {
		return "The API server refused it: " + why + "."
	}
	return fmt.Sprintf("The API server refused it: %s needs the verbs of the ClusterRole %s in the namespace; ask for a RoleBinding to it.", o.by, o.action.Role)
}

// ofPolicy returns the message of the admission policy that denied a request; false if none did.
func ofPolicy(err error) (string, bool) {
	_, why, found := strings.Cut(err.Error(), "denied request: ")
	return strings.TrimSuffix(why, "."), found
}

// refuse answers a request whose action is refused. err is the answer of the API server, if it refused it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, v viewer, o order, code int, refusal *view.Refusal, err error) {
	s.metrics.actions.WithLabelValues(o.action.Name, resultRefused).Inc()
	s.Logger.Info("action of a user refused", append(o.logged(), "why", refusal.Text)...)
	s.notDone(w, r, v, o, code, refusal, err)
}

// fail answers a request whose action could not be written.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, v viewer, o order, err error) {
	s.metrics.actions.WithLabelValues(o.action.Name, resultError).Inc()
	s.Logger.Error(err, "action of a user not written", o.logged()...)
	s.notDone(w, r, v, o, http.StatusBadGateway, &view.Refusal{Text: "The API server did not carry it out, or its answer was lost. Check the object and try again."}, err)
}

// notDone shows why an action was not done.
func (s *Server) notDone(w http.ResponseWriter, r *http.Request, v viewer, o order, code int, refusal *view.Refusal, err error) {
	detail := ""
	if err != nil {
		detail = err.Error()
	}
	title := "Not done: " + o.action.Label
	main, renderErr := s.renderer.execute("not-done", map[string]any{"Title": title, "Refusal": *refusal, "Detail": detail, "Page": r.URL.EscapedPath(), "Back": o.subject.Back(v.scope)})
	if renderErr != nil {
		s.unseen(w, r, v, renderErr)
		return
	}
	s.write(w, r, code, v, shell{Title: title, Nav: nav(""), Main: template.HTML(main)}) // The templates of this package made it.
}
