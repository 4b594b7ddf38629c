package dashboard

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-hub/capstan/hub/dashboard/view"
	"github.com/capstan-hub/capstan/hub/useraction"
)

// Results of actions, as values of a metric.
const (
	resultOK      = "ok"
	resultRefused = "refused"
	resultError   = "error"
)

// order is an action that a user has confirmed.
type order struct{ useraction.Order }

// errRefused ends an action that was refused when it was judged again.
var errRefused = errors.New("refused")

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
		o := order{useraction.Order{Action: action, Subject: subject, By: v.user.Username, Input: useraction.Input{
			Comment: strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(r.PostFormValue("comment"), ""), "\r\n", "\n")), Revision: r.PostFormValue("revision"),
		}}}
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
		http.Redirect(w, r, view.Back(subject, v.scope), http.StatusSeeOther)
	}
}

// logged returns the keys and values of an action in the log of the hub.
func (o order) logged() []any {
	all := []any{"action", o.Action.Name, "by", o.By}
	if p := o.Subject.Promotion; p != nil {
		all = append(all, "promotion", client.ObjectKeyFromObject(p).String(), "environment", p.Spec.Environment, "revision", p.Spec.Revision)
	} else {
		all = append(all, "pipeline", client.ObjectKeyFromObject(o.Subject.Pipeline).String())
	}
	if o.Subject.Environment != "" {
		all = append(all, "environment", o.Subject.Environment)
	}
	if o.Subject.Gate != "" {
		all = append(all, "gate", o.Subject.Gate)
	}
	if o.Input.Revision != "" {
		all = append(all, "requested", o.Input.Revision)
	}
	return all
}

// judge returns why a form cannot be carried out, with the status code; nil if it can. It reads the rest of the
// input.
func (s *Server) judge(r *http.Request, v viewer, o *order) (int, *view.Refusal) {
	if !s.sessions.genuine(v.session, r.PostFormValue("csrf")) {
		return http.StatusForbidden, &view.Refusal{Text: "The form belongs to another session: go back, reload the page and try again."}
	}
	if refusal := v.facts.Refuse(o.Action, v.scope, o.Subject); refusal != nil {
		return refusalCode(refusal), refusal
	}
	newest, err := strconv.ParseInt(r.PostFormValue("newest"), 10, 64)
	if err != nil {
		newest = -1
	}
	o.Input.Newest = useraction.NewestNumber(v.facts.Promotions, o.Subject)
	if r.PostFormValue("uid") != o.Subject.UID() || newest != o.Input.Newest {
		return http.StatusConflict, outdated(v.facts, o.Subject)
	}
	if text := v.facts.Check(o.Action, o.Subject, o.Input); text != "" {
		return http.StatusUnprocessableEntity, &view.Refusal{Text: text}
	}
	return http.StatusOK, nil
}

// outdated is the refusal of a form of an object that was replaced since.
func outdated(f *view.Facts, s *useraction.Subject) *view.Refusal {
	if s.Promotion == nil {
		if n := useraction.NewestOf(f.Promotions, s); n != nil {
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
	var refusal *view.Refusal
	_, err = useraction.Do(ctx, own, &o.Order, func(fresh *useraction.Subject, another bool) error {
		if another {
			refusal = outdated(v.facts, o.Subject)
		} else if refusal = v.facts.Refuse(o.Action, v.scope, fresh); refusal != nil && refusal.Done && refusal.At.IsZero() {
			refusal.At = lastWrite(fresh)
		}
		if refusal != nil {
			return errRefused
		}
		return nil
	})
	if refusal != nil {
		return refusal, nil
	}
	return nil, err
}

// lastWrite returns when a user last wrote the object of a subject; zero if that is not known. The hub writes the status.
func lastWrite(s *useraction.Subject) time.Time {
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
	var requested useraction.RequestedError
	switch {
	case refusal != nil:
		s.refuse(w, r, v, o, refusalCode(refusal), refusal, nil)
	case errors.As(err, &requested):
		s.refuse(w, r, v, o, http.StatusConflict, &view.Refusal{Text: requested.Text(), At: requested.Request.CreationTimestamp.Time}, err)
	case apierrors.IsUnauthorized(err):
		s.unseen(w, r, v, errNotAuthenticated)
	case apierrors.IsForbidden(err):
		s.refuse(w, r, v, o, http.StatusForbidden, &view.Refusal{Text: forbidden(o, err)}, err)
	case apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		text := "The object changed since the page was shown. Open the form again and check it."
		if why, ok := useraction.PolicyDenial(err); ok {
			text = "The API server refused it: " + why + "."
		}
		s.refuse(w, r, v, o, http.StatusConflict, &view.Refusal{Text: text}, err)
	default:
		s.fail(w, r, v, o, err)
	}
}

// forbidden explains a refusal by RBAC or by an admission policy.
func forbidden(o order, err error) string {
	if why, ok := useraction.PolicyDenial(err); ok {
		return "The API server refused it: " + why + "."
	}
	return fmt.Sprintf("The API server refused it: %s needs the verbs of the ClusterRole %s in the namespace; ask for a RoleBinding to it.", o.By, o.Action.Role)
}

// refuse answers a request whose action is refused. err is the answer of the API server, if it refused it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, v viewer, o order, code int, refusal *view.Refusal, err error) {
	s.metrics.actions.WithLabelValues(o.Action.Name, resultRefused).Inc()
	s.Logger.Info("action of a user refused", append(o.logged(), "why", refusal.Text)...)
	s.notDone(w, r, v, o, code, refusal, err)
}

// fail answers a request whose action could not be written.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, v viewer, o order, err error) {
	s.metrics.actions.WithLabelValues(o.Action.Name, resultError).Inc()
	s.Logger.Error(err, "action of a user not written", o.logged()...)
	s.notDone(w, r, v, o, http.StatusBadGateway, &view.Refusal{Text: "The API server did not carry it out, or its answer was lost. Check the object and try again."}, err)
}

// notDone shows why an action was not done.
func (s *Server) notDone(w http.ResponseWriter, r *http.Request, v viewer, o order, code int, refusal *view.Refusal, err error) {
	detail := ""
	if err != nil {
		detail = err.Error()
	}
	title := "Not done: " + o.Action.Label
	main, renderErr := s.renderer.execute("not-done", map[string]any{"Title": title, "Refusal": *refusal, "Detail": detail, "Page": r.URL.EscapedPath(), "Back": view.Back(o.Subject, v.scope)})
	if renderErr != nil {
		s.unseen(w, r, v, renderErr)
		return
	}
	s.write(w, r, code, v, shell{Title: title, Nav: nav(""), Main: template.HTML(main)}) // The templates of this package made it.
}
