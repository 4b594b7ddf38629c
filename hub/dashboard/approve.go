package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/hub/dashboard/view"
)

// approveForm shows the form that confirms an approval.
func (s *Server) approveForm(w http.ResponseWriter, r *http.Request) {
	v, p, ok := s.approvable(w, r)
	if !ok {
		return
	}
	entry := view.EntryOf(p, v.scope)
	main, err := s.renderer.execute("approve", map[string]any{
		"Entry": entry, "User": v.user.Username, "CSRF": s.sessions.csrfToken(v.session), "UID": string(p.UID), "Back": back(entry),
	})
	if err != nil {
		s.unseen(w, r, v, err)
		return
	}
	s.write(w, r, http.StatusOK, v, shell{Title: "Approve " + entry.Revision, Nav: nav(""), Main: template.HTML(main)}) // It was made by the templates here.
}

func back(e view.Entry) string {
	if e.PipelineLink != "" {
		return e.PipelineLink
	}
	return view.PromotionsPath
}

// approve writes the approval with the token of the user who gives it.
func (s *Server) approve(w http.ResponseWriter, r *http.Request) {
	v, p, ok := s.approvable(w, r)
	if !ok {
		return
	}
	if !s.sessions.genuine(v.session, r.PostFormValue("csrf")) {
		s.metrics.approvals.WithLabelValues("refused").Inc()
		s.message(w, r, v, http.StatusForbidden, "Not approved", "The form belongs to another session: go back, reload the page and try again.", "")
		return
	}
	if r.PostFormValue("uid") != string(p.UID) {
		s.metrics.approvals.WithLabelValues("refused").Inc()
		s.message(w, r, v, http.StatusConflict, "Not approved", "The promotion was replaced since the page was shown. Reload the page and check it.", "")
		return
	}
	err := s.recordApproval(r.Context(), v, p)
	result, code, text := "refused", http.StatusForbidden, "The API server refused the approval."
	switch {
	case err == nil:
		s.metrics.approvals.WithLabelValues("ok").Inc()
		s.Logger.Info("approved", "promotion", client.ObjectKeyFromObject(p).String(), "environment", p.Spec.Environment, "revision", p.Spec.Revision,
			"by", v.user.Username, "client", r.RemoteAddr)
		http.Redirect(w, r, back(view.EntryOf(p, v.scope)), http.StatusSeeOther)
		return
	case apierrors.IsUnauthorized(err):
		s.unseen(w, r, v, errNotAuthenticated)
		return
	case apierrors.IsForbidden(err):
	case apierrors.IsConflict(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		code, text = http.StatusConflict, "The promotion changed since the page was shown. Reload the page and check it."
	default:
		result, code, text = "error", http.StatusServiceUnavailable, "The API server did not answer. Try again."
	}
	s.metrics.approvals.WithLabelValues(result).Inc()
	s.Logger.Info("approval not written", "promotion", client.ObjectKeyFromObject(p).String(), "by", v.user.Username, "error", err.Error())
	s.message(w, r, v, code, "Not approved", text, err.Error())
}

// approvable returns the promotion that a request names when it waits for an approval and
// the viewer may give it. Otherwise it writes the response and returns false.
func (s *Server) approvable(w http.ResponseWriter, r *http.Request) (viewer, *capstanv1.Promotion, bool) {
	v, err := s.viewer(r.Context(), r)
	if err != nil {
		s.unseen(w, r, v, err)
		return v, nil, false
	}
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	var p *capstanv1.Promotion
	for i := range v.facts.Promotions {
		if f := &v.facts.Promotions[i]; f.Namespace == namespace && f.Name == name {
			p = f
		}
	}
	switch {
	case p == nil || !v.scope.Promotions.Has(namespace):
		s.message(w, r, v, http.StatusNotFound, "Not found", "This promotion does not exist, or you may not see it.", "")
	case !v.scope.Approve.Has(namespace):
		s.message(w, r, v, http.StatusForbidden, "Approval not permitted", fmt.Sprintf("%s may not approve promotions in namespace %s: the user needs the verb approve on promotions.capstan.dev in that namespace, for example by the ClusterRole capstan-approver.", v.user.Username, namespace), "")
	case !view.Approvable(p):
		s.message(w, r, v, http.StatusConflict, "Nothing to approve", fmt.Sprintf("The promotion of %s into %s is not waiting for an approval.", p.Spec.Revision, p.Spec.Environment), "")
	default:
		return v, p, true
	}
	return v, nil, false
}

// recordApproval sets spec.approval of this promotion (by UID) with the viewer's token.
func (s *Server) recordApproval(ctx context.Context, v viewer, p *capstanv1.Promotion) error {
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = v.session.Token
	own, err := client.New(config, client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"spec":     map[string]any{"approval": capstanv1.Approval{By: v.user.Username, Retry: p.Run()}},
	})
	if err != nil {
		return fmt.Errorf("encoding an approval: %w", err)
	}
	approved := &capstanv1.Promotion{}
	approved.Namespace, approved.Name = p.Namespace, p.Name
	return own.Patch(ctx, approved, client.RawPatch(types.MergePatchType, patch))
}
