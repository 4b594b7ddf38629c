package promotions_test

import (
	"net"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/internal/egress"
	"github.com/capstan-hub/capstan/internal/egress/egresstest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// A Gitea that only a proxy reaches: the clone, the push and the pull request go through it. When the
// proxy is down, the Promotion names it.
func TestGiteaThroughAProxy(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	server, robot := startedGitea(t)
	w := newWorld(t, t)
	r := newOnGitea(t, w, server, robot, "staging")
	address := r.front.Listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	g.Expect(err).NotTo(HaveOccurred())
	// The certificate of the front is for example.com. Only the proxy knows where this example.com is.
	made := net.JoinHostPort("example.com", port)
	between := egresstest.Start(t, map[string]string{made: address})
	w.hosted.proxy, err = egress.New(egress.Options{URL: between.URL, Flag: "git-proxy"})
	g.Expect(err).NotTo(HaveOccurred())
	h := w.began(ctx, w.newPipeline("web", w.pull(func(p *pipelinesv1.PullRequestPromotion) { p.URL = strings.Replace(p.URL, address, made, 1) }), "dev", "staging"))
	w.runs("dev", "1.1")
	h.settle(ctx)
	prs := r.PullRequests()
	g.Expect(prs).To(HaveLen(1), w.newest(ctx, "staging").Status.Message)
	g.Expect(prs[0].State).To(Equal(providertest.Open))
	g.Expect(between.Targets()).To(And(Not(BeEmpty()), HaveEach(made)))

	between.Stop()
	w.runs("dev", "1.2")
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Spec.Revision).To(Equal("1.2"))
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhasePromoting))
	g.Expect(p.Status.Message).To(ContainSubstring("the proxy " + between.URL + " cannot be reached: dial: connect: connection refused; check --git-proxy"))
}

// A Secret names no proxy: the user who writes it must not choose the way of the hub's requests.
func TestASecretThatNamesAProxyIsRefused(t *testing.T) {
	t.Parallel()
	g, ctx := NewWithT(t), t.Context()
	w, h := pulled(t, pipelinesv1.Gitea, nil, "dev", "staging")
	between := egresstest.Start(t, nil)
	secret := &corev1.Secret{}
	g.Expect(w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: gitSecret}, secret)).To(Succeed())
	secret.Data["proxyURL"] = []byte(between.URL)
	g.Expect(w.c.Update(ctx, secret)).To(Succeed())
	w.runs("dev", "1.1")
	h.settle(ctx)
	p := w.newest(ctx, "staging")
	g.Expect(p.Status.Phase).To(Equal(capstanv1.PhaseFailed))
	g.Expect(p.Status.Reason).To(Equal("InvalidCredentials"))
	g.Expect(p.Status.Message).To(ContainSubstring("has the key proxyURL: only the administrator names a proxy, by the hub's flag --git-proxy; remove the key"))
	g.Expect(between.Targets()).To(BeEmpty())
	g.Expect(w.forge.PullRequests()).To(BeEmpty())
}
