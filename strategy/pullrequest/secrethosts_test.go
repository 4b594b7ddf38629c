package pullrequest_test

import (
	"errors"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
)

// allow sets the hosts of the scene's Secret; nil removes the annotation.
func (s *scene) allow(hosts *string) {
	s.t.Helper()
	secret := &corev1.Secret{}
	if err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: secretName}, secret); err != nil {
		s.t.Fatal(err)
	}
	secret.Annotations = map[string]string{}
	if hosts != nil {
		secret.Annotations[capstanv1.AllowedHostsAnnotation] = *hosts
	}
	if err := s.c.Update(s.t.Context(), secret); err != nil {
		s.t.Fatal(err)
	}
}

// A Pipeline cannot send a Secret to a host that the Secret does not name: the host gets no
// request at all. A change of the Secret fixes it.
func TestASecretIsSentOnlyToItsHosts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *WithT, s *scene) {
		elsewhere := "git.example.com"
		s.allow(&elsewhere)
		p := s.promotion(1, "1.1.0")
		p.Status.PullRequest = &capstanv1.PullRequestStatus{Number: 1, Branch: s.branch()}
		_, promoted := s.Promote(t.Context(), p, always)
		_, followed := s.Follow(t.Context(), p)
		_, withdrawn := s.Withdraw(t.Context(), p, "the source moved on")
		for _, err := range []error{promoted, followed, withdrawn} {
			expectReason(g, err, "HostNotAllowed", "the Secret "+s.ns+"/"+secretName+" does not allow its credentials to be sent to the host 127.0.0.1:")
			var terminal *strategy.TerminalError
			g.Expect(errors.As(err, &terminal)).To(BeTrue())
			g.Expect(terminal.Secret.Name).To(Equal(secretName))
		}
		g.Expect(s.server.Requests()).To(BeEmpty())

		u, err := url.Parse(s.server.URL())
		g.Expect(err).NotTo(HaveOccurred())
		p.Status.PullRequest = nil
		s.allow(&u.Host)
		g.Expect(s.promote(p).State).To(Equal(strategy.Open))
	})
}

func TestSecretHostsAreRequired(t *testing.T) {
	t.Parallel()
	g, s := NewWithT(t), newScene(t, services[0])
	s.options.RequireSecretHosts = true
	s.again()
	p := s.promotion(1, "1.1.0")
	_, err := s.Promote(t.Context(), p, always)
	expectReason(g, err, "HostNotAllowed", "has no annotation capstan.dev/allowed-hosts")
	g.Expect(s.server.Requests()).To(BeEmpty())
	u, err := url.Parse(s.server.URL())
	g.Expect(err).NotTo(HaveOccurred())
	s.allow(&u.Host)
	g.Expect(s.promote(p).State).To(Equal(strategy.Open))
}
