package useraction

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

const (
	// actTries is how often an action is written: the hub writes to the same objects, and each of its
	// writes between a read and a write here is a conflict.
	actTries = 5
	// requestTries is how many earlier requests for the same promotion may have ended without one.
	requestTries = 8
	// requestDigest is how many hex digits of a digest are in the name of a PromotionRequest.
	requestDigest = 16
	// requestPrefix begins the names of PromotionRequests. All clients use the same names, so that of two
	// requests at once the second is refused.
	requestPrefix = "request-"
)

// Order is an action that a user gives.
type Order struct {
	Action  *Action
	Subject *Subject
	Input   Input
	// By is the user's name, as the API server knows it.
	By string
}

// Do writes an action with a client of the user, over the version of the object that was judged, and returns the
// written object. After a conflict it reads the object again, and calls judge with it and with whether it is another
// object of that name; an error of judge ends it. So nothing that another user wrote is overwritten. The
// errors are those of the client, of judge, and RequestedError.
func Do(ctx context.Context, own client.Client, o *Order, judge func(fresh *Subject, another bool) error) (client.Object, error) {
	for try := 1; ; try++ {
		written, err := o.Action.write(ctx, own, *o)
		if !apierrors.IsConflict(err) || try == actTries {
			return written, err
		}
		fresh := *o.Subject
		if fresh.Promotion != nil {
			fresh.Promotion = &capstanv1.Promotion{}
			err = own.Get(ctx, client.ObjectKeyFromObject(o.Subject.Promotion), fresh.Promotion)
		} else {
			fresh.Pipeline = &pipelinesv1.Pipeline{}
			err = own.Get(ctx, client.ObjectKeyFromObject(o.Subject.Pipeline), fresh.Pipeline)
		}
		if err != nil {
			return nil, err
		}
		if fresh.Environment != "" {
			fresh.Pipeline = fresh.Pipeline.Shown() // A wave is an environment.
		}
		if err := judge(&fresh, fresh.UID() != o.Subject.UID()); err != nil {
			return nil, err
		}
		o.Subject = &fresh
	}
}

func writeApproval(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	p := o.Subject.Promotion
	answer := answerOf(o)
	answer["method"] = nil
	return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"approval": answer})
}

func writeRejection(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	p := o.Subject.Promotion
	return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"rejection": answerOf(o)})
}

// answerOf returns an approval or a rejection of a run as a merge patch. An absent comment is an explicit null, because
// the answer to an earlier run may have one.
func answerOf(o Order) map[string]any {
	answer := map[string]any{"by": o.By, "retry": o.Subject.Promotion.Run(), "comment": nil}
	if o.Input.Comment != "" {
		answer["comment"] = o.Input.Comment
	}
	return answer
}

func writeRetry(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	p := o.Subject.Promotion
	return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"retry": max(p.Spec.Retry, p.Status.Retry, p.Status.IgnoredRetry) + 1})
}

func writeOverride(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	p := o.Subject.Promotion
	overrides := append(p.DeepCopy().Spec.Overrides, capstanv1.Override{Gate: o.Subject.Gate, By: o.By, Reason: o.Input.Comment, Retry: p.Run()})
	return patchSpec(ctx, own, p, &capstanv1.Promotion{}, map[string]any{"overrides": overrides})
}

func writeSuspend(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	return patchSpec(ctx, own, o.Subject.Pipeline, &pipelinesv1.Pipeline{}, map[string]any{"suspend": true})
}

func writeResume(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	return patchSpec(ctx, own, o.Subject.Pipeline, &pipelinesv1.Pipeline{}, map[string]any{"suspend": false})
}

func writePromote(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	return request(ctx, own, o, capstanv1.PromotionRequestSpec{Revision: o.Input.Revision})
}

func writeRollback(ctx context.Context, own client.Client, o Order) (client.Object, error) {
	return request(ctx, own, o, capstanv1.PromotionRequestSpec{Rollback: &capstanv1.RollbackRequest{}})
}

// patchSpec merges fields into the spec of an object at the version of o, and reads the result into another one.
func patchSpec(ctx context.Context, own client.Client, o, into client.Object, spec map[string]any) (client.Object, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()},
		"spec":     spec,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	into.SetNamespace(o.GetNamespace())
	into.SetName(o.GetName())
	return into, own.Patch(ctx, into, client.RawPatch(types.MergePatchType, patch))
}

// RequestedError is returned when another user has requested a promotion into the same environment, and the
// hub has not made it yet.
type RequestedError struct{ Request *capstanv1.PromotionRequest }

// Error implements error.
func (e RequestedError) Error() string {
	return fmt.Sprintf("already requested by %s in PromotionRequest %s", e.Request.Spec.By, e.Request.Name)
}

// Text is the error for users, with what was requested.
func (e RequestedError) Text() string {
	q := e.Request
	what := q.Spec.Revision
	if q.Spec.Rollback != nil {
		what = "a rollback"
	}
	return fmt.Sprintf("It was already requested by %s: %s into %s (%s). The hub carries that out first.", q.Spec.By, what, q.Spec.Environment, q.Spec.Reason)
}

// request creates a PromotionRequest. Its name follows from the environment and its newest promotion, so
// that of two users who request something at once the second is refused.
func request(ctx context.Context, own client.Client, o Order, spec capstanv1.PromotionRequestSpec) (client.Object, error) {
	p := o.Subject.Pipeline
	spec.Pipeline, spec.Environment, spec.By, spec.Reason = p.Name, o.Subject.Environment, o.By, o.Input.Comment
	for try := range requestTries {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", p.UID, o.Subject.Environment, o.Input.Newest, try))
		r := &capstanv1.PromotionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: requestPrefix + hex.EncodeToString(sum[:])[:requestDigest]}, Spec: spec}
		err := own.Create(ctx, r)
		if !apierrors.IsAlreadyExists(err) {
			return r, err
		}
		other := &capstanv1.PromotionRequest{}
		if err := own.Get(ctx, client.ObjectKeyFromObject(r), other); err != nil {
			return nil, err
		}
		switch other.Status.Phase {
		case capstanv1.RequestRefused, capstanv1.RequestExpired, capstanv1.RequestSuperseded: // It promotes nothing.
		case "", capstanv1.RequestPromoted:
			return nil, RequestedError{other}
		}
	}
	return nil, fmt.Errorf("%d requests for this promotion were refused or have expired: delete the PromotionRequests of the environment", requestTries)
}

// PolicyDenial returns the message of the admission policy that denied a request; false if none did.
func PolicyDenial(err error) (string, bool) {
	_, why, found := strings.Cut(err.Error(), "denied request: ")
	return strings.TrimSuffix(why, "."), found
}
