package approval

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
)

// errNoSecretRef means that no client can sign for a Pipeline.
var errNoSecretRef = errors.New("promotion.strategy.secretRef is set neither in the environment nor in the Pipeline: set it to a Secret with the key " + SecretKey)

// caller is the client that signed a call: the owner of a key.
type caller struct {
	// secret in the Pipeline's namespace that has the key.
	secret    types.NamespacedName
	signature signature
}

// String returns the caller's name as it is in spec.approval.by.
func (c caller) String() string { return "secret:" + c.secret.String() }

// authenticate identifies the caller with the key of the target environment. For an environment
// that the Pipeline does not have (nil), the Pipeline's key is used.
func (s *Server) authenticate(ctx context.Context, r *http.Request, p *pipelinesv1.Pipeline, into *pipelinesv1.Environment, target route, body []byte) (caller, error) {
	sig, err := parseSignature(r.Header, s.LegacySignatures, s.Clock.Now())
	name := secretOf(p, into)
	switch {
	case name == "":
		return caller{}, unauthorized(reasonNoSecret, fmt.Errorf("pipeline %s/%s: %w", p.Namespace, p.Name, errNoSecretRef))
	case err != nil:
		return caller{}, unauthorized(reasonSignature, err)
	}
	c := caller{secret: types.NamespacedName{Namespace: p.Namespace, Name: name}, signature: sig}
	keys, err := s.keys(ctx, c.secret)
	if err != nil {
		return caller{}, err
	}
	for i, key := range keys {
		if err = sig.check(key, target, r.Method, r.URL.EscapedPath(), body); err == nil {
			if i > 0 {
				s.metrics.previousKey.Inc()
				s.Logger.Info("the call is signed with the previous key", "secret", c.secret.String(), "key", PreviousSecretKey,
					"path", r.URL.Path, "client", r.RemoteAddr)
			}
			return c, nil
		}
	}
	return caller{}, unauthorized(reasonSignature, err)
}

// secretOf returns the name of the Secret that signs for an environment: its own, else the
// Pipeline's. In other fields, an environment's promotion replaces the Pipeline's completely;
// here it does not, because weave always used the Pipeline's secretRef.
func secretOf(p *pipelinesv1.Pipeline, into *pipelinesv1.Environment) string {
	if into != nil && into.Promotion != nil && into.Promotion.Strategy.SecretRef != nil {
		return into.Promotion.Strategy.SecretRef.Name
	}
	if p.Spec.Promotion != nil && p.Spec.Promotion.Strategy.SecretRef != nil {
		return p.Spec.Promotion.Strategy.SecretRef.Name
	}
	return ""
}

// keys reads the HMAC keys for each call, so that a changed Secret is used at once: the
// present key, and the previous one if the Secret has it. Without a present key no call is
// accepted.
func (s *Server) keys(ctx context.Context, name types.NamespacedName) ([][]byte, error) {
	secret := &corev1.Secret{}
	err := s.Client.Get(ctx, name, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, unauthorized(reasonNoSecret, fmt.Errorf("Secret %s does not exist: create it with the key %s", name, SecretKey))
	case apierrors.IsForbidden(err):
		return nil, failed(fmt.Errorf("the hub may not read Secret %s: apply config/rbac/pipeline-secrets to its namespace: %w", name, err))
	case err != nil:
		return nil, failed(fmt.Errorf("reading Secret %s: %w", name, err))
	case len(secret.Data[SecretKey]) == 0:
		return nil, unauthorized(reasonNoSecret, fmt.Errorf("Secret %s has no key %s, or an empty one: set it", name, SecretKey))
	}
	keys := [][]byte{secret.Data[SecretKey]}
	if previous := secret.Data[PreviousSecretKey]; len(previous) > 0 {
		keys = append(keys, previous)
	}
	return keys, nil
}

// stageOf returns the stage that a call is about if it names an environment with waves: approvals are for the first one, and a
// revision is promoted further from the last one. Else it returns the name as it is.
func stageOf(p *pipelinesv1.Pipeline, target route) string {
	name := target.environment
	for i := range p.Spec.Environments {
		env := &p.Spec.Environments[i]
		if env.Stage != nil && env.Stage.Environment == target.environment && (target.endpoint == approvalEndpoint && env.Stage.First || target.endpoint == promotionEndpoint && env.Stage.Last) {
			name = env.Name
		}
	}
	return name
}

// environment returns the index and the environment of a Pipeline by name; -1 and nil if there
// is none.
func environment(p *pipelinesv1.Pipeline, name string) (int, *pipelinesv1.Environment) {
	for i := range p.Spec.Environments {
		if p.Spec.Environments[i].Name == name {
			return i, &p.Spec.Environments[i]
		}
	}
	return -1, nil
}

// noEnvironment is weave's answer to an environment that the Pipeline does not have.
func noEnvironment(p *pipelinesv1.Pipeline, name string) *refusal {
	return refuse(http.StatusUnprocessableEntity, reasonMismatch, "app %s/%s has no environment %s defined", p.Namespace, p.Name, name)
}
