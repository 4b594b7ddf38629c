package pullrequest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	capstanv1 "github.com/capstan-hub/capstan/api/capstan/v1alpha1"
	pipelinesv1 "github.com/capstan-hub/capstan/api/pipelines/v1alpha1"
	"github.com/capstan-hub/capstan/strategy"
	"github.com/capstan-hub/capstan/strategy/pullrequest/gitrepo/gittest"
	"github.com/capstan-hub/capstan/strategy/pullrequest/provider/providertest"
)

// A Git host that takes requests and answers none has 40 promotions due; a good one
// has 10. Sixteen workers, as the hub's, meet the forty first. The ten are done soon
// after one request's time, which is far below what forty acts may take.
func TestATarpitDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	const (
		workers  = 16 // hub/promotion's
		requests = 2 * time.Second
		bound    = time.Minute // one request's time, and ten clones on a busy machine
	)
	for name, at := range map[string]string{"Git hangs": "/info/refs", "clones hang": "/git-upload-pack", "all of it hangs": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			good, tarpit := newScene(t, pipelinesv1.Gitea), newScene(t, pipelinesv1.Gitea)
			files := map[string]string{}
			for i := range 10 {
				env := fmt.Sprintf("prod-%d", i)
				files["clusters/"+env+"/web.yaml"] = release(good.ns, env, "1.0.0")
			}
			good.Commit(gittest.Base, "environments", files)
			tarpit.server.AddFault(providertest.Fault{Path: at, Hang: true})
			good.options.Clock, good.options.Timeout = nil, requests
			good.again()

			due := make(chan *capstanv1.Promotion, 50)
			for _, of := range []struct {
				scene *scene
				n     int
			}{{tarpit, 40}, {good, 10}} {
				for i := range of.n {
					p := of.scene.promotion(int64(i+1), "1.1.0")
					p.Spec.Environment = fmt.Sprintf("prod-%d", i)
					due <- p
				}
			}
			close(due)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			var group sync.WaitGroup
			done := make(chan time.Duration, 10)
			unasked := make(chan error, 40)
			for range workers {
				group.Go(func() {
					for p := range due {
						ctx, cancel := context.WithTimeout(ctx, good.Deadline())
						_, err := good.Promote(ctx, p, always)
						cancel()
						var later *strategy.RetryAfterError
						switch {
						case p.Namespace == good.ns && err == nil:
							done <- time.Since(began)
						case p.Namespace == good.ns:
							t.Errorf("at the good host: %v", err)
						case errors.As(err, &later) && later.Untried:
							unasked <- err
						case err == nil:
							t.Error("the tarpit has answered")
						}
					}
				})
			}
			last := time.Duration(0)
			for range 10 {
				g.Eventually(done).WithTimeout(2 * bound).Should(Receive(&last))
			}
			t.Logf("the good host's ten were done after %s", last.Round(time.Millisecond))
			g.Expect(last).To(BeNumerically("<", bound))
			g.Expect(good.pulls()).To(Equal("open 10"))
			group.Wait()
			// Two workers may be free again before the third has waited in vain.
			g.Expect(len(unasked)).To(BeNumerically(">=", 40-workers-2), "the others failed at once")
			g.Expect(<-unasked).To(MatchError(ContainSubstring("does not respond")))
			g.Expect(time.Since(began)).To(BeNumerically("<", bound))
		})
	}
}
