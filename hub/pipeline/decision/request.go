package decision

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/hub/pipeline/gate"
	"github.com/capstan-hub/capstan/internal/revision"
)

// RequestLifetime is how long after its creation a PromotionRequest is carried out. One that is restored from
// a backup later is not carried out again.
const RequestLifetime = time.Hour

// Request is a PromotionRequest that is due.
type Request struct {
	Name       string
	UID        types.UID
	By, Reason string
	// Revision to promote.
	Revision string
	// RollbackOf is the last promotion that was carried out before a rollback; nil if the request names a
	// revision.
	RollbackOf *Entry
	// Rollback is whether the request is for a rollback.
	Rollback bool
}

// RequestOutcome is the outcome of a PromotionRequest that is not due.
type RequestOutcome struct {
	*capstanv1.PromotionRequest
	Phase capstanv1.RequestPhase
	// Promotion is the name of the one that carries the request out; empty if none does.
	Promotion string
}

// Triage returns the PromotionRequest for an environment that is due, which is the newest, and the outcomes of
// the others that have none yet. One that was created before another was carried out is not due; in the same
// second it is. requests are those for the environment; now is the wall clock.
func Triage(requests []*capstanv1.PromotionRequest, l Ledger, now time.Time) (due *capstanv1.PromotionRequest, others []RequestOutcome) {
	var newest *capstanv1.PromotionRequest
	for _, r := range requests {
		if !IsHandled(r) && (newest == nil || newer(r, newest)) {
			newest = r
		}
	}
	for _, r := range requests {
		if IsHandled(r) && r.Status.Promotion != "" && newest != nil && newest.CreationTimestamp.Before(&r.CreationTimestamp) {
			newest = r
		}
	}
	for _, r := range requests {
		if IsHandled(r) {
			continue
		}
		switch e := l.ofRequest(r.UID); {
		case e != nil:
			others = append(others, RequestOutcome{r, capstanv1.RequestPromoted, e.Name})
		case now.Sub(r.CreationTimestamp.Time) >= RequestLifetime:
			others = append(others, RequestOutcome{r, capstanv1.RequestExpired, ""})
		case r != newest:
			others = append(others, RequestOutcome{r, capstanv1.RequestSuperseded, ""})
		default:
			due = r
		}
	}
	return due, others
}

// IsHandled returns whether a request has an outcome.
func IsHandled(r *capstanv1.PromotionRequest) bool {
	return r.Status.Phase != "" || r.Status.Promotion != ""
}

// newer returns whether a was created after b. Creation times have whole seconds; UIDs decide a tie.
func newer(a, b *capstanv1.PromotionRequest) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.UID > b.UID
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// ofRequest returns the promotion that carries out a request; nil if there is none.
func (l Ledger) ofRequest(uid types.UID) *Entry {
	for i := range l.entries {
		if l.entries[i].Request == uid {
			return &l.entries[i]
		}
	}
	return nil
}

// ErrRefused is the class of reasons why a request cannot be carried out.
var ErrRefused = errors.New("refused")

// RefusalText returns the text of an ErrRefused for users, without the name of its class.
func RefusalText(err error) string {
	return strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ")
}

// Resolve returns what a PromotionRequest asks for. The error is ErrRefused if it cannot be carried out; its
// text is for users. known returns whether the Pipeline knows a revision, and rejected whether spec.reject
// contains it.
func Resolve(q Question, r *capstanv1.PromotionRequest, known, rejected func(string) bool) (*Request, error) {
	refuse := func(format string, args ...any) (*Request, error) {
		return nil, fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
	}
	env := q.Into.Name
	switch {
	case q.Into.Intent == nil:
		return refuse("neither the promotion of environment %q nor spec.promotion is set", env)
	case len(q.Into.Targets) == 0:
		return refuse("environment %q has no targets", env)
	}
	request := &Request{Name: r.Name, UID: r.UID, By: r.Spec.By, Reason: r.Spec.Reason, Revision: r.Spec.Revision, Rollback: r.Spec.Rollback != nil}
	if !request.Rollback {
		switch {
		case !known(request.Revision):
			return refuse("the Pipeline does not know %s: it runs in none of its environments, and none of its Promotions was for it", request.Revision)
		case rejected(request.Revision):
			return refuse("%s is in spec.reject of the Pipeline", request.Revision)
		}
		return request, nil
	}
	runs, by := running(q)
	to := q.Into.Ledger.LastSucceeded(q.Into.Intent.App, runs, rejected)
	switch {
	case runs == "":
		return refuse("it is not known which revision environment %q runs; name the revision to promote", env)
	case to == nil:
		return refuse("no revision other than %s succeeded in environment %q before", runs, env)
	}
	request.Revision, request.RollbackOf = to.Revision, by
	return request, nil
}

// ResolveRollback returns what a request for a rollback of environment i of a Pipeline asks for. The error is
// ErrRefused if there is nothing to roll back to; its text is for users.
func ResolveRollback(p *pipelinesv1.Pipeline, q Question, i int) (*Request, error) {
	r := &capstanv1.PromotionRequest{Spec: capstanv1.PromotionRequestSpec{Rollback: &capstanv1.RollbackRequest{}}}
	return Resolve(q, r, func(string) bool { return false }, Rejects(p, i))
}

// Rejects returns a function that returns whether spec.reject of a Pipeline contains a revision.
func Rejects(p *pipelinesv1.Pipeline, i int) func(revision string) bool {
	rules := gate.For(p, i)
	return func(revision string) bool { _, is := rules.Rejected(revision); return is }
}

// running returns the revision that an environment runs, or that is rolled out there, and the last promotion that
// was carried out there; nil if none was.
func running(q Question) (string, *Entry) {
	last := q.Into.Ledger.lastCarriedOut()
	if last != nil && !last.Phase.Finished() {
		return last.Revision, last
	}
	runs, ok := q.Into.Agree()
	switch {
	case ok && (last == nil || !revision.Same(last.Revision, runs)):
		return runs, last // It was changed outside the pipeline.
	case last != nil:
		return last.Revision, last
	case q.Into.Agreed != nil:
		return q.Into.Agreed.Revision, nil
	}
	return "", nil
}
