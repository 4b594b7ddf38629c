package pullrequest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-hub/capstan/internal/allowedhosts"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider"
)

// checkHosts returns an error if a host that would get the credentials of a Secret is not one that the Secret allows.
func checkHosts(secret *corev1.Secret, repository provider.Repository, required bool) error {
	if err := allowedhosts.Of(secret.Annotations, required).Check(repository.CloneURL, repository.APIURL); err != nil {
		return &failure{reason: ReasonHostNotAllowed, err: fmt.Errorf("the Secret %s/%s %w", secret.Namespace, secret.Name, err)}
	}
	return nil
}
